"""A server seeks garbage rarely, and leaves the process as it found it."""

from __future__ import annotations

import gc
from pathlib import Path

from tests.cli.test_connections import flooded
from tocsin.cli.serving import THRESHOLDS, collecting_rarely

SAYING = """
import gc, sys
from tocsin.cli import main
from tocsin.cli.http_server import Server
startup = Server.startup
async def saying(self, sockets=None):
    await startup(self, sockets)
    print("garbage", gc.get_threshold(), gc.get_freeze_count() > 10_000, file=sys.stderr, flush=True)
Server.startup = saying
main()
"""


def test_what_is_there_is_left_alone_and_what_was_set_comes_back() -> None:
    before = gc.get_threshold()
    with collecting_rarely():
        assert gc.get_threshold() == THRESHOLDS and gc.get_freeze_count() > 0
        assert gc.isenabled()
    assert (gc.get_threshold(), gc.get_freeze_count()) == (before, 0)


def test_a_server_seeks_garbage_rarely(tmp_path: Path) -> None:
    with flooded(tmp_path, code=SAYING) as (server, _):
        assert f"garbage {THRESHOLDS} True" in server.lines
