"""Disks that refuse: a limit on files that any user can set, files and file systems that become read-only. Each is a
named error; nothing is begun meanwhile; and it passes by itself."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from tests.storage.disks import ext4_disk
from tests.storage.host_on_file import GatedTransport, hosting, trouble_over
from tests.storage.test_replaced_files import put, value_in
from tocsin.errors import StoreUnavailable
from tocsin.storage.sqlite import provider as sqlite
from tocsin.storage.sqlite import upkeep as sqlite_upkeep
from tocsin.storage.sqlite.provider import SQLiteProvider
from tocsin.storage.sqlite.reserve import RESERVE_BYTES

LIMITED = Path(__file__).with_name("limited.py")


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_upkeep, "LOOK_S", 0.01)
    monkeypatch.setattr(sqlite, "SETTLE_LOOK_S", 0.01)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such limit")
def test_a_limit_on_the_size_of_files_is_a_full_disk_and_passes_with_it(tmp_path: Path) -> None:
    """Real for every user: the kernel refuses the write, as it does with a quota."""
    command = [sys.executable, str(LIMITED), str(tmp_path / "store.db"), str(RESERVE_BYTES)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)

    assert len(said["accepted"]) > 50
    assert {code for code, _ in said["refused"]} == {"STORE_FULL"}
    for _, message in said["refused"]:  # one cause, and the right one
        assert message.startswith(f"no space is left for {tmp_path}/store.db: the limit on the size of files"), message
        assert "disk" not in message and "I/O" not in message
    assert (said["troubles"], said["over"]) == (["StoreFull"], True)

    async def stored() -> list[bytes]:
        provider = SQLiteProvider(tmp_path / "store.db")
        await provider.start()
        rows = await provider.view("a").scan(b"0", b"z", limit=10_000)
        await provider.stop()
        return [key for key, _ in rows]

    assert asyncio.run(stored()) == sorted(key.encode() for key in said["accepted"])


@contextmanager
def immutable(*files: Path) -> Iterator[None]:
    """Nobody may write them, not even who has them open."""
    subprocess.run(["chattr", "+i", *map(str, files)], check=True)
    try:
        yield
    finally:
        subprocess.run(["chattr", "-i", *map(str, files)], check=True)


@pytest.mark.anyio
async def test_files_that_become_read_only_under_a_host_stop_it_until_they_are_not(tmp_path: Path) -> None:
    with ext4_disk(tmp_path / "small") as disk:
        path, transport = disk.folder / "store.db", GatedTransport()
        async with hosting(path, transport) as (host, provider):
            await host.scheduler().run_after(timedelta(milliseconds=150), "work:run", id="before")
            with immutable(path, path.with_name("store.db-wal")):
                with pytest.raises(StoreUnavailable, match="the disk of the store failed") as caught:
                    await host.scheduler().run_after(0, "work:run", id="meanwhile")
                assert caught.value.status == 503
                await asyncio.sleep(0.3)  # past the instant at which the first one is due
                assert isinstance(provider.trouble, StoreUnavailable)
                status = await host.scheduler().status()
                assert (status.health, status.backlog, transport.arrived) == ("red", 1, [])
            await trouble_over(provider)
            await host.scheduler().run_after(0, "work:run", id="after")
            await transport.until(lambda arrived: {"before", "after"} <= set(arrived))

        assert sorted(transport.arrived) == ["after", "before"]


@pytest.mark.anyio
async def test_a_file_system_that_turns_read_only_is_named_and_keeps_what_was_accepted(tmp_path: Path) -> None:
    """As ext4 does at an error of the disk: it can only be mounted anew."""
    with ext4_disk(tmp_path / "small") as disk:
        path = disk.folder / "store.db"
        provider = SQLiteProvider(path)
        await provider.start()
        await put(provider, b"accepted")
        disk.break_down()
        for _ in range(2):
            with pytest.raises(StoreUnavailable):
                await put(provider, b"refused")
        assert isinstance(provider.trouble, StoreUnavailable)
        assert await provider.view("a").get([b"k"]) == {b"k": b"accepted"}, "it can be read"
        await provider.stop()
        with pytest.raises(StoreUnavailable):
            await SQLiteProvider(path).start()
        disk.repair()

        assert await value_in(path) == b"accepted"


@pytest.mark.anyio
async def test_a_store_in_a_folder_nobody_may_write_says_so(tmp_path: Path) -> None:
    with ext4_disk(tmp_path / "small") as disk:
        disk.remount("ro")
        with pytest.raises(StoreUnavailable, match=r"the file system of .*store\.db\.lock is read-only"):
            await SQLiteProvider(disk.folder / "store.db").start()
        assert "store.db" not in os.listdir(disk.folder)
        disk.remount("rw")
        provider = SQLiteProvider(disk.folder / "store.db")
        await provider.start()
        await provider.stop()
