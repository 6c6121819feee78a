"""POST and GET /workers."""

from __future__ import annotations

from typing import Any

import pytest

from tests.http.http_client import open_http_client, refused
from tocsin.actors.http.examples import EXAMPLES

pytestmark = pytest.mark.anyio
SAID: dict[str, Any] = EXAMPLES["announce"].request


async def test_a_worker_that_spoke_is_shown_in_its_instance_as_it_said_it_is() -> None:
    async with open_http_client() as http_client:
        assert (await http_client.post("/i/t/workers", SAID)).json() == {}
        [shown] = (await http_client.get("/i/t/workers")).json()["workers"]
        assert {**shown, "heartbeatAt": SAID["heartbeatAt"]} == SAID
        assert shown["heartbeatAt"] != SAID["heartbeatAt"]
        assert (await http_client.get("/workers")).json() == {"workers": [], "truncated": False}


async def test_whole_numbers_written_as_fractions_are_taken_and_pages_go_on() -> None:
    async with open_http_client() as http_client:
        for n in range(3):
            answer = await http_client.post("/workers", {**SAID, "id": f"w{n}", "concurrency": 8.0, "jobs": None})
            assert answer.status_code == 200, answer.text
        page = (await http_client.get("/workers", params={"limit": 2})).json()
        rest = (await http_client.get("/workers", params={"cursor": page["cursor"]})).json()
        assert [one["id"] for one in [*page["workers"], *rest["workers"]]] == ["w0", "w1", "w2"]


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ({"id": None}, "id is missing"),
        ({"status": None}, "status is missing"),
        ({"startedAt": None}, "startedAt is missing"),
        ({"colour": 1}, "unknown field 'colour'"),
        ({"jobs": [{"colour": 1}]}, "unknown field 'jobs[0].colour'"),
        ({"jobs": [{"id": "a"}]}, "jobs[0].attempt"),
        ({"jobs": 5}, "jobs must be"),
        ({"pid": "x"}, "pid"),
        ({"name": 5}, "name must be a text"),
        ({"queues": {}}, "queues"),
    ],
)
async def test_what_cannot_be_is_refused_by_name(members: dict[str, Any], words: str) -> None:
    async with open_http_client() as http_client:
        refused(await http_client.post("/workers", {**SAID, **members}), 400, "INVALID_INPUT", words)
        refused(await http_client.get("/workers", params={"limit": 0}), 400, "INVALID_INPUT", "limit")
