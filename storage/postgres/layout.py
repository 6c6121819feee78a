"""The tables of a store in PostgreSQL, and the steps from each version of them to the next.

An actor's number is `slot << 40 | n`: the rows of one slot lie together, and can be moved together.
"""

from __future__ import annotations

from typing import Final

from tocsin.storage.ownership.engine import SLOTS

NUMBER_BITS: Final = 40
"""Bits of an actor's number that tell it from the others of its slot."""

_FIRST: Final = f"""
CREATE TABLE %s.meta (
  k text PRIMARY KEY,
  v text NOT NULL
);
CREATE TABLE %s.host (
  host uuid PRIMARY KEY,
  name text NOT NULL,
  url text,
  weight int4 NOT NULL DEFAULT 1 CHECK (weight >= 0),
  state text NOT NULL DEFAULT 'up' CHECK (state IN ('up', 'draining', 'dead')),
  lease_until timestamptz NOT NULL,
  session int8 NOT NULL DEFAULT 0
) WITH (fillfactor = 50);
CREATE TABLE %s.slot (
  slot int4 PRIMARY KEY,
  owner uuid,
  epoch int8 NOT NULL DEFAULT 0,
  seq int8 NOT NULL DEFAULT 0,
  base_seq int8 NOT NULL DEFAULT 0,
  earlier_bases int8[] NOT NULL DEFAULT '{{}}'
) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
CREATE TABLE %s.actor (
  actor int8 PRIMARY KEY,
  name text COLLATE "C" NOT NULL UNIQUE,
  wake_at int8
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);
CREATE TABLE %s.kv (
  actor int8 NOT NULL,
  key bytea NOT NULL CHECK (octet_length(key) BETWEEN 1 AND 1024),
  value bytea NOT NULL,
  PRIMARY KEY (actor, key)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.05);
CREATE TABLE %s.mail (
  slot int4 NOT NULL,
  seq int8 GENERATED ALWAYS AS IDENTITY,
  op uuid NOT NULL UNIQUE,
  actor text COLLATE "C" NOT NULL,
  body bytea NOT NULL,
  sender uuid,
  at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (slot, seq)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
CREATE TABLE %s.answer (
  op uuid PRIMARY KEY,
  body bytea NOT NULL,
  at timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
CREATE INDEX answer_at ON %s.answer (at);
INSERT INTO %s.slot (slot) SELECT generate_series(0, {SLOTS - 1});
INSERT INTO %s.meta (k, v) VALUES
  ('slots', '{SLOTS}'),
  ('cluster_id', gen_random_uuid()::text),
  ('secret', replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', ''));
"""
# No index on `slot.owner` and `actor.wake_at`: without them an update of these columns touches no index.
# A secret of two random UUIDs has 244 random bits; the server draws them from its strong source.

STEPS: Final = (_FIRST,)
"""Step n, counted from 1, makes layout n of layout n - 1."""
LAYOUT: Final = len(STEPS)


def step_sql(schema: str, step: int) -> str:
    """Return the statements of one step, which note its number at their end."""
    noted = (
        f"INSERT INTO {schema}.meta (k, v) VALUES ('schema_version', '{step}') "
        "ON CONFLICT (k) DO UPDATE SET v = excluded.v;\n"
    )
    return STEPS[step - 1].replace("%s", schema) + noted


def schema_sql(schema: str) -> str:
    """Return the statement that makes the schema if it is missing. `IF NOT EXISTS` asks for rights on the database even
    where there is nothing to make."""
    return f"DO $$ BEGIN IF to_regnamespace('{schema}') IS NULL THEN CREATE SCHEMA {schema}; END IF; END $$;"


def migration_sql(schema: str, since: int = 0) -> str:
    """Return all statements from layout `since` to the one of this version, as one transaction, for people to run."""
    steps = "".join(step_sql(schema, step) for step in range(since + 1, LAYOUT + 1))
    return f"BEGIN;\n{schema_sql(schema)}\n{steps}COMMIT;\n"
