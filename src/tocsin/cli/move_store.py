"""`tocsin move` of a whole store, from one engine to another."""

from __future__ import annotations

import secrets
from contextlib import AsyncExitStack
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from tocsin.cli.failure import Refused, StoreUnusable
from tocsin.cli.output import emit, now_ms, plural, size
from tocsin.cli.places import failing
from tocsin.cli.words import say

if TYPE_CHECKING:
    from tocsin.storage.moving import Place, Sums

TELL_EVERY_S: Final = 2.0


def move_store(source: str, target: str, *, abort: bool, dry_run: bool, as_json: bool) -> None:
    """Move everything, or go on with that; give it up, or only count and check."""
    import asyncio

    with failing():
        answer = asyncio.run(_run(source, target, abort, dry_run, quiet=as_json))
    if as_json:
        emit(answer)


async def _run(source: str, target: str, abort: bool, dry_run: bool, *, quiet: bool) -> dict[str, Any]:
    from tocsin.storage.moving import StoreMove, check_source, total
    from tocsin.storage.urls import is_there, place_of

    names = {"source": place_of(source), "target": place_of(target)}
    if names["source"] == names["target"]:
        raise Refused("SOURCE and TARGET are the same store")
    if not await is_there(source):
        raise StoreUnusable(f"there is no store at {names['source']}: check the name")
    tell = _Progress(quiet)
    async with AsyncExitStack() as stack:
        here = await _place(stack, source)
        await check_source(here, names["target"])
        if dry_run and not await is_there(target):
            return _previewed(names, await total(here.provider, tell), tell)
        move = StoreMove(here, await _place(stack, target), now_ms, tell)
        if dry_run:
            return _previewed(names, await move.preview(), tell)
        if abort:
            await move.give_up()
            tell.say(f"given up: {names['source']} is to be used as before; what is at {names['target']} is not")
            return names | {"moved": False}
        tell.say(f"moving everything of {names['source']} to {names['target']}")
        sums = await move.run(secrets.token_hex(8))
    tell.say(f"moved {_words(sums)}; compared on both sides, sha256 {sums.digest}")
    tell.say(f"{names['source']} is sealed: no host serves it. Give {names['target']} to your hosts")
    return names | {"moved": True} | _members(sums)


async def _place(stack: AsyncExitStack, url: str) -> Place:
    """Open a store that nobody else has open."""
    from tocsin.storage.moving import Place, keep_all
    from tocsin.storage.urls import hosts_of, open_provider, place_of

    if hosts := await hosts_of(url):  # before this process is one of them, and gets its share
        raise StoreUnusable(f"{place_of(url)} is in use by {', '.join(hosts)}: stop all hosts of it")
    provider = open_provider(url)
    keep_all(provider)
    await provider.start()
    stack.push_async_callback(provider.stop)
    return Place(provider, place_of(url))


class _Progress:
    """Prints how far it is, now and then."""

    def __init__(self, quiet: bool) -> None:
        self._quiet, self._told_at, self._doing = quiet, monotonic(), ""

    def say(self, words: str) -> None:
        if not self._quiet:
            say(words)

    def __call__(self, doing: str, sums: Sums) -> None:
        if doing != self._doing or monotonic() - self._told_at >= TELL_EVERY_S:
            self._doing, self._told_at = doing, monotonic()
            self.say(f"{doing} {_words(sums)} so far")


def _previewed(names: dict[str, str], sums: Sums, tell: _Progress) -> dict[str, Any]:
    tell.say(f"would move {_words(sums)} from {names['source']} to {names['target']}; nothing was changed")
    return names | {"moved": False, "dryRun": True} | _members(sums)


def _words(sums: Sums) -> str:
    return f"{plural(sums.actors, 'actor')}, {plural(sums.rows, 'row')}, {size(sums.size)}"


def _members(sums: Sums) -> dict[str, Any]:
    return {"actors": sums.actors, "rows": sums.rows, "bytes": sums.size, "sha256": sums.digest}
