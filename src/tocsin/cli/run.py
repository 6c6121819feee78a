"""`tocsin run --once`: open the store, do what is due, and end; for crontab, systemd timers and jobs of a cluster."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

import click

from tocsin.cli.failure import Held, Left, WrongSettings, store_unusable
from tocsin.cli.output import emit, key_values, now_ms, when
from tocsin.cli.serve import LEVELS, in_options, setting
from tocsin.cli.times import duration, instant_of

if TYPE_CHECKING:
    from tocsin.actors.scheduler.model.due_run import DueRun

USED: Final = (
    "store", "origin_url", "callback_path", "secrets", "origins", "origin_secrets", "cool_on_retry_after", "allow_urls",
    "url_networks", "url_secrets", "lanes", "max_in_flight", "timeout_ms", "insecure", "ca_file", "log_format",
)  # fmt: skip
"""The settings of a server that a run uses."""


@click.command()
@click.option("--once", is_flag=True, help="Needed: do what is due now, and end.")
@click.option("--until", metavar="WHEN", help="Also what becomes due until then: a span like 55s, or an instant.")
@click.option(
    "--max-seconds", type=click.FloatRange(0.001, 86_400), metavar="N", help="Begin nothing more after so long."
)
@setting("--store", "Where jobs live (default: sqlite:///tocsin.db).", metavar="URL")
@setting("--origin-url", "Where callbacks go, like https://app.example.", metavar="URL")
@setting("--callback-path", "Their path (default: /_tocsin/callback).", metavar="PATH")
@setting("--origins", "Further origins by name.", metavar="NAME=URL ...")
@setting("--origin-secrets-file", "File with their secrets, a NAME=SECRET each line.", metavar="FILE")
@setting("--cool-on-retry-after", "What Retry-After cools where a job has no pool.", metavar="none|origin")
@setting("--secrets-file", "File with signing secrets, the first signs first.", metavar="FILE")
@setting("--allow-urls", "URLs that jobs may name, like https://*.customer.example/in/.", metavar="URL,...")
@setting("--url-networks", "Networks besides public ones that those may lead to.", metavar="NETWORK,...")
@setting("--url-secrets-file", "File with the secrets for those (default: the others).", metavar="FILE")
@setting("--lanes", "Callbacks in flight per scheduler (default: 64).", metavar="N")
@setting("--max-in-flight", "Callbacks in flight in all (default: 256).", metavar="N")
@setting("--timeout-ms", "How long a callback may take where nothing else is said (default: 60000).", metavar="MS")
@setting("--insecure", "Send unsigned callbacks; for a loopback origin only.", is_flag=True, flag_value=True)
@setting("--ca-file", "PEM file of authorities to trust beside the system's.", metavar="FILE")
@setting("--log-format", "Of the log on stderr: text for people (default), or json.", metavar="text|json")
@setting("--config", "TOML file (default: tocsin.toml, if there is one).", metavar="FILE")
@click.option("--log-level", type=click.Choice(LEVELS), default="warning", show_default=True, help="On stderr.")
@click.option("--json", "as_json", envvar="TOCSIN_JSON", is_flag=True, help="JSON on stdout, one value a line.")
def run(
    once: bool, until: str | None, max_seconds: float | None, log_level: str, as_json: bool, **options: Any
) -> None:
    """Do what is due, without a server, and end.

    It opens the store, lets what is due of all instances happen (callbacks,
    slots of schedules, expiry, upkeep), prints what was done, and ends when
    nothing more is due and nothing is in flight. Jobs of queues are left to
    workers, retries of later to the next run.

    \b
    Exit codes, beside those of all commands
      0    done; what is left waits for a person, a pool or a worker
      7    another process has the store: a server, or a run that still goes on
      8    due work is left that should have been done, and it says why
    """
    from tocsin.cli.log_lines import configure
    from tocsin.cli.run_process import run_once
    from tocsin.errors import SettingsError, StoreError, StoreLocked
    from tocsin.settings import load

    if not once:
        raise click.UsageError("say --once: do what is due, and end; `tocsin serve` runs until it is stopped")
    end = None if until is None else _end(until)
    settings = None
    try:
        configure(log_level, load(options, os.environ, needed=("log_format",)).log_format)
        settings = load(options, os.environ, needed=USED)
        done = run_once(settings, end, max_seconds)
    except SettingsError as error:
        raise WrongSettings(in_options(str(error))) from None
    except StoreLocked as error:
        raise Held(f"nothing was run: {error}") from None
    except StoreError as error:
        raise store_unusable(settings.shown_store if settings else "", error) from None
    _show(done, as_json)
    if done.trouble:
        raise Left("due work is left: " + "; ".join(dict.fromkeys(one.message for one in done.because)))


def _end(until: str) -> int:
    """Return the instant that `--until` says."""
    if until[:1].isdigit() and until[-1:].isalpha() and "T" not in until.upper():
        return now_ms() + duration(until, "--until")
    return instant_of(until, "--until")


def _show(done: DueRun, as_json: bool) -> None:
    import msgspec

    if as_json:
        emit(msgspec.to_builtins(done))
        return
    key_values(
        ("fired", done.fired),
        ("succeeded", done.succeeded),
        ("accepted", done.accepted or None),
        ("failed", done.failed or None),
        ("dead", done.dead or None),
        ("running", done.running or None),
        ("left", done.left or None),
        *(
            ("" if number else "because", f"{_of(one.jobs, one.instance)}{one.message}")
            for number, one in enumerate(done.because)
        ),
        ("next due", when(done.next_due, now_ms())),
    )


def _of(jobs: int, instance: str | None) -> str:
    named = "" if instance is None else f" of {instance}"
    return f"{jobs:,}{named}: " if jobs else ""
