"""Every option at every door: who gives a wrong value reads the name that they gave it under."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import click.testing
import httpx
import pytest

from tests.http.http_client import client_of, open_host
from tocsin import Job, RemoteScheduler, Retry
from tocsin.cli import main
from tocsin.dispatch.words import reworded
from tocsin.errors import RequestError

from .processes import tocsin_serve

pytestmark = pytest.mark.anyio


class Wrong(NamedTuple):
    """A value that cannot be, as each door takes it; and the name that its error must begin with."""

    python: Mapping[str, Any]
    json: Mapping[str, Any]
    typed: str
    says: tuple[str, str, str]


def same(name: str, value: Any, *, typed: str | None = None, needs: Mapping[str, Any] | None = None) -> Wrong:
    """Of an option whose name differs by its humps and dashes only."""
    humps = "".join(part.title() if n else part for n, part in enumerate(name.split("_")))
    flag = f"--{name.replace('_', '-')}"
    more = dict(needs or {})
    others = "".join(f" --{key.replace('_', '-')} {shlex.quote(str(one))}" for key, one in more.items())
    return Wrong(
        {name: value, **more}, {humps: value, **more}, f"{typed or f'{flag}={shlex.quote(str(value))}'}{others}",
        (name, humps, flag),
    )  # fmt: skip


def of_retry(name: str, value: Any, typed: str) -> Wrong:
    humps = "".join(part.title() if n else part for n, part in enumerate(name.split("_")))
    flag = typed.split("=")[0]
    return Wrong({"retry": name}, {"retry": {humps: value}}, typed, (f"retry.{name}", f"retry.{humps}", flag))


SHARED = {
    "pool": same("pool", "a b"),
    "max_concurrency": same("max_concurrency", 0, needs={"pool": "p"}),
    "max_concurrency without pool": same("max_concurrency", 3),
    "priority": same("priority", 99),
    "timeout": Wrong({"timeout_ms": 1}, {"timeoutMs": 1}, "--timeout 0.001s", ("timeout_ms", "timeoutMs", "--timeout")),
    "shard_key": same("shard_key", " "),
    "labels": Wrong(
        {"labels": ["a b"]}, {"labels": ["a b"]}, "--label 'a b'", ("labels[0]", "labels[0]", "--label[0]")
    ),
    "queue": same("queue", "a b"),
    "max_retries": of_retry("max_retries", -1, "--max-retries=-1"),
    "base_ms": of_retry("base_ms", 10**15, "--base=999999999999999d"),
    "max_ms": of_retry("max_ms", 10**15, "--max-delay=999999999999999d"),
}
JOBS = {
    **SHARED,
    "jitter": of_retry("jitter", 2, "--jitter=2"),
    "on_conflict": same("on_conflict", "maybe"),
    "expires_at": same("expires_at", 5),
    "keep_result": Wrong(
        {"keep_result": 0.5},
        {"keepResultMs": 500},
        "--keep-result 0.5s",
        ("keep_result", "keepResultMs", "--keep-result"),
    ),
    "id": same("id", "a b"),
    "then": Wrong(
        {"then": [Job("x", options={"timeout_ms": 1})]},
        {"then": [{"functionPath": "x", "timeoutMs": 1}]},
        """--then '{"functionPath": "x", "timeoutMs": 1}'""",
        ("then[0]: timeout_ms", "then[0]: timeoutMs", "--then[0]: timeoutMs"),
    ),
}
SCHEDULES = {
    **SHARED,
    "jitter of retries": of_retry("jitter", 2, "--retry-jitter=2"),
    "grace": Wrong({"grace": 10**9}, {"graceMs": 10**12}, "--grace 99999d", ("grace (in ms)", "graceMs", "--grace")),
    "jitter": Wrong({"jitter": 10**6}, {"jitterMs": 10**9}, "--jitter 99d", ("jitter (in ms)", "jitterMs", "--jitter")),
    "catch_up_limit": same("catch_up_limit", 10**6),
    "misfire": same("misfire", "maybe"),
    "overlap": same("overlap", "maybe"),
    "expires_after": Wrong(
        {"expires_after": 0.5}, {"expiresAfterMs": 500}, "--expires-after 0.5s",
        ("expires_after (in ms)", "expiresAfterMs", "--expires-after"),
    ),
    "every": Wrong({"every": 0.5}, {"everyMs": 500}, "--every 0.5s", ("every (in ms)", "everyMs", "--every")),
}  # fmt: skip
RETRIES: dict[str, Any] = {"max_retries": -1, "base_ms": 10**15, "max_ms": 10**15, "jitter": 2}


def options_of(wrong: Wrong) -> dict[str, Any]:
    """As Python takes them: a `Retry` is made here, and raises."""
    if "retry" in wrong.python:
        name = wrong.python["retry"]
        return {"retry": Retry(**{name: RETRIES[name]})}
    return dict(wrong.python)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with tocsin_serve(
        "--insecure", "--origin-url", "http://127.0.0.1:9", cwd=tmp_path_factory.mktemp("server")
    ) as server:
        yield server.url()


def typed(url: str, line: str) -> str:
    """What a command that must fail says."""
    words = shlex.split(line)
    result = click.testing.CliRunner().invoke(main, words, env={"TOCSIN_URL": url, "COLUMNS": "200"})
    assert result.exit_code in (1, 2), result.output
    return result.stderr.splitlines()[-1].removeprefix("Error: ").removeprefix("Invalid value for '").replace("':", ":")


@pytest.mark.parametrize("option", JOBS)
async def test_a_job_s_option(url: str, option: str, tmp_path: Path) -> None:
    wrong = JOBS[option]
    in_python, in_json, in_words = wrong.says
    async with open_host() as (host, _), client_of(host.asgi(insecure=True)) as client:
        jobs = host.scheduler()
        with pytest.raises(RequestError) as embedded:
            await jobs.run_after(5, "p", **options_of(wrong))
        assert embedded.value.message.startswith(in_python)

        answer = await client.post("/schedule", json={"functionPath": "p", "delayMs": 5, **wrong.json})
        assert answer.json()["error"]["message"].startswith(in_json)
        batch = await client.post("/schedule/batch", json={"jobs": [{"functionPath": "p", "delayMs": 5, **wrong.json}]})
        assert in_json in batch.json()["results"][0]["error"]["message"]

        if "retry" not in wrong.python:  # a wrong one cannot be made
            [refused] = await jobs.submit_many([Job("p", after=5, options=wrong.python)])
            assert isinstance(refused, RequestError) and refused.message.startswith(f"jobs[0]: {in_python}")
            async with RemoteScheduler(
                "http://localhost", transport=httpx.ASGITransport(app=host.asgi(insecure=True))
            ) as remote:
                with pytest.raises(RequestError) as far:
                    await remote.run_after(5, "p", **wrong.python)
            assert far.value.message.startswith(in_python.removesuffix(" (in ms)"))

    assert typed(url, f"schedule p --in 5s {wrong.typed}").startswith(in_words)


@pytest.mark.parametrize("option", SCHEDULES)
async def test_a_schedule_s_option(url: str, option: str) -> None:
    wrong = SCHEDULES[option]
    in_python, in_json, in_words = wrong.says
    rule: dict[str, Any] = {} if option == "every" else {"every": 60}
    async with open_host() as (host, _), client_of(host.asgi(insecure=True)) as client:
        with pytest.raises(RequestError) as embedded:
            await host.scheduler().schedules.put("s", "p", **rule, **options_of(wrong))
        assert embedded.value.message.startswith(in_python)
        if "retry" not in wrong.python:
            with pytest.raises(RequestError) as declared:
                await host.scheduler().schedules.register("o", [("s", {"path": "p", **rule, **wrong.python})])
            assert in_python in declared.value.message

        body = {"functionPath": "p", **({} if option == "every" else {"everyMs": 60_000}), **wrong.json}
        answer = await client.put("/schedules/s", json=body)
        assert answer.json()["error"]["message"].startswith(in_json)

    every = "" if option == "every" else "--every 1m"
    assert typed(url, f"schedules put s p {every} {wrong.typed}").startswith(in_words)


OTHERS = [
    ("reschedule x --in 99999999999d", "--in must be"),
    ("extend x 1-2-a 2h", "DURATION must be"),
    ("pools set p --max-concurrency 99999", "--max-concurrency must be"),
    ("pools set 'a b' --pause", "NAME must be"),
    (
        "dead retry-all --reason foo --yes",
        "--reason must be one of exhausted, refused, blocked, lost, unindexable, damaged",
    ),
    ("dead retry-all --all --rate-per-second 0 --yes", "--rate-per-second must be"),
    ("cancel-all --label 'a b' --yes", "--label must be"),
    ("ls --pool 'a b'", "--pool must be"),
    ("cancel 'a b'", "ID must match"),
    ("schedules trigger s --key ''", "--key must be"),
    ("schedule p --keep-result 30d", "--keep-result must be 1s to 7d, not 30d [INVALID_INPUT]"),
    ("schedule p --timeout 2h", "--timeout must be 1s to 1h, not 2h [INVALID_INPUT]"),
    ("schedules put s p --every 0.5s", "--every must be 1s to "),
    ("extend x 1-2-a 2h", "DURATION must be 1s to 1h, not 2h"),
    ("schedule p --in 99999999999d", "--in must be at most 11574074d, not '99999999999d'"),
    ("cancel-all", "say which: --pool, --label, --path, or --all"),
    ("cancel-all --pool p --all", "give --pool, --label, --path or --all, not both"),
    ("dead retry-all", "say which: --pool, --reason, --path, --since, --ids, or --all"),
    ("schedule p --in 1h --expires-at 2020-01-01T00:00:00Z", "--expires-at must be after the due instant"),
    ("reschedule x", "give --in or --at (--in 0s makes it due now)"),
]


@pytest.mark.parametrize(("line", "says"), OTHERS)
def test_other_commands(url: str, line: str, says: str) -> None:
    assert typed(url, line).startswith(says)


async def test_other_calls_in_python() -> None:
    async with open_host() as (host, _):
        jobs = host.scheduler()
        for call, says in (
            (jobs.cancel_all(), "give pool, label or path, or all=True and none of them"),
            (jobs.dead_retry_all(), "give pool, reason, path, since or ids, or all=True and none of them"),
            (jobs.dead_retry_all(all=True, rate_per_second=0), "rate_per_second must be"),
            (
                jobs.dead_retry_all(reason="foo"),
                "reason must be one of exhausted, refused, blocked, lost, unindexable, damaged",
            ),
            (jobs.extend("x", "1-2-a", 1), "lease_ms must be"),
            (jobs.complete("x", "1-2-a", ok=False, delay=10**12), "delay must be at most"),
            (jobs.claim("q", wait=10**6), "wait (in ms) must be"),
            (jobs.set_pool("p", max_concurrency=-1), "max_concurrency must be"),
            (jobs.schedules.trigger("s", ""), "request_key must be"),
            (jobs.run_after(5, None), "give exactly one of path and workflow"),
        ):
            with pytest.raises(RequestError) as error:
                await call
            assert error.value.message.startswith(says)


def test_what_a_message_quotes_stays_as_it_was() -> None:
    words = {"maxConcurrency": "--max-concurrency", "id": "--id", "pool": "--pool"}
    for message, said in (
        ("id 'maxConcurrency' is taken", "id 'maxConcurrency' is taken"),
        ("id must match [a-z], not 'id must'", "--id must match [a-z], not 'id must'"),
        ("""pool must be so, not "it's maxConcurrency" """, """--pool must be so, not "it's maxConcurrency" """),
        ("maxConcurrency is the cap of a pool: give pool as well",
         "--max-concurrency is the cap of a pool: give --pool as well"),
        ("maxConcurrencyOf is another, x.maxConcurrency too", "maxConcurrencyOf is another, x.maxConcurrency too"),
    ):  # fmt: skip
        assert reworded(message, words) == said


# ---- Plain English -------------------------------------------------------------------------------


def run(url: str, line: str, code: int = 0) -> click.testing.Result:
    result = click.testing.CliRunner().invoke(main, shlex.split(line), env={"TOCSIN_URL": url, "COLUMNS": "200"})
    assert result.exit_code == code, result.output
    return result


def test_a_pool_that_was_made_is_said_to_be_new(url: str) -> None:
    assert "made pool typo-1: no job has named it yet" in run(url, "pools set typo-1 --max-concurrency 3").stderr
    assert run(url, "pools set typo-1 --pause").stderr == "changed pool typo-1\n"
    run(url, "schedule p --in 1h --pool used-1")
    assert run(url, "pools set used-1 --max-concurrency 3").stderr == "changed pool used-1\n"
    assert json.loads(run(url, "pools set typo-2 --pause --json").stdout)["created"] is True
    assert "created" not in json.loads(run(url, "pools show typo-2 --json").stdout)


def test_a_pool_that_nobody_knows_is_said_not_to_be_there(url: str) -> None:
    for line in ("pools show nopool", "pools show nopool --json"):
        refused = run(url, line, 1)
        assert refused.stdout == "" and "there is no pool 'nopool' in default" in refused.stderr
    run(url, "schedule p --in 1h --pool named-by-a-job")
    assert "named-by-a-job" in run(url, "pools show named-by-a-job").stdout


def test_an_instance_that_is_not_there_is_not_said_to_be_removed(url: str) -> None:
    assert run(url, "instances rm tenant-b --yes", 1).stderr == (
        "Error: there is no instance 'tenant-b': nothing was removed\n"
    )
    run(url, "schedule p --in 1h --instance tenant-c")
    assert run(url, "instances rm tenant-c --yes").stderr.startswith("removed tenant-c: 1 job, ")
    assert "there is no instance 'tenant-c'" in run(url, "instances rm tenant-c --yes", 1).stderr


def test_what_is_due_in_a_second_is_not_due_now(url: str) -> None:
    assert run(url, "schedule p --in 1s").stderr.startswith("due in 1s, at ")
    assert run(url, "schedule p").stderr.startswith("due now, at ")


def test_what_is_left_is_said_in_plain_words(url: str) -> None:
    assert run(url, "pending hello:", 1).stderr == "no job whose path starts with 'hello:' is left in default\n"
    run(url, "schedule greet:all --in 1h")
    assert run(url, "pending greet:").stderr == "1 job whose path starts with 'greet:' is left\n"
