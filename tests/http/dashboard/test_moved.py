"""Pages of an instance that moves, and of one that has moved to another place."""

from __future__ import annotations

from html import unescape

import pytest

from tests.http.dashboard.site import HOUR_MS, Site

pytestmark = pytest.mark.anyio


async def test_an_instance_that_has_moved_says_so_on_every_page_and_refuses_acts(site: Site) -> None:
    await site.ask("POST", "/schedule", id="x", functionPath="p", delayMs=HOUR_MS)
    seal = {"move": "m", "to": "https://other.example"}
    await site.ask("PUT", "/seal", **seal)
    assert "is moving to https://other.example" in (await site.reader.visit("/ui/jobs")).text
    await site.ask("PUT", "/seal", **seal, closed=True)

    for path in ("", "/jobs", "/jobs/x", "/instances", "/schedules", "/queues", "/pools", "/dead", "/audit"):
        page = await site.admin.visit(f"/ui{path}")
        assert 'id="moved"' in page.text, path
        assert "has moved to https://other.example" in page.text
    assert ">moved</span>" in (await site.admin.visit("/ui/instances")).text
    asked = await site.admin.visit("/ui/jobs/x/cancel")
    sent = await site.admin.send("/ui/jobs/x/cancel", await site.admin.visit("/i/other/ui/jobs"))
    for answer in (asked, sent):
        assert answer.status_code == 409
        assert "has moved to https://other.example: use it there" in unescape(answer.text)
    assert (await site.ask("GET", "/get?id=x"))["record"]["id"] == "x"
    log = unescape((await site.reader.visit("/ui/audit")).text)
    assert "sealed the instance, which moves" in log
    assert "began to move the instance" in log
