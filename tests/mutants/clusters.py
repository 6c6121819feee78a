"""Breakages of what keeps two owners apart on PostgreSQL, which tests on real servers must catch."""

from __future__ import annotations

from tests.mutants.breaking import Mutant

STALE = "tests/processes/test_cluster_stale_owner.py::test_no_write_of_a_stale_owner_comes_through"

CLUSTERS = (
    Mutant(
        "cluster: a commit compares its slots without locking them",
        "storage/postgres/statements.py",
        "WHERE s.owner = $4 ORDER BY s.slot FOR NO KEY UPDATE OF s)",
        "WHERE s.owner = $4 ORDER BY s.slot)",
        tests=(STALE,),
    ),
    Mutant(
        "cluster: a commit of an owner that comes a second time is written again",
        "storage/postgres/statements.py",
        "ON s.slot = c.slot AND s.epoch = c.epoch AND s.seq = c.seq",
        "ON s.slot = c.slot AND s.epoch = c.epoch",
        tests=(STALE,),
    ),
    Mutant(
        "cluster: a commit does not ask whose its slots are",
        "storage/postgres/statements.py",
        "WHERE s.owner = $4 ORDER BY s.slot FOR NO KEY UPDATE OF s)",
        "WHERE $4::uuid IS NOT NULL ORDER BY s.slot FOR NO KEY UPDATE OF s)",
        tests=(STALE,),
    ),
)
