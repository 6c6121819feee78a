"""A program under a limit on the size of files (`ulimit -f`): commits, prints what was accepted and what not, and is
told on stdin when the limit is gone. `limited.py FILE LIMIT_BYTES`"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
from pathlib import Path

from tocsin.errors import StoreError
from tocsin.storage.api import Batch
from tocsin.storage.sqlite import upkeep as sqlite_upkeep
from tocsin.storage.sqlite.provider import SQLiteProvider

VALUE = b"v" * 60_000


async def main(path: Path, limit: int) -> None:
    sqlite_upkeep.LOOK_S = 0.01
    provider = SQLiteProvider(path)
    await provider.start()
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    accepted: list[str] = []
    refused: list[tuple[str, str]] = []
    troubles: set[str] = set()
    while len(refused) < 5:
        key = b"%06d" % (len(accepted) + len(refused))
        try:
            await (await provider.open("a")).commit(Batch(puts={key: VALUE}))
        except StoreError as error:
            refused.append((error.code, str(error)))
            troubles.add(type(provider.trouble).__name__)
        else:
            accepted.append(key.decode())
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    async with asyncio.timeout(10):
        while provider._upkeep._task is not None and provider._upkeep.busy:
            await asyncio.wait([provider._upkeep._task])
    await (await provider.open("a")).commit(Batch(puts={b"after": b""}))
    accepted.append("after")
    over = provider.trouble is None
    await provider.stop()
    print(json.dumps({"accepted": accepted, "refused": refused, "troubles": sorted(troubles), "over": over}))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
