"""A host lets in those that know the store's secret, and takes no frame that was changed, doubled or left out."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from tests.actors.cluster.city import City, Street
from tests.actors.cluster.test_routing import in_city
from tocsin.actors.cluster.network import TcpNetwork, this_machine
from tocsin.actors.cluster.seals import PEER_VERSION, Challenge, PeerHello, PeerWelcome, Seal, Session
from tocsin.actors.sharing.frames import BrokenLink, Kind
from tocsin.actors.sharing.wire import Wire
from tocsin.errors import SettingsError


def test_a_host_with_another_secret_is_not_let_in_and_its_calls_go_by_mail() -> None:
    async def main(city: City) -> None:
        async with city.two() as (a, b):
            city.secrets["b"] = b"another secret"
            assert await b.scheduler("t").run_after("1h", "a:b", id="one") == "one"
            assert len(city.done) == 1
            assert not a.cluster.door.links or not any(link._known for link in a.cluster.door.links)

    in_city(main)


def test_a_host_of_a_copy_of_the_store_is_not_let_in_although_it_knows_the_secret() -> None:
    async def main(city: City) -> None:
        async with city.two() as (a, b):
            city.of_a_copy.add("b")
            assert await b.scheduler("t").run_after("1h", "a:b", id="one") == "one"
            assert len(city.done) == 1  # by mail, which its own store keeps
            assert not any(link._known for link in a.cluster.door.links)

    in_city(main)


def test_a_stranger_at_the_address_of_a_host_learns_nothing_and_is_believed_nothing() -> None:
    async def main(city: City) -> None:
        async with city.two() as (_, b):
            city.secrets["a"] = b"what a stranger made up"
            assert await b.scheduler("t").run_after("1h", "a:b", id="one") == "one"
            assert not any(b"a:b" in data for of, _, data in city.streets.passed if of == "b")

    in_city(main)


class Intruder(Wire):
    """Opens a link without knowing the secret, and goes on whatever it hears."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[int] = []

    def received(self, kind: int, number: int, body: bytes) -> None:
        self.heard.append(kind)
        if kind == Kind.CHALLENGE:
            self.send(Kind.HELLO, 0, msgspec.json.encode(PeerHello(PEER_VERSION, "b", "n", "0" * 64)))
            self.send(Kind.CALL, 1, b"[]")

    def lost(self) -> None: ...


def test_who_opens_a_link_without_the_secret_hears_nothing_of_the_host() -> None:
    async def main(city: City) -> None:
        async with city.two():
            intruder = await Street(city.streets, "x").connect("street:a", Intruder)
            await city.clock.sleep(1)
            assert intruder.heard == [Kind.CHALLENGE, Kind.TURNED_AWAY] and intruder.is_lost

    in_city(main)


class Stranger(Wire):
    """Has taken the address of a host, and lets everybody in."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[int] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.send(Kind.CHALLENGE, 0, msgspec.json.encode(Challenge(PEER_VERSION, "a", "n")))

    def received(self, kind: int, number: int, body: bytes) -> None:
        self.heard.append(kind)
        self.send(Kind.WELCOME, 0, msgspec.json.encode(PeerWelcome("0" * 64)))

    def lost(self) -> None: ...


def test_who_lets_everybody_in_without_the_secret_is_told_nothing() -> None:
    async def main(city: City) -> None:
        async with city.two() as (_, b):
            strangers: list[Stranger] = []

            def accept(_: object) -> Stranger:
                strangers.append(Stranger())
                return strangers[-1]

            city.streets.doors["a"] = accept
            assert await b.scheduler("t").run_after("1h", "a:b", id="one") == "one"
            assert [one.heard for one in strangers] == [[Kind.HELLO]] and len(city.done) == 1

    in_city(main)


def test_a_frame_that_was_changed_on_its_way_ends_the_link_and_the_call_is_made_again() -> None:
    async def main(city: City) -> None:
        async with city.two() as (_, b):
            t = b.scheduler("t")
            await t.run_after("1h", "a:b", id="one")
            tampered: list[bytes] = []

            def change(data: bytes) -> bytes:
                if b"jobs.submit" not in data or tampered:
                    return data
                tampered.append(data)
                return data.replace(b"a:b", b"a:c")

            city.streets.changed = change
            await t.run_after("1h", "a:b", id="two")
            assert tampered
            found = await t.get("two")
            assert found is not None and found.function_path == "a:b"

    in_city(main)


def test_frames_carry_seals_of_their_place_and_their_end() -> None:
    session = Session(b"secret", Challenge(1, "a", "n"), "b", "m")
    writes, reads = session.seal_of_caller(), session.seal_of_caller()
    first, second = writes.put(2, 1, b"one"), writes.put(2, 2, b"two")
    assert reads.take(2, 1, first) == b"one"
    for wrong in (first, second[:-1] + b"?", b"", b"two" + bytes(16)):
        with pytest.raises(BrokenLink, match="seal"):
            Seal(session._derive(b"caller writes")).take(2, 2, wrong)
    with pytest.raises(BrokenLink):
        reads.take(2, 1, first)  # again
    assert session.seal_of_called().put(2, 1, b"one") != first
    assert Session(b"other", Challenge(1, "a", "n"), "b", "m").proof_of_caller != session.proof_of_caller


class Says(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.write(b"hello")  # type: ignore[attr-defined]
        transport.close()


class Hears(asyncio.Protocol):
    def __init__(self) -> None:
        self.heard: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.heard.set_result(data)
        self.transport.close()


def test_hosts_of_one_machine_meet_on_loopback_and_others_do_not_try() -> None:
    async def main() -> None:
        network = TcpNetwork()
        url = await network.listen(lambda _: Says())
        try:
            assert url is not None and url.endswith(this_machine())
            assert network.may_reach(url)
            assert not network.may_reach(url + "-of-another-start")
            assert network.may_reach("tcp://10.0.0.5:7411")
            assert await (await network.connect(url, Hears)).heard == b"hello"
        finally:
            await network.close()
        with pytest.raises(OSError):
            await network.connect(url, Hears)

    asyncio.run(main())


def test_a_host_with_an_address_tells_it_to_all() -> None:
    async def main() -> None:
        network = TcpNetwork("127.0.0.1:0")
        url = await network.listen(lambda _: Says())
        try:
            assert url is not None and url.count("/") == 2 and not url.endswith(":0")
            assert await (await network.connect(url, Hears)).heard == b"hello"
        finally:
            await network.close()

    asyncio.run(main())


@pytest.mark.parametrize("wrong", ["10.0.0.5", "http://a:1", "0.0.0.0:7411", "[::]:7411", ":1", "a:b:c", "a:1/x"])
def test_an_address_that_others_cannot_call_is_refused(wrong: str) -> None:
    with pytest.raises(SettingsError, match="address"):
        TcpNetwork(wrong)
