"""`tocsin serve`: its options, its settings and the names of its failures. `serving.py` runs it."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from typing import Any, Final

import click

from tocsin.cli.failure import WrongSettings, store_unusable
from tocsin.cli.words import say

log = logging.getLogger("tocsin")

LEVELS: Final = ("debug", "info", "warning", "error")
OPTIONS_OF: Final[Mapping[str, str]] = {
    "give secrets=[...] (TOCSIN_SECRETS; `whsec_` + base64)": "set TOCSIN_SECRETS (`tocsin keys new` makes one)",
    "give secrets=[...]": "set TOCSIN_SECRETS (`tocsin keys new` makes one)",
    "or say insecure=True (--insecure) for": "or give --insecure for",
    "insecure is for": "--insecure is for",
}
"""Python argument names in the host's errors, and their options. The longer ones come first."""


def setting(flag: str, words: str, **more: Any) -> Callable[[Any], Any]:
    """Make an option that `settings.load` reads from the environment or the file when it is not given."""
    variable = "TOCSIN_" + flag.removeprefix("--").replace("-", "_").upper()
    return click.option(flag, default=None, allow_from_autoenv=False, help=f"{words}  [{variable}]", **more)


@click.command()
@setting("--store", "Where jobs live (default: sqlite:///tocsin.db).", metavar="URL")
@setting("--stores", "Several stores by name, instead of one.", metavar="NAME=URL ...")
@setting("--residency", "The store of instances by pattern, like eu-*=eu.", metavar="PATTERN=NAME ...")
@setting("--peer-address", "Where other hosts of a shared store reach this one.", metavar="HOST:PORT")
@setting("--host", "Address to listen on (default: 127.0.0.1).", metavar="ADDRESS")
@setting("--port", "Port to listen on (default: 8321; 0: any free one).", metavar="PORT")
@setting("--origin-url", "Where callbacks go, like https://app.example.", metavar="URL")
@setting("--callback-path", "Their path (default: /_tocsin/callback).", metavar="PATH")
@setting("--origins", "Further origins by name.", metavar="NAME=URL ...")
@setting("--origin-secrets-file", "File with their secrets, a NAME=SECRET each line.", metavar="FILE")
@setting("--cool-on-retry-after", "What Retry-After cools where a job has no pool.", metavar="none|origin")
@setting("--secrets-file", "File with signing secrets, the first signs first.", metavar="FILE")
@setting("--allow-urls", "URLs that jobs may name, like https://*.customer.example/in/.", metavar="URL,...")
@setting("--url-networks", "Networks besides public ones that those may lead to.", metavar="NETWORK,...")
@setting("--url-secrets-file", "File with the secrets for those (default: the others).", metavar="FILE")
@setting("--tokens-file", "File with name:scopes:secret bearer tokens.", metavar="FILE")
@setting("--lanes", "Callbacks in flight per scheduler (default: 64).", metavar="N")
@setting("--max-in-flight", "Callbacks in flight in all (default: 256).", metavar="N")
@setting("--timeout-ms", "How long a callback may take where nothing else is said (default: 60000).", metavar="MS")
@setting("--insecure", "Send unsigned callbacks; for a loopback origin only.", is_flag=True, flag_value=True)
@setting("--health-limits", "When health names what is late, like late_s=600.", metavar="NAME=N,...")
@setting("--heartbeat-url", "Gets a POST once a minute while all is well (a dead man's switch).", metavar="URL")
@setting("--ca-file", "PEM file of authorities to trust beside the system's.", metavar="FILE")
@setting("--log-format", "Of the log on stderr: text for people (default), or json.", metavar="text|json")
@setting("--config", "TOML file (default: tocsin.toml, if there is one).", metavar="FILE")
@click.option("--access-log", envvar="TOCSIN_ACCESS_LOG", is_flag=True, help="Log every request.")
@click.option(
    "--log-level", envvar="TOCSIN_LOG_LEVEL", type=click.Choice(LEVELS), default="warning", show_default=True,
    help="What to log on stderr.",
)  # fmt: skip
@click.pass_context
def serve(context: click.Context, /, access_log: bool, log_level: str, **options: Any) -> None:
    """Run a server until it is told to stop (SIGINT, SIGTERM).

    Secrets and tokens are given as TOCSIN_SECRETS and TOCSIN_TOKENS (comma
    separated) or as files: command lines can be read by others. `tocsin keys
    new` makes a secret. A stop drains: callbacks under way may finish.

    When one of the files changes, and at SIGHUP, secrets and tokens are read
    again and count from then on; a line on stderr says so, or what is wrong
    with them (then those of before stay). Other settings need a restart.
    """
    from tocsin.cli.environment import remarks
    from tocsin.cli.log_lines import configure
    from tocsin.cli.serving import run
    from tocsin.errors import SettingsError, StoreError
    from tocsin.settings import check_server, load

    root = context.find_root().command
    assert isinstance(root, click.Group), "serve is a command of it"
    try:
        # First of all the log: what is wrong with other settings is a line of it.
        configure(log_level, load(options, os.environ, needed=("log_format",)).log_format)
        settings = load(options, os.environ)
        if access_log:
            logging.getLogger("uvicorn.access").setLevel(logging.INFO)
        for remark in remarks(os.environ, root):
            log.warning("%s", remark)
        check_server(settings)
        run(settings, lambda: load(options, os.environ), access_log=access_log)
    except SettingsError as error:
        raise WrongSettings(in_options(str(error))) from None
    except StoreError as error:
        raise store_unusable(settings.shown_store, error) from None
    say("tocsin: stopped")


def in_options(message: str) -> str:
    """Translate Python argument names in an error to options and variables."""
    for in_python, option in OPTIONS_OF.items():
        message = message.replace(in_python, option)
    return message
