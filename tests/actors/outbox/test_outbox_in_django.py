"""Django's way with the outbox, as docs/outbox.md shows it: an entry, a migration, and the drain as a command."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from scripts.site.markdown import blocks
from tests.docs.pages import ROOT

SETUP = """
import sys, types
import django
from django.conf import settings

settings.configure(
    SECRET_KEY="of a test",
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": sys.argv[1], "ATOMIC_REQUESTS": True}},
)
django.setup()
"""
SHOP = """
import json
import shop, migration, drain
from django.db import connection, transaction
from django.db.migrations.state import ProjectState
from tocsin.testing import SyncLab

with connection.schema_editor() as editor:
    migration.Migration("0002", "shop").apply(ProjectState(), editor)


def rows():
    with connection.cursor() as cursor:
        return cursor.execute("SELECT id FROM tocsin_outbox ORDER BY id").fetchall()


def remove(entry):
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(DELETE, [entry.values["id"]])
        return cursor.rowcount


with SyncLab() as t:
    kept = shop.place_order(1)
    try:
        with transaction.atomic():
            shop.place_order(2)
            raise RuntimeError
    except RuntimeError:
        pass
    early = shop.outbox.run_after("5m", "orders:confirm", {"order": 3})
    shop.write(early)
    cancelled = t.scheduler("shop").cancel(early.id).cancelled
    before, removed, after = rows(), remove(early), rows()
    t.run(drain.Command().drain(True, sys.argv[1]))
    late = remove(types.SimpleNamespace(values={"id": kept}))
    scheduled = [(one.id, one.args) for one in t.scheduled()]

print(json.dumps({
    "early": [early.id == early.values["id"], cancelled, [one for one, in before] == [kept, early.id]],
    "removed": removed, "left": len(after), "late": late, "same": [scheduled[0][0] == kept, len(scheduled)],
    "args": scheduled[0][1],
}))
"""


def test_a_job_of_a_django_transaction_is_brought_by_the_command_and_a_deleted_row_is_not(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "outbox.md").read_text("utf-8")
    shown = [one.text for one in blocks(page) if one.mark == ("run by", "tests/actors/outbox/test_outbox_in_django.py")]
    for name, text in zip(("shop", "migration", "drain"), shown, strict=True):
        (tmp_path / f"{name}.py").write_text(text)
    assert "DELETE FROM tocsin_outbox WHERE id = ... AND batch\n  IS NULL" in page
    delete = 'DELETE = "DELETE FROM tocsin_outbox WHERE id = %s AND batch IS NULL"\n'
    (tmp_path / "main.py").write_text(SETUP + delete + SHOP)

    done = subprocess.run(
        [sys.executable, "main.py", "app.db"], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "early": [True, False, True], "removed": 1, "left": 1, "late": 0, "same": [True, 1], "args": {"order": 1},
    }  # fmt: skip
    assert "1 rows" in done.stdout
