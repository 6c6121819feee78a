"""Pictures of every page of the dashboard, as people see them: `python -m tests.browser.shots FOLDER`."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

import click
from playwright.sync_api import Page

from tests.browser.chromium import chromium
from tests.browser.filling import INSTANCES, JOBS, LONG_ID, LONG_PATH, SCHEDULES, announce, fill
from tests.browser.operated import operated
from tests.browser.visits import visiting
from tests.browser.watched import DESK, PHONE, overflow

SIZES: Final = {"desk": DESK, "phone": PHONE}
SCHEMES: Final = ("light", "dark")
LONG_SCHEDULE: Final = max(SCHEDULES, key=len)
LONG_POOL: Final = "warehouse.eu-west-1:nightly-imports-of-every-supplier"
PAGES: Final[Mapping[str, str]] = {
    "overview": "/ui",
    "overview-empty": "/i/nobody/ui",
    "overview-paused": "/i/tenant-a/ui",
    "jobs": "/ui/jobs",
    "jobs-of-a-pool": "/ui/jobs?pool=imports",
    "cancel-jobs": "/ui/cancel-jobs?pool=imports",
    "jobs-empty": "/i/nobody/ui/jobs",
    "job": f"/ui/jobs/{LONG_ID}",
    "job-dead": "/ui/jobs/capture-0001",
    "dead": "/ui/dead",
    "dead-empty": "/i/nobody/ui/dead",
    "letters": f"/ui/dead/letters?{urlencode({'path': 'payments:capture', 'reason': 'exhausted'})}",
    "letters-long": f"/ui/dead/letters?{urlencode({'path': LONG_PATH})}",
    "retry-all": f"/ui/dead/retry-all?{urlencode({'path': 'payments:capture'})}",
    "schedules": "/ui/schedules",
    "schedules-empty": "/i/nobody/ui/schedules",
    "schedule": "/ui/schedules/sweep-sessions",
    "schedule-long": f"/ui/schedules/{LONG_SCHEDULE}?args=1",
    "queues": "/ui/queues",
    "groups": "/ui/groups",
    "queues-empty": "/i/nobody/ui/queues",
    "workers": "/ui/workers",
    "workers-empty": "/i/nobody/ui/workers",
    "pools": "/ui/pools",
    "pools-empty": "/i/nobody/ui/pools",
    "pool": "/ui/pools/imports",
    "pool-long": f"/ui/pools/{LONG_POOL}",
    "audit": "/ui/audit",
    "audit-empty": "/i/nobody/ui/audit",
    "instances": "/ui/instances",
    "instance-long": f"/i/{INSTANCES[1]}/ui",
}


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--jobs", default=JOBS, show_default=True, help="How many jobs the server has.")
@click.option("--only", default="", help="Pages whose name holds this.")
@click.option("--schemes", default="light,dark", show_default=True)
@click.option("--sizes", default="desk,phone", show_default=True)
def main(folder: Path, jobs: int, only: str, schemes: str, sizes: str) -> None:
    """Write NAME-SIZE-SCHEME.png of each page; fail if one is not there, or is wider than its window."""
    folder.mkdir(parents=True, exist_ok=True)
    wrong: list[str] = []
    with tempfile.TemporaryDirectory() as place, operated(Path(place)) as server, chromium() as browser:
        fill(server, jobs)
        for scheme in (one for one in SCHEMES if one in schemes):
            for size in (one for one in SIZES if one in sizes):
                with visiting(browser, server, viewport=dict(SIZES[size]), color_scheme=scheme) as (page, faults):
                    faults.expected.append("Failed to load resource")  # said below
                    announce(server, server.ask("/workers")["workers"][1].get("jobs", ()))
                    for name, found in take(page, folder, f"{size}-{scheme}", only):
                        wrong += [f"{name}: {one}" for one in found]
                        click.echo(f"{name}: {', '.join(found) or 'ok'}")
    if wrong:
        raise click.ClickException("\n".join(wrong))


def take(page: Page, folder: Path, suffix: str, only: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each page's name, and what is wrong with it."""
    for name, path in PAGES.items():
        if only in name:
            answer = page.goto(path)
            assert answer is not None
            page.screenshot(path=folder / f"{name}-{suffix}.png")
            yield f"{name}-{suffix}", overflow(page) + ([f"answered {answer.status}"] if answer.status != 200 else [])


if __name__ == "__main__":
    main()
