"""Report variables that look like settings and are none, at the start of a server; never an error."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from typing import Final

import click

from tocsin.settings import HIDDEN, NAMES, PREFIX, SERVICE_LINK

OF_SERVICES: Final = re.compile(
    r"TOCSIN_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)"
)
"""Variables that Kubernetes and Docker set for a service called `tocsin` or `tocsin-...`."""
ALIKE: Final = 0.8
"""Similarity from which a name counts as a misspelt known one."""


def remarks(environ: Mapping[str, str], root: click.Group) -> list[str]:
    """Return a sentence for each variable that looks like a setting and is none, without values of other variables."""
    port = environ.get(f"{PREFIX}PORT", "").strip()
    said = []
    if SERVICE_LINK.fullmatch(port):
        said.append(
            f"{PREFIX}PORT={port} is a service link of Kubernetes and no port to listen on, so it is ignored: say "
            "enableServiceLinks: false in the pod, or give the port as --port or in tocsin.toml"
        )
    known = {*_of_settings(), *_of_options(root, PREFIX.rstrip("_"))}
    for name in sorted(environ):
        if not name.startswith(PREFIX) or name in known or OF_SERVICES.fullmatch(name):
            continue
        if close := difflib.get_close_matches(name, known, 1, ALIKE):
            said.append(f"{name} is no setting, so it is ignored: do you mean {close[0]}?")
    return said


def _of_settings() -> Iterator[str]:
    for name in (*NAMES, *(f"{name}_file" for name in HIDDEN), "config"):
        yield PREFIX + name.upper()


def _of_options(group: click.Group, prefix: str) -> Iterator[str]:
    """Return the variables that click reads: an option's own, or one made of the command's and the option's names."""
    for name, command in group.commands.items():
        own = f"{prefix}_{name.replace('-', '_').upper()}"
        for option in command.params:
            if isinstance(option, click.Option) and option.envvar is not None:
                yield from [option.envvar] if isinstance(option.envvar, str) else option.envvar
            elif isinstance(option, click.Option) and option.allow_from_autoenv and option.name:
                yield f"{own}_{option.name.upper()}"
        if isinstance(command, click.Group):
            yield from _of_options(command, own)
