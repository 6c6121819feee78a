"""Break one rule at a time and run the tests that must notice: `python -m tests.mutants`."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import click

from tests.mutants.all import MUTANTS
from tests.mutants.breaking import Breakage, Mutant, Run, broken_copy, run_tests

CONTROL = Breakage("nothing is broken", "pyproject.toml", 'name = "tocsin"', 'name = "tocsin"')


def run(one: Breakage, tests: tuple[str, ...], limit_s: float) -> Run:
    with tempfile.TemporaryDirectory() as made:
        broken_copy(one, Path(made))
        return run_tests(Path(made), tests, limit_s)


def verdict(mutant: Mutant, limit_s: float) -> str | None:
    """Who caught it, and by what; None if nobody did."""
    found = run(mutant, mutant.tests, limit_s)
    if found.code == 0:
        return None
    if found.code is None and mutant.may_hang:
        return f"caught by waiting for ever: {limit_s:g} s"
    if found.code != 1 or found.failed is None:
        how = f"did not end within {limit_s:g} s" if found.code is None else f"ended with {found.code}, no test failed"
        raise click.ClickException(f"{mutant.name}: the run itself {how}\n{found.said[-2000:]}")
    return f"caught by {found.failed[0]}  {found.failed[1][:80]}"


def check_control(chosen: list[Mutant], limit_s: float) -> None:
    """The same tests, with nothing broken."""
    tests = tuple(sorted({test for mutant in chosen for test in mutant.tests}))
    found = run(CONTROL, tests, limit_s * max(len(tests), 1))
    if found.code != 0:
        raise click.ClickException(
            f"the copy fails without any breakage: nothing below would mean anything\n{found.said[-2000:]}"
        )


@click.command()
@click.option("--only", default="", help="Mutants whose name or file holds this.")
@click.option("--limit", default=120.0, show_default=True, help="Seconds that the tests of one mutant may take.")
@click.option("--control/--no-control", default=True, show_default=True, help="Run the tests unbroken first.")
def main(only: str, limit: float, control: bool) -> None:
    """Exit 1 if a mutant is missed, or if its tests fail in another way than by a test."""
    chosen = [mutant for mutant in MUTANTS if only in mutant.name or only in mutant.file]
    if not chosen:
        raise click.UsageError(f"no mutant's name or file holds {only!r}")
    if control:
        check_control(chosen, limit)
    missed = 0
    for mutant in chosen:
        try:
            by = verdict(mutant, limit)
        except click.ClickException as error:
            by = None
            click.echo(error.message, err=True)
        missed += by is None
        click.echo(f"{mutant.name:<72} {by or 'MISSED'}")
    click.echo(f"{len(chosen) - missed} of {len(chosen)} mutants caught")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
