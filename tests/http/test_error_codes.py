"""Codes of errors: the classes, the table, the page and the OpenAPI document say the same of each."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.http.http_client import HttpClient, open_http_client, refused
from tests.http.openapi_document import operations
from tocsin import errors
from tocsin.actors.http import errors as faults
from tocsin.actors.http.error_catalog import CODES, RETRY_AFTER_S, Code
from tocsin.actors.http.openapi import document
from tocsin.actors.http.openapi_schemas import error_name
from tocsin.actors.scheduler.client.changes import LocalChanges
from tocsin.errors import ActorBrokenError, JobFailedError, SettingsError, TocsinError, UnreachableError

pytestmark = pytest.mark.anyio

PAGE = (Path(__file__).parents[2] / "docs" / "errors.md").read_text("utf-8")
ROW = re.compile(r"^\| `([A-Z_]+)` \| (\d+) \| (.*) \| (.*) \| (.*) \|$", re.MULTILINE)

ELSEWHERE = (SettingsError, JobFailedError)
"""Settings are refused when a host or an app is built; a job that failed is an answer with a state."""


def classes() -> Iterator[type[TocsinError]]:
    for module in (errors, faults):
        for one in vars(module).values():
            if isinstance(one, type) and issubclass(one, TocsinError) and one not in ELSEWHERE:
                yield one


def test_every_class_has_a_code_of_the_table_with_its_status() -> None:
    in_python_only = (UnreachableError, errors.NotAllAcceptedError, errors.NotAnsweredYetError)
    answered = [one for one in classes() if one not in in_python_only]
    assert {(one.code, one.status) for one in answered} == {(code.code, code.status) for code in CODES.values()}


def test_the_page_is_the_table() -> None:
    assert ROW.findall(PAGE) == [
        (code.code, str(code.status), code.when, code.again, code.do) for code in CODES.values()
    ]


def test_the_page_says_when_retry_after_comes() -> None:
    for status, seconds in RETRY_AFTER_S.items():
        assert f"{status} with `Retry-After: {seconds}`" in PAGE


@pytest.mark.parametrize("code", CODES.values(), ids=lambda code: code.code)
def test_the_document_has_every_code_and_where_it_comes(code: Code) -> None:
    whole = document(tokens=True)
    schema = whole["components"]["schemas"][error_name(code.code)]
    assert schema["properties"]["code"] == {"const": code.code}
    assert set(code.example) - {"code", "message"} <= set(code.details)
    codes = {
        named
        for *_, one in operations(whole)
        for answer in one["responses"].values()
        if "$ref" in answer
        for named in answer["$ref"].rpartition("/")[2].split("-")[1:]
    }
    # By its nature no operation is answered so: it is the answer to a method that is none.
    assert (code.code in codes) == (code.code != "METHOD_NOT_ALLOWED")


@pytest.mark.parametrize("code", [code for code in CODES.values() if code.details], ids=lambda code: code.code)
def test_details_are_those_that_errors_are_raised_with(code: Code) -> None:
    """What stands in the table is in the example, or is told to come only sometimes."""
    assert set(code.example) - {"code", "message"} == set(code.details) or code.code == "CONFLICT"


def test_an_unreachable_server_has_a_code_of_its_own_and_its_address_is_for_developers_only() -> None:
    error = UnreachableError("http://10.1.2.3:8321 did not answer: ConnectError: refused")
    assert (error.code, error.status) == ("UNREACHABLE", 503)
    assert "10.1.2.3" in str(error)
    envelope = error.to_dict()["error"]
    assert envelope["code"] == "UNREACHABLE"
    assert "10.1.2.3" not in json.dumps(envelope)
    assert "may have been done" in envelope["message"]
    error.sent = False
    assert "was not done" in error.to_dict()["error"]["message"]
    assert f"code `{error.code}`, status {error.status}" in PAGE
    assert error.code not in {each for each, *_ in ROW.findall(PAGE)}


def test_jobs_that_were_not_all_accepted_have_a_code_of_their_own() -> None:
    error = errors.NotAllAcceptedError(["a"], [("b", errors.ConflictError("taken"))])

    assert error.to_dict()["error"]["code"] == "NOT_ALL_ACCEPTED"
    assert f"code `{error.code}`, status {error.status}" in PAGE
    assert error.code not in {each for each, *_ in ROW.findall(PAGE)}


# ---- Enough to act on ----------------------------------------------------------------------------


async def test_a_full_instance_says_when_to_come_again() -> None:
    async with open_http_client(max_jobs=1) as http_client:
        await http_client.schedule()
        answer = await http_client.post("/schedule", {"functionPath": "p", "delayMs": 10**7})
        assert refused(answer, 429, "QUOTA_EXCEEDED", "dead ones included")["limit"] == 1
        assert answer.headers["retry-after"] == "30"


async def test_what_broke_an_actor_is_logged_and_told_to_nobody(
    http_client: HttpClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(*_: Any, **__: Any) -> Any:
        raise ActorBrokenError("scheduler/default: KeyError('the password is hush')")

    monkeypatch.setattr(LocalChanges, "cancel", fail)
    answer = await http_client.post("/cancel", {"id": "a"})
    refused(answer, 503, "UNAVAILABLE", "may have been done", "Idempotency-Key")
    assert "hush" not in answer.text
    assert "hush" in caplog.text
    assert answer.headers["retry-after"] == "1"


async def test_an_unknown_route_says_where_the_routes_are(http_client: HttpClient) -> None:
    refused(await http_client.get("/jobs"), 404, "NOT_FOUND", "GET /openapi.json")


@pytest.mark.parametrize("route", ["/why", "/history", "/get"])
@pytest.mark.parametrize(
    ("query", "code", "words"),
    [
        ("", "INVALID_INPUT", "id is missing"),
        ("?id=", "INVALID_INPUT", "id is missing"),
        ("?id=a&id=a", "INVALID_INPUT", "id is given more than once"),
        ("?id=a&verbose=1", "INVALID_INPUT", "unknown query parameter 'verbose'"),
        ("?ID=a", "INVALID_INPUT", "unknown query parameter 'ID'"),
        ("?id=a%20b", "INVALID_SCHEDULE_ID", "id must match"),
        ("?id=-a", "INVALID_SCHEDULE_ID", "id must match"),
        ("?id=a%0A", "INVALID_SCHEDULE_ID", "id must match"),
        ("?id=%00", "INVALID_SCHEDULE_ID", "id must match"),
        ("?id=" + "x" * 65, "INVALID_SCHEDULE_ID", "1 to 64 characters"),
        ("?id=__system", "INVALID_SCHEDULE_ID", "start with __"),
        ("?id=%FF", "INVALID_INPUT", "percent-encoded UTF-8"),
        ("?id=%ED%A0%80", "INVALID_INPUT", "unpaired surrogate"),
    ],
)
async def test_what_reads_one_job_refuses_a_wrong_query(
    http_client: HttpClient, route: str, query: str, code: str, words: str
) -> None:
    refused(await http_client.get(route + query), 400, code, words)
    refused(await http_client.get(f"/i/never{route}{query}"), 400, code, words)


async def test_what_reads_one_job_knows_no_job_that_never_was(http_client: HttpClient) -> None:
    [reason] = (await http_client.get("/i/never/why?id=a")).json()["reasons"]
    assert reason["code"] == "NOT_FOUND"
    assert (await http_client.get("/i/never/history?id=a")).json() == {"id": "a", "attempts": []}
    assert not await http_client.host.runtime.provider.exists("scheduler/never")


def test_examples_are_json() -> None:
    for code in CODES.values():
        assert json.loads(json.dumps(dict(code.example)))["code"] == code.code
