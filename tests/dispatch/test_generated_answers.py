"""A thousand answers made by chance: every transport judges each of them alike, in whatever pieces they come."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from tests.dispatch.generated_answers import raw_answers
from tests.dispatch.scripted_server import ClientConnection, scripted_server
from tests.dispatch.test_transports import post
from tocsin.dispatch.answer_reader import AnswerReader
from tocsin.dispatch.transport import BrokenExchange
from tocsin.dispatch.transports import NAMES, default_transport

pytestmark = pytest.mark.anyio

SEED = 13
ANSWERS = raw_answers(SEED, 1_000)
LIMIT = 65_536
AT_ONCE = 50


def judged(raw: bytes, cuts: list[int]) -> tuple[object, ...]:
    """What the reader of answers says of `raw`, that comes in these pieces and then ends."""
    reader, start = AnswerReader(LIMIT), 0
    for end in [*sorted(cuts), len(raw)]:
        reader.feed(raw[start:end])
        start = end
    reader.eof()
    answer = reader.answer
    if answer is None:
        return (reader.fault,)
    return answer.status, dict(answer.headers), answer.body, answer.cut


def test_there_are_all_kinds_of_answers() -> None:
    judgements = [judged(raw, []) for raw in ANSWERS]
    faults = {each[0] for each in judgements if len(each) == 1}

    assert 300 < sum(len(each) > 1 for each in judgements) < 800
    assert len(faults) > 15


def test_pieces_change_nothing() -> None:
    random = Random(SEED)
    for raw in ANSWERS:
        whole = judged(raw, [])
        for count in (1, 3):
            pieces = judged(raw, [random.randrange(len(raw) + 1) for _ in range(count)])
            if len(whole) > 1:
                assert pieces == whole, raw[:200]
            else:
                assert len(pieces) == 1, raw[:200]


@pytest.mark.parametrize("name", NAMES)
async def test_every_transport_judges_as_the_reader_does(name: str) -> None:
    random = Random(SEED)

    async def saying_it(connection: ClientConnection) -> None:
        request = await connection.request()
        raw = ANSWERS[int(request.partition(b"\r\n\r\n")[2])]
        at = random.randrange(len(raw) + 1)
        await connection.send(raw[:at])
        if random.random() < 0.2:
            await asyncio.sleep(0)
        await connection.send(raw[at:])
        connection.writer.write_eof()
        await connection.gone()

    async def said(number: int) -> tuple[object, ...]:
        try:
            answer = await post(transport, server.url, body=b"%d" % number)
        except BrokenExchange:
            return ()
        return answer.status, dict(answer.headers), answer.body, answer.cut

    transport = default_transport(name)
    async with scripted_server(saying_it) as server:
        for start in range(0, len(ANSWERS), AT_ONCE):
            numbers = range(start, start + AT_ONCE)
            for number, got in zip(numbers, await asyncio.gather(*map(said, numbers)), strict=True):
                wanted = judged(ANSWERS[number], [])
                assert got == (wanted if len(wanted) > 1 else ()), ANSWERS[number][:200]
        await transport.aclose()
        await server.empty()

    assert len(server.requests) == len(ANSWERS), "each was asked once"
