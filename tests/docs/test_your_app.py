"""The modules of docs/test-your-app.md, saved as the page says, pass."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from scripts.site.markdown import blocks

from .pages import ROOT

PAGE = ROOT / "docs" / "test-your-app.md"


def test_the_tests_of_the_page_pass(tmp_path: Path) -> None:
    shown = [one for one in blocks(PAGE.read_text("utf-8")) if one.mark is not None and one.mark[0] == "run by"]
    modules = {block.text.partition("\n")[0]: block for block in shown}
    for name, block in modules.items():
        found = re.fullmatch(r"# (\w+\.py)", name)
        assert found, f"line {block.line}: a module begins with its name"
        (tmp_path / found[1]).write_text(block.text)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", "-o", "asyncio_default_fixture_loop_scope=function"],
        cwd=tmp_path, capture_output=True, text=True, timeout=120,
        env={name: value for name, value in os.environ.items() if not name.startswith("TOCSIN_")},
    )  # fmt: skip

    assert (done.returncode, "12 passed" in done.stdout) == (0, True), done.stdout + done.stderr
    assert not list(tmp_path.glob("*.db")), "no store is made where the app is"
