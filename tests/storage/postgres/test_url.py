"""What the URL of a PostgreSQL store says, and what is never shown of it."""

from __future__ import annotations

import pytest

from tocsin.errors import SettingsError
from tocsin.storage.ownership.provider import OwnedProvider
from tocsin.storage.postgres.address import CONNECTIONS, read_url
from tocsin.storage.postgres.engine import PostgresEngine
from tocsin.storage.urls import open_provider

SECRET = "geheim"


def test_a_url_names_servers_database_and_schema() -> None:
    address = read_url(f"postgresql://app:{SECRET}@db1:5433,[::1],db3/jobs?schema=eu&sslmode=require&connections=5")

    assert address.hosts == (("db1", 5433), ("::1", 5432), ("db3", 5432))
    assert (address.schema, address.connections) == ("eu", 5)
    assert address.place == "postgresql://db1:5433,[::1]:5432,db3:5432/jobs?schema=eu"
    assert address.dsn == f"postgresql://app:{SECRET}@db1:5433,[::1],db3/jobs?sslmode=require"


@pytest.mark.parametrize(("wrong", "meant"), [("shema", "schema"), ("conections", "connections")])
def test_a_setting_that_is_nearly_one_of_ours_is_refused_by_the_name_that_was_meant(wrong: str, meant: str) -> None:
    with pytest.raises(SettingsError, match=f"unknown setting '{wrong}' .* did you mean {meant}"):
        read_url(f"postgresql:///jobs?{wrong}=5")
    assert read_url("postgresql:///jobs?sslmode=require&statement_timeout=5").dsn.endswith(
        "?sslmode=require&statement_timeout=5"
    )


def test_a_url_may_say_nothing_but_the_database() -> None:
    address = read_url("postgresql:///jobs")

    assert (address.hosts, address.schema, address.connections) == ((), "tocsin", CONNECTIONS)
    assert (address.dsn, address.place) == ("postgresql:///jobs", "postgresql:///jobs")


def test_a_url_may_say_how_long_a_lease_lasts() -> None:
    usual, given = (read_url(f"postgresql:///jobs{query}").timing for query in ("", "?ttl=4&margin=0.5&schema=x"))
    provider = open_provider("postgresql:///jobs?ttl=4")

    assert (usual.ttl_s, usual.beat_s, usual.margin_s) == (10, 3, 2)
    assert (given.ttl_s, given.beat_s, given.margin_s) == (4, 1.2, 0.5)
    assert read_url("postgresql:///jobs?ttl=4").dsn == "postgresql:///jobs"
    assert isinstance(provider, OwnedProvider) and provider.timing.ttl_s == 4


@pytest.mark.parametrize(
    ("url", "hosts"),
    [
        ("postgresql:///jobs?host=/run/pg&port=5499", (("/run/pg", 5499),)),
        ("postgresql://u@%2Frun%2Fpg/jobs", (("/run/pg", 5432),)),
        ("postgresql:///jobs?host=one,two&port=1,2", (("one", 1), ("two", 2))),
        ("postgres://one,two/jobs?port=7", (("one", 7), ("two", 7))),
    ],
)
def test_servers_stand_in_the_place_or_behind_it(url: str, hosts: object) -> None:
    assert read_url(url).hosts == hosts


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://app:{SECRET}@db1:5433,db2/jobs?schema=eu",
        f"postgresql://db1/jobs?user=app&password={SECRET}",
    ],
)
def test_a_password_is_shown_nowhere(url: str) -> None:
    engine = PostgresEngine(url)

    assert SECRET not in f"{engine!r} {engine.place} {read_url(url)!r}"


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://app:{SECRET}/x@db/jobs",
        f"postgresql://app:{SECRET}#x@db/jobs",
        f"postgresql://app:{SECRET}?x@db/jobs",
        f"postgresql://app:x@{SECRET}@db/jobs",
        f"postgresql://app:{SECRET}[x@db/jobs",
        f"postgresql://db:{SECRET}/jobs",
        f"postgresql://db/jobs?password={SECRET}&connections",
        f"mysql://app:{SECRET}@db/jobs",
    ],
)
def test_a_url_that_cannot_be_read_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(SettingsError) as refused:
        read_url(url)

    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    "query",
    [
        "schema=Jobs",
        "schema=pg_jobs",
        "schema=a;b",
        "schema=" + "x" * 31,
        "connections=3",
        "connections=x",
        "ttl=x",
        "beat=0",
    ],
)
def test_a_value_that_cannot_be_is_named_in_the_refusal(query: str) -> None:
    name, _, value = query.partition("=")

    with pytest.raises(SettingsError) as refused:
        read_url(f"postgresql://db/jobs?{query}")

    assert name in str(refused.value) and value[:40] in str(refused.value)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (f"postgresql://app:{SECRET}@127.0.0.1/jobs?sslmode=often", "sslmode"),
        (
            f"postgresql://app:{SECRET}@127.0.0.1/jobs?sslmode=require&ssl_min_protocol_version={SECRET}",
            "ClientConfigurationError",
        ),
    ],
)
async def test_what_the_driver_refuses_is_told_in_its_words_unless_they_hold_the_password(url: str, shown: str) -> None:
    with pytest.raises(SettingsError, match=shown) as refused:
        await PostgresEngine(url).open()

    assert SECRET not in str(refused.value)
