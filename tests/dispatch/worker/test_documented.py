"""The web app of docs/workers.md, run as it is written."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

PAGE: Final = (Path(__file__).parents[3] / "docs" / "workers.md").read_text("utf-8")
APP: Final = re.findall(r"^```python\n(.*?)^```", PAGE.partition("### In a web app\n")[2], re.MULTILINE | re.DOTALL)[0]


@pytest.mark.anyio
async def test_an_app_with_a_host_and_a_worker_answers_and_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "app"}
    exec(compile(APP, "docs/workers.md", "exec"), names)
    app = names["app"]

    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(base_url="http://app", transport=httpx.ASGITransport(app)) as http,
    ):
        id = (await http.post("/reports", params={"pages": 3})).json()
        assert (await http.get(f"/reports/{id}")).json() == {"pages": 3}
    assert (tmp_path / "jobs.db").exists()
