"""The fakes: what the simulated network may do, that it is a function of its seed, and the receiver that remembers."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from random import Random

import pytest

from tocsin.actors.testing import simulate
from tocsin.dispatch.asgi_transport import AsgiTransport, Message
from tocsin.dispatch.callback import Callback, Verdict
from tocsin.dispatch.dispatcher import Dispatcher
from tocsin.dispatch.signing import Signer
from tocsin.dispatch.testing import FAULTS, Delivery, FakeReceiver, Fault, SimNetwork
from tocsin.dispatch.transport import Answer, BrokenExchange, DeadlinePassed, NeverConnected

SECRET = "whsec_" + "c2VjcmV0IHNlY3JldCBzZWNyZXQgc2VjcmV0IQ=="
NOW = 1_800_000_000_000
JOB = Callback("job", "1-7", b"{}", NOW, 1, "1.7.x", "default", function_path="f")


class Chosen(Random):
    """Chance that always picks one fault."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(1)
        self._fault = fault

    def choice(self, seq: object) -> object:  # type: ignore[override]
        return self._fault if seq is FAULTS else 0.01


async def call(network: SimNetwork, timeout: float = 60.0) -> Answer | Exception:
    try:
        return await network.post("http://x/", {}, b"", connect_timeout=10, timeout=timeout, max_body=100)
    except (NeverConnected, DeadlinePassed, BrokenExchange) as error:
        return error


def tried(fault: Fault) -> tuple[Answer | Exception, int]:
    """What one call with that fault ended as, and how often it was received."""
    received: list[bytes] = []

    async def receive(headers: Mapping[str, str], body: bytes) -> Answer:
        received.append(body)
        await asyncio.sleep(1)
        return Answer(200, {}, b"ok")

    async def main(random: Random) -> Answer | Exception:
        return await call(SimNetwork(receive, Chosen(fault), fault=lambda: 1.0))

    return simulate(1, main), len(received)


@pytest.mark.parametrize(
    ("fault", "kind", "times"),
    [
        (Fault.REFUSED, NeverConnected, 0),
        (Fault.UNREACHED, NeverConnected, 0),
        (Fault.DROPPED, BrokenExchange, 0),
        (Fault.UNANSWERED, DeadlinePassed, 1),
        (Fault.LOST, BrokenExchange, 1),
        (Fault.TWICE, Answer, 2),
        (Fault.BOTH, Answer, 2),
        (Fault.GATEWAY, Answer, 1),
        (Fault.BUSY, Answer, 0),
    ],
)
def test_each_fault(fault: Fault, kind: type, times: int) -> None:
    ended, received = tried(fault)

    assert (type(ended), received) == (kind, times)


def test_every_fault_is_tried_here() -> None:
    assert set(FAULTS) == set(Fault)


def test_a_stormy_network_does_everything_and_a_calm_one_nothing() -> None:
    async def receive(headers: Mapping[str, str], body: bytes) -> Answer:
        return Answer(200, {}, b"ok")

    async def main(random: Random) -> list[Counter[object]]:
        ends: list[Counter[object]] = []
        for share in (0.5, 0.0):
            network = SimNetwork(receive, random, fault=partial(float, share))
            got = await asyncio.gather(*(call(network) for _ in range(500)))
            ends.append(Counter(each.status if isinstance(each, Answer) else type(each) for each in got))
        return ends

    storm, calm = simulate(3, main)

    assert storm.keys() == {200, 502, 503, NeverConnected, BrokenExchange, DeadlinePassed}
    assert calm == {200: 500}


def test_the_network_is_a_function_of_its_seed() -> None:
    async def receive(headers: Mapping[str, str], body: bytes) -> Answer:
        return Answer(200, {}, b"ok")

    async def main(random: Random) -> list[tuple[str, float]]:
        network, clock = SimNetwork(receive, random, fault=lambda: 0.5), asyncio.get_running_loop().time

        async def one() -> tuple[str, float]:
            return repr(await call(network)), clock()

        return await asyncio.gather(*(one() for _ in range(100)))

    assert simulate(5, main) == simulate(5, main)
    assert simulate(5, main) != simulate(6, main)


@pytest.mark.parametrize(("timeout", "kind"), [(0.005, NeverConnected), (0.5, DeadlinePassed)])
def test_deadlines_hold_to_the_instant(timeout: float, kind: type) -> None:
    class Slow(Chosen):
        def choice(self, seq: object) -> object:  # type: ignore[override]
            return 0.02

    async def receive(headers: Mapping[str, str], body: bytes) -> Answer:
        await asyncio.sleep(30)
        return Answer(200, {}, b"")

    async def main(random: Random) -> tuple[object, float]:
        loop = asyncio.get_running_loop()
        start = loop.time()
        return await call(SimNetwork(receive, Slow(Fault.LOST)), timeout), loop.time() - start

    end, seconds = simulate(1, main)

    assert isinstance(end, kind)
    assert seconds == pytest.approx(timeout)


def test_answers_are_bounded_and_their_headers_read_as_over_a_wire() -> None:
    answers = [Answer(409, {"Tocsin-Declined": "1"}, b"x" * 100), Answer(200, {}, b"x" * 101)]

    async def receive(headers: Mapping[str, str], body: bytes) -> Answer:
        return answers.pop(0)

    async def main(random: Random) -> list[Answer | Exception]:
        network = SimNetwork(receive, random)
        return [await call(network) for _ in range(2)]

    fitting, too_long = simulate(1, main)

    assert fitting == Answer(409, {"tocsin-declined": "1"}, b"x" * 100)
    assert too_long == Answer(200, {}, b"x" * 100, cut=True)


