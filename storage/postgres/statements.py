"""The statements, each whole in itself: none needs a second one to be right. `%s` stands for the schema."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields, replace
from typing import Final

from tocsin.storage.postgres.layout import NUMBER_BITS

ANSWERS_KEPT_S: Final = 600
"""Time that the answer to a call by mail is kept for the one who waits for it."""

SCANS: Final = ("scan", "scan_within", "scan_many")
_ALL: Final = "(SELECT count(*) FROM own) = cardinality($1)"
_ACTOR: Final = "(SELECT a.actor FROM %s.actor a WHERE a.name = $1)"
_SIZE: Final = "octet_length(key) + octet_length(value)"

_ITS_LOCK: Final = (
    "l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 "
    "AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()) "
    "AND l.classid::int8 = (h.session >> 32) & 4294967295 AND l.objid::int8 = h.session & 4294967295"
)


@dataclass(frozen=True, slots=True)
class Statements:
    """The statements for one schema."""

    # ---- Rows ----
    commit: str = f"""
WITH own AS MATERIALIZED (
  SELECT s.slot FROM %s.slot s
    JOIN unnest($1::int4[], $2::int8[], $3::int8[]) c(slot, epoch, seq)
      ON s.slot = c.slot AND s.epoch = c.epoch AND s.seq = c.seq
   WHERE s.owner = $4 ORDER BY s.slot FOR NO KEY UPDATE OF s),
del AS (
  DELETE FROM %s.kv k USING unnest($5::int8[], $6::bytea[]) d(actor, key)
   WHERE k.actor = d.actor AND k.key = d.key AND {_ALL}),
ins AS (
  INSERT INTO %s.kv (actor, key, value)
  SELECT u.actor, u.key, u.value FROM unnest($7::int8[], $8::bytea[], $9::bytea[]) u(actor, key, value) WHERE {_ALL}
  ON CONFLICT (actor, key) DO UPDATE SET value = excluded.value),
wak AS (
  UPDATE %s.actor a SET wake_at = w.wake_at FROM unnest($10::int8[], $11::int8[]) w(actor, wake_at)
   WHERE a.actor = w.actor AND {_ALL}),
new AS (
  INSERT INTO %s.actor (actor, name, wake_at)
  SELECT n.actor, n.name, n.wake_at FROM unnest($12::int8[], $13::text[], $14::int8[]) n(actor, name, wake_at)
   WHERE {_ALL}),
bump AS (
  UPDATE %s.slot s SET seq = s.seq + 1 FROM own WHERE s.slot = own.slot AND {_ALL})
SELECT slot FROM own"""
    settle: str = (
        "SELECT slot, owner, epoch, seq, base_seq, earlier_bases FROM %s.slot WHERE slot = ANY($1::int4[]) "
        "ORDER BY slot FOR NO KEY UPDATE"
    )
    get: str = f"SELECT key, value FROM %s.kv WHERE actor = {_ACTOR} AND key = ANY($2::bytea[])"
    scan: str = f"SELECT key, value FROM %s.kv WHERE actor = {_ACTOR} AND key >= $2 AND key < $3 ORDER BY key LIMIT $4"
    scan_within: str = f"""
SELECT key, value FROM (
  SELECT key, value, sum({_SIZE}) OVER (ORDER BY key ROWS UNBOUNDED PRECEDING) - ({_SIZE}) AS before FROM (
    SELECT key, value FROM %s.kv WHERE actor = {_ACTOR} AND key >= $2 AND key < $3 ORDER BY key LIMIT $4) k) r
 WHERE before < $5 ORDER BY key"""
    scan_many: str = f"""
SELECT n, key, value FROM (
  SELECT n, key, value, sum({_SIZE}) OVER (ORDER BY n, key ROWS UNBOUNDED PRECEDING) - ({_SIZE}) AS before
    FROM unnest($2::bytea[], $3::bytea[], $4::int8[]) WITH ORDINALITY u(low, high, most, n)
   CROSS JOIN LATERAL (
    SELECT key, value FROM %s.kv WHERE actor = {_ACTOR} AND key >= u.low AND key < u.high ORDER BY key LIMIT u.most
   ) k) r
 WHERE before < $5 ORDER BY n, key"""
    stored: str = "SELECT actor, wake_at FROM %s.actor WHERE name = $1"
    numbers: str = "SELECT name, actor FROM %s.actor WHERE name = ANY($1::text[])"
    names: str = "SELECT name FROM %s.actor WHERE name > $1 ORDER BY name LIMIT $2"
    wakes: str = """
