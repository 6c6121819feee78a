"""Debounce and throttle over HTTP: what is answered, shown, and said of a refusal."""

from __future__ import annotations

import pytest

from tests.http.http_client import client_of, open_http_client, refused
from tocsin.actors.runtime.clock import SystemClock

pytestmark = pytest.mark.anyio

DEBOUNCED = {"id": "x", "functionPath": "p", "debounceMs": 60_000, "maxWaitMs": 90_000, "onConflict": "replace"}
THROTTLED = {"id": "y", "functionPath": "p", "delayMs": 0, "queue": "q", "throttleMs": 60_000}
KEY = {"idempotency-key": "k"}


class SteppedClock(SystemClock):
    """The real clock, and a step."""

    ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms


async def test_calls_put_a_job_off_and_get_and_why_say_until_when() -> None:
    clock = SteppedClock()
    async with open_http_client(clock=clock) as http_client:
        first = (await http_client.post("/schedule", DEBOUNCED)).json()
        clock.ahead_ms = 50_000
        second = (await http_client.post("/schedule", {**DEBOUNCED, "args": [2]})).json()
        record = (await http_client.client.get("/get", params={"id": "x"})).json()["record"]
        [due, put_off] = (await http_client.client.get("/why", params={"id": "x"})).json()["reasons"]

        assert first["created"] and (second["created"], second["state"]) == (False, "pending")
        began = first["scheduledFor"] - 60_000
        assert second["scheduledFor"] == record["scheduledFor"] == began + 90_000
        assert record["putOff"] == {"firstAt": began, "until": began + 90_000} and record["args"] == [2]
        assert (due["code"], put_off["code"], put_off["at"]) == ("NOT_DUE", "PUT_OFF", began + 90_000)


async def test_a_refusal_says_when_the_next_job_is_taken_and_is_not_kept_under_a_key() -> None:
    clock = SteppedClock()
    async with open_http_client(clock=clock) as http_client:
        await http_client.post("/schedule", THROTTLED)
        answer = await http_client.post("/schedule", THROTTLED, headers=KEY)
        told = refused(answer, 429, "THROTTLED", "has had its job of 1m: the next one is accepted in")
        assert 59_000 <= told["retryAfterMs"] <= 60_000 and answer.headers["retry-after"] == "60"
        [one] = (await http_client.post("/schedule/batch", {"jobs": [THROTTLED]})).json()["results"]
        assert one["error"]["code"] == "THROTTLED"
        merged = (await http_client.post("/schedule", {**THROTTLED, "onThrottle": "merge"})).json()
        assert (merged["created"], merged["state"]) == (False, "pending")
        await http_client.post("/cancel", {"id": "y"})
        clock.ahead_ms = 61_000
        assert (await http_client.post("/schedule", THROTTLED, headers=KEY)).json()["created"]


async def test_what_does_not_go_together_is_refused_by_its_name_here() -> None:
    async with open_http_client() as http_client, client_of(http_client.host.asgi(insecure=True)):
        wrong = {
            "give exactly one of scheduledFor, delayMs and debounceMs": {**DEBOUNCED, "delayMs": 0},
            "debounceMs replaces the job of its id: onConflict must be replace": {**DEBOUNCED, "onConflict": "keep"},
            "give id as well": {**DEBOUNCED, "id": None},
            "maxWaitMs bounds a debounce": {**THROTTLED, "maxWaitMs": 5},
            "onThrottle must be one of refuse, merge, not 'drop'": {**THROTTLED, "onThrottle": "drop"},
            "throttleMs must be 1..2592000000, not 0": {**THROTTLED, "throttleMs": 0},
        }
        for words, body in wrong.items():
            refused(await http_client.post("/schedule", body), 400, "INVALID_INPUT", words)