@pytest.mark.anyio
async def test_a_callback_altered_on_its_way_is_refused() -> None:
    receiver = FakeReceiver([SECRET], now_ms=lambda: NOW)
    headers = {
        "webhook-id": "job:1-7",
        "webhook-timestamp": str(NOW // 1000),
        "webhook-signature": Signer([SECRET]).sign("job:1-7", NOW // 1000, b"{}"),
    }
    changes = [{"webhook-id": "job:1-8"}, {"webhook-timestamp": str(NOW // 1000 + 1)}, {"webhook-signature": "v1,x"}]
    answers = [await receiver({**headers, **change}, b"{}") for change in changes]
    answers.append(await receiver(headers, b"{ }"))

    assert [answer.status for answer in answers] == [401] * 4
    assert receiver.deliveries == [] and len(receiver.rejected) == 4


def test_the_receiver_goes_on_when_the_caller_gave_up() -> None:
    done: list[float] = []

    async def receive(headers: Mapping[str, str], body: bytes) -> Answer:
        await asyncio.sleep(30)
        done.append(asyncio.get_running_loop().time())
        return Answer(200, {}, b"")

    async def main(random: Random) -> None:
        network = SimNetwork(receive, random)
        assert isinstance(await call(network, timeout=8), DeadlinePassed)
        cancelled = asyncio.ensure_future(call(network))
        await asyncio.sleep(8)
        cancelled.cancel()
        await asyncio.wait([cancelled])
        assert network.in_flight == 0
        await asyncio.sleep(60)

    simulate(1, main)

    assert len(done) == 2


def test_nothing_reaches_a_process_that_died() -> None:
    async def receive(headers: Mapping[str, str], body: bytes) -> Answer:
        raise AssertionError

    async def main(random: Random) -> None:
        alive = [True]
        network = SimNetwork(receive, random, alive=lambda: alive[0])
        waiting = asyncio.ensure_future(call(network))
        alive[0] = False
        await asyncio.sleep(5)
        assert not waiting.done()
        waiting.cancel()

    simulate(1, main)


# ---- The receiver --------------------------------------------------------------------------------


def sending(receiver: FakeReceiver, secrets: list[str] | None = None, *, asgi: bool = False) -> Dispatcher:
    transport = AsgiTransport(receiver.asgi) if asgi else SimNetwork(receiver, Random(1))
    return Dispatcher(transport, Signer(secrets or [SECRET]), lambda: "https://app.example", random=Random(1))


@pytest.mark.anyio
@pytest.mark.parametrize("asgi", [False, True])
async def test_deliveries_are_verified_and_remembered(asgi: bool) -> None:
    receiver = FakeReceiver([SECRET], now_ms=lambda: NOW)
    waiting = asyncio.ensure_future(receiver.wait_for(2))
    outcomes = [await sending(receiver, asgi=asgi).attempt(JOB, now_ms=NOW) for _ in range(2)]
    first = (await waiting)[0]

    assert [outcome.verdict for outcome in outcomes] == [Verdict.DONE] * 2
    assert (first.id, first.webhook_id, first.attempt, first.lease) == ("job", "job:1-7", 1, "1.7.x")
    assert first.body["functionPath"] == "f"
    assert first.headers["tocsin-attempt"] == "1"
    assert receiver.rejected == []


@pytest.mark.anyio
@pytest.mark.parametrize("asgi", [False, True])
async def test_what_does_not_verify_is_refused_and_noted(asgi: bool) -> None:
    receiver = FakeReceiver(["x" * 24], now_ms=lambda: NOW)
    outcome = await sending(receiver, asgi=asgi).attempt(JOB, now_ms=NOW)

    assert (outcome.verdict, outcome.status) == (Verdict.FAILED, 401)
    assert (receiver.deliveries, receiver.rejected) == ([], ["webhook-signature fits none of the active secrets"])


def at_once(delivery: Delivery) -> Answer:
    return Answer(409, {"tocsin-declined": "1"}, b"busy with it")


async def later(delivery: Delivery) -> Answer:
    await asyncio.sleep(0)
    return at_once(delivery)


@pytest.mark.anyio
@pytest.mark.parametrize("asgi", [False, True])
@pytest.mark.parametrize("answer", [at_once, later])
async def test_the_receiver_answers_as_it_is_told(
    asgi: bool, answer: Callable[[Delivery], Answer | Awaitable[Answer]]
) -> None:
    receiver = FakeReceiver([SECRET], now_ms=lambda: NOW, answer=answer)

    assert (await sending(receiver, asgi=asgi).attempt(JOB, now_ms=NOW)).verdict is Verdict.DECLINED


@pytest.mark.anyio
async def test_the_receiver_can_be_served() -> None:
    """Lifespan messages are answered, and a body in pieces is put together."""
    receiver = FakeReceiver([SECRET], now_ms=lambda: NOW)
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    def receiving(*messages: Message) -> Callable[[], Awaitable[Message]]:
        left = iter(messages)

        async def receive() -> Message:
            return next(left)

        return receive

    await receiver.asgi(
        {"type": "lifespan"}, receiving({"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}), send
    )
    pieces = receiving(
        {"type": "http.request", "body": b"[", "more_body": True}, {"type": "http.request", "body": b"]"}
    )
    await receiver.asgi({"type": "http", "headers": [(b"a", b"b")]}, pieces, send)

    assert [message["type"] for message in sent] == [
        "lifespan.startup.complete",
        "lifespan.shutdown.complete",
        "http.response.start",
        "http.response.body",
    ]
    assert sent[2]["status"] == 401