SELECT n, actor, name, wake_at FROM unnest($1::int8[], $2::int8[]) WITH ORDINALITY u(low, high, n)
 CROSS JOIN LATERAL (
  SELECT actor, name, wake_at FROM %s.actor a WHERE a.actor >= u.low AND a.actor < u.high
   ORDER BY a.actor LIMIT $3) a"""
    secret: str = "SELECT v FROM %s.meta WHERE k = 'secret'"

    # ---- Who owns what ----
    register: str = (
        "INSERT INTO %s.host (host, name, url, weight, state, lease_until, session) "
        "VALUES ($1, $2, $3, $4, $5, clock_timestamp() + make_interval(secs => $6), $7) "
        "ON CONFLICT (host) DO UPDATE SET lease_until = excluded.lease_until WHERE host.state <> 'dead'"
    )
    beat: str = (
        "UPDATE %s.host SET lease_until = clock_timestamp() + make_interval(secs => $2) "
        "WHERE host = $1 AND state <> 'dead' "
        "RETURNING state, (extract(epoch FROM clock_timestamp()) * 1000)::int8 AS now_ms"
    )
    hosts: str = (
        "SELECT host, name, url, weight, state, session, "
        "(extract(epoch FROM lease_until - clock_timestamp()) * 1000)::int8 AS lease_left_ms, "
        f"session <> 0 AND NOT EXISTS (SELECT FROM pg_locks l WHERE {_ITS_LOCK}) AS session_gone FROM %s.host h "
        "WHERE state <> 'dead' OR EXISTS (SELECT FROM %s.slot s WHERE s.owner = h.host) ORDER BY host"
    )
    drain: str = "UPDATE %s.host SET state = 'draining' WHERE host = $1 AND state = 'up' RETURNING host"
    reap: str = (
        "UPDATE %s.host SET state = 'dead' WHERE state <> 'dead' AND lease_until < clock_timestamp() RETURNING host"
    )
    reap_without_session: str = (
        "UPDATE %s.host SET state = 'dead' WHERE host = $1 AND state <> 'dead' AND session <> 0 "
        "AND pg_try_advisory_xact_lock(session) RETURNING host"
    )
    forget: str = (
        "DELETE FROM %s.host h WHERE h.host = $1 AND NOT EXISTS (SELECT FROM %s.slot s WHERE s.owner = h.host)"
    )
    slots: str = "SELECT slot, owner, epoch, seq, base_seq, earlier_bases FROM %s.slot ORDER BY slot"
    take: str = """
WITH seen AS MATERIALIZED (
  SELECT s.slot, s.epoch FROM %s.slot s LEFT JOIN %s.host h ON h.host = s.owner
   WHERE s.slot = ANY($1::int4[]) AND (s.owner IS NULL OR h.host IS NULL OR h.state = 'dead')
     AND EXISTS (SELECT FROM %s.host me WHERE me.host = $2 AND me.state <> 'dead')),
free AS MATERIALIZED (
  SELECT s.slot FROM %s.slot s JOIN seen ON s.slot = seen.slot AND s.epoch = seen.epoch
   ORDER BY s.slot FOR UPDATE OF s SKIP LOCKED)
UPDATE %s.slot s SET owner = $2, epoch = s.epoch + 1, base_seq = s.seq,
    earlier_bases = CASE WHEN s.epoch > 0 THEN s.base_seq || s.earlier_bases[1:2] ELSE '{}' END
  FROM free WHERE s.slot = free.slot
RETURNING s.slot, s.owner, s.epoch, s.seq, s.base_seq, s.earlier_bases"""
    release: str = """
WITH mine AS MATERIALIZED (
  SELECT s.slot FROM %s.slot s WHERE s.slot = ANY($1::int4[]) AND s.owner = $2 ORDER BY s.slot FOR UPDATE)
UPDATE %s.slot s SET owner = NULL FROM mine WHERE s.slot = mine.slot
RETURNING s.slot, s.owner, s.epoch, s.seq, s.base_seq, s.earlier_bases"""

    # ---- Mail ----
    put_mail: str = """
WITH sent AS MATERIALIZED (
  SELECT * FROM unnest($1::int4[], $2::uuid[], $3::text[], $4::bytea[], $5::uuid[])
    WITH ORDINALITY u(slot, op, actor, body, sender, n)),
state AS MATERIALIZED (
  SELECT s.slot,
    (SELECT count(*) FROM (SELECT FROM %s.mail m WHERE m.slot = s.slot LIMIT $6) w) >= $6
    OR coalesce((SELECT m.at FROM %s.mail m WHERE m.slot = s.slot AND m.sender IS NOT NULL ORDER BY m.seq LIMIT 1)
                < clock_timestamp() - make_interval(secs => $7), false) AS full_up
    FROM (SELECT DISTINCT slot FROM sent) s),
