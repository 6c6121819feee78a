"""The examples of the frameworks as their users would test them, in virtual time."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any, Final

import pytest
from asgiref.wsgi import WsgiToAsgi

from tests.examples.example_process import EXAMPLES
from tocsin.cli.keys import new_secret
from tocsin.testing import lab

pytestmark = pytest.mark.anyio
SECRET: Final = new_secret()


@pytest.fixture
def app(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """An example's app, imported anew: it reads its settings when it is imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TOCSIN_SECRETS", SECRET)
    monkeypatch.syspath_prepend(EXAMPLES)
    name = f"reminders_{request.param}"
    monkeypatch.delitem(sys.modules, name, raising=False)
    module = importlib.import_module(name)
    monkeypatch.delitem(sys.modules, name)
    behind: Any = WsgiToAsgi  # it has no types
    return behind(module.create_app()) if request.param == "flask" else module.app


@pytest.mark.parametrize("app", ["starlette", "flask"], indirect=True)
async def test_a_reminder_comes_after_three_days(app: Any, capsys: pytest.CaptureFixture[str]) -> None:
    async with lab(app, secrets=[SECRET]) as t:
        asked = await t.client.post("/users/ada/reminders", json={"text": "tea", "after": "3d"})
        await t.assert_scheduled("reminders:send", after="3d", args={"text": "tea"}, scheduler="ada")
        await t.advance("71h")
        assert (asked.is_success, t.deliveries) == (True, [])
        await t.advance("1h")

        assert [(one.path, one.status) for one in t.deliveries] == [("reminders:send", 200)]
    assert capsys.readouterr().out == "to ada: tea\n"
