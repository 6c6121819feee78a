"""What SQLite and the system say of a failure is told as one cause, and the right one."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tests.storage.disks import SmallDisk, small_disk
from tests.storage.test_damaged_files import written
from tocsin.errors import RolledBack, StoreCorrupt, StoreError, StoreFull, StoreUnavailable
from tocsin.storage.sqlite.backup import back_up
from tocsin.storage.sqlite.errors import translate

SPACE, DISK, DAMAGE, MEMORY = "no space", "the disk of", "damaged", "memory"
CAUSES = (SPACE, DISK, DAMAGE, MEMORY, "busy", "read-only", "rights", "moved")
EXPECTED: dict[str, tuple[type[StoreError], str]] = {
    "SQLITE_FULL": (StoreFull, SPACE),
    "SQLITE_IOERR_SHMSIZE": (StoreFull, SPACE),
    "SQLITE_IOERR_NOMEM": (StoreUnavailable, MEMORY),
    "SQLITE_NOMEM": (StoreUnavailable, MEMORY),
    "SQLITE_IOERR_CORRUPTFS": (StoreCorrupt, DAMAGE),
    "SQLITE_IOERR_DATA": (StoreCorrupt, DAMAGE),
    "SQLITE_IOERR_FSYNC": (StoreUnavailable, DISK),
    "SQLITE_IOERR_WRITE": (StoreUnavailable, DISK),
    "SQLITE_CORRUPT_INDEX": (StoreCorrupt, DAMAGE),
    "SQLITE_BUSY_SNAPSHOT": (StoreUnavailable, "busy"),
    "SQLITE_PROTOCOL": (StoreUnavailable, "busy"),
    "SQLITE_READONLY_DBMOVED": (RolledBack, "moved"),
}


def failed(code: str) -> sqlite3.OperationalError:
    """With SQLite's own words, which say "disk I/O error" of memory and of shared memory, too."""
    error = sqlite3.OperationalError("disk I/O error" if "IOERR" in code else "as SQLite says")
    error.sqlite_errorcode = getattr(sqlite3, code)
    return error


@pytest.mark.parametrize("code", EXPECTED)
def test_each_code_has_its_cause(code: str) -> None:
    kind, cause = EXPECTED[code]
    error = translate(failed(code))

    assert type(error) is kind
    assert [each for each in CAUSES if each in str(error)] == [cause]
    if cause != DISK:
        assert "I/O" not in str(error)


def test_no_code_of_sqlite_is_told_as_two_causes() -> None:
    codes = [name for name in dir(sqlite3) if re.fullmatch("SQLITE_[A-Z]+(_[A-Z_]+)?", name)]
    codes = [name for name in codes if isinstance(getattr(sqlite3, name), int) and hasattr(sqlite3, name)]
    told = {code: [each for each in CAUSES if each in str(translate(failed(code)))] for code in codes}

    assert {
        code: causes for code, causes in told.items() if len(causes) > 1 and causes != ["read-only", "rights"]
    } == {}


LIMITED = """
import asyncio, resource, sys
from pathlib import Path
from tocsin.errors import StoreError
from tocsin.storage.sqlite.provider import SQLiteProvider
from tocsin.storage.sqlite.backup import back_up

path, name, limit, what = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4]
resource.setrlimit(getattr(resource, name), (limit, limit))
try:
    if what == "backup":
        back_up(path, path.with_name("copy.db"))
    else:
        asyncio.run(SQLiteProvider(path).start())
except StoreError as error:
    print(type(error).__name__, error)
"""


def under_a_limit(path: Path, name: str, limit: int, what: str) -> str:
    command = [sys.executable, "-c", LIMITED, str(path), name, str(limit), what]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.anyio
async def test_a_start_that_a_limit_stops_names_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    await written(path)
    path.with_name("store.db.reserve").unlink()
    said = under_a_limit(path, "RLIMIT_FSIZE", 8_192, "start")
    assert said.startswith(f"StoreFull no space is left for {path}: the limit on the size of files"), said
    assert "disk" not in said
    for descriptors in range(8, 16):  # wherever they come to an end
        said = under_a_limit(path, "RLIMIT_NOFILE", descriptors, "start")
        assert said.startswith("StoreUnavailable") and re.search("too many (files open|open files)", said, re.I), said
        assert "rights" not in said and "removed" not in said


@pytest.mark.anyio
async def test_a_backup_that_a_limit_stops_names_the_copy_and_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    await written(path)
    said = under_a_limit(path, "RLIMIT_FSIZE", 8_192, "backup")

    assert said.startswith(f"StoreFull no space is left for the copy {tmp_path}/copy.db: the limit on the size"), said
    assert not [name for name in os.listdir(tmp_path) if "copy" in name]


@pytest.mark.anyio
async def test_a_backup_to_a_full_disk_names_the_copy_and_not_the_store(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    await written(path)
    with small_disk(tmp_path / "small") as disk:
        _fill(disk)
        with pytest.raises(StoreFull, match=r"no space is left for the copy .*copy\.db: free some on its disk$"):
            back_up(path, disk.folder / "copy.db")


def _fill(disk: SmallDisk) -> None:
    disk.fill(leave=16_384)