fit AS MATERIALIZED (
  SELECT sent.*, known OR NOT full_up AS kept, known FROM sent JOIN state USING (slot) CROSS JOIN LATERAL (
    SELECT EXISTS (SELECT FROM %s.mail m WHERE m.op = sent.op)
        OR EXISTS (SELECT FROM %s.answer a WHERE a.op = sent.op) AS known) k),
put AS (
  INSERT INTO %s.mail (slot, op, actor, body, sender)
  SELECT slot, op, actor, body, sender FROM fit WHERE kept AND NOT known ORDER BY n
  ON CONFLICT (op) DO NOTHING)
SELECT kept FROM fit ORDER BY n"""
    take_mail: str = """
WITH RECURSIVE waiting(slot) AS (
  (SELECT slot FROM %s.mail ORDER BY slot LIMIT 1)
  UNION ALL
  SELECT (SELECT m.slot FROM %s.mail m WHERE m.slot > w.slot ORDER BY m.slot LIMIT 1) FROM waiting w
   WHERE w.slot IS NOT NULL)
SELECT m.slot, m.seq, m.op, m.actor, m.body, m.sender,
       (extract(epoch FROM clock_timestamp() - m.at) * 1000)::int8 AS age_ms
  FROM waiting w CROSS JOIN LATERAL (
   SELECT * FROM %s.mail m WHERE m.slot = w.slot ORDER BY m.seq LIMIT $2) m
 WHERE w.slot = ANY($1::int4[]) ORDER BY m.seq LIMIT $2"""
    end_mail: str = """
WITH done AS MATERIALIZED (
  SELECT * FROM unnest($2::int4[], $3::int8[], $4::bytea[]) WITH ORDINALITY u(slot, seq, body, n)),
own AS MATERIALIZED (
  SELECT s.slot FROM %s.slot s WHERE s.slot = ANY($2::int4[]) AND s.owner = $1 ORDER BY s.slot FOR NO KEY UPDATE),
gone AS (
  DELETE FROM %s.mail m USING done d
   WHERE m.slot = d.slot AND m.seq = d.seq AND EXISTS (SELECT FROM own WHERE own.slot = m.slot)
  RETURNING m.op, d.body),
kept AS (
  INSERT INTO %s.answer (op, body) SELECT op, body FROM gone ON CONFLICT (op) DO NOTHING)
SELECT n FROM done WHERE EXISTS (SELECT FROM own WHERE own.slot = done.slot) ORDER BY n"""
    drop_answers: str = (
        "DELETE FROM %s.answer WHERE op IN (SELECT op FROM %s.answer "
        f"WHERE at < clock_timestamp() - interval '{ANSWERS_KEPT_S} seconds' ORDER BY at LIMIT 1000)"
    )
    answers: str = "SELECT op, body FROM %s.answer WHERE op = ANY($1::uuid[])"
    backlogs: str = """
WITH RECURSIVE waiting(slot) AS (
  (SELECT slot FROM %s.mail ORDER BY slot LIMIT 1)
  UNION ALL
  SELECT (SELECT m.slot FROM %s.mail m WHERE m.slot > w.slot ORDER BY m.slot LIMIT 1) FROM waiting w
   WHERE w.slot IS NOT NULL)
SELECT w.slot, b.count, b.oldest_ms FROM waiting w CROSS JOIN LATERAL (
  SELECT count(*) AS count, (extract(epoch FROM clock_timestamp() - min(m.at)) * 1000)::int8 AS oldest_ms
    FROM %s.mail m WHERE m.slot = w.slot) b
 WHERE w.slot IS NOT NULL AND b.count > 0 ORDER BY w.slot"""
    hint: str = "SELECT pg_notify(channel, '') FROM unnest($1::text[]) channel"


def statements(schema: str) -> Statements:
    """Return the statements for a schema, whose name needs no quotes."""
    written = Statements()
    return Statements(**{field.name: getattr(written, field.name).replace("%s", schema) for field in fields(written)})


def backwards(forwards: Statements) -> Statements:
    """Return the statements whose scans read each range from its end."""
    return replace(
        forwards, **{name: re.sub(r"ORDER BY (n, )?key", r"\g<0> DESC", getattr(forwards, name)) for name in SCANS}
    )


def numbers_of(slot: int, through: int) -> tuple[int, int]:
    """Return the actors' numbers of the slots from `slot` through another, as `low <= number < high`."""
    return slot << NUMBER_BITS, (through + 1) << NUMBER_BITS
