"""Names that become a part of a URL's path. `..` would be resolved on its way and name something else, so a name that
can be nobody's is wrong usage and nothing is asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from urllib.parse import quote

import click

from tocsin.cli.failure import WrongSettings

NOT_TEXT: Final = "what was given is not UTF-8 text: an argument holds bytes that are none"


def instance_in_path(name: str) -> str:
    from tocsin.actors.scheduler.model.validation import instance_name

    return _checked(name, instance_name)


def schedule_in_path(name: str) -> str:
    from tocsin.actors.scheduler.schedules.definition import schedule_name

    return _checked(name, schedule_name)


def redrive_in_path(id: str) -> str:
    from tocsin.actors.scheduler.model.validation import schedule_id

    return _checked(id, schedule_id)


def _checked(name: str, rule: Callable[[object], str]) -> str:
    from tocsin.errors import RequestError

    try:
        name.encode()
        return quote(rule(name), safe=":")
    except UnicodeEncodeError:
        raise WrongSettings(NOT_TEXT) from None
    except RequestError as error:
        raise click.UsageError(str(error)) from None
