"""A standby of a test's PostgreSQL: a copy that follows it, in time or behind, and may take its place."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.postgres import Postgres, free_port, postgres_folder
from tests.waiting import wait_until

NAME = "standby"


@contextmanager
def standby_of(primary: Postgres, through: int | None = None) -> Iterator[Postgres]:
    """A standby that follows; with its records coming `through` this port, if one is given."""
    assert primary.port
    with postgres_folder() as folder:
        source = f"host=127.0.0.1 port={primary.port} user=postgres application_name={NAME}"
        primary.run("pg_basebackup", "-D", folder / "data", "-d", source, "-X", "stream", "-c", "fast", "--no-sync")
        conninfo = source.replace(f"port={primary.port}", f"port={through or primary.port}")
        settings = (*primary.settings, f"primary_conninfo={conninfo}")
        standby = Postgres(folder, primary.programs, settings, free_port())
        (folder / "data" / "standby.signal").touch()
        standby.start()
        try:
            wait_until(lambda: follows(primary))
            yield standby
        finally:
            standby.crash()


def follows(primary: Postgres) -> bool:
    return primary.sql(f"SELECT count(*) FROM pg_stat_replication WHERE application_name = '{NAME}'") == "1"


def wait_for_it(primary: Postgres) -> None:
    """From now on no commit is answered before the standby has it."""
    primary.sql(f"ALTER SYSTEM SET synchronous_standby_names = '{NAME}'")
    primary.sql("SELECT pg_reload_conf()")
    state = f"SELECT sync_state FROM pg_stat_replication WHERE application_name = '{NAME}'"
    wait_until(lambda: primary.sql(state) == "sync")


def promote(standby: Postgres) -> None:
    """Make it the primary. Nobody is told."""
    assert standby.sql("SELECT pg_promote()") == "t"
