// One durable object with an alarm: what it does for jobs on Cloudflare's runtime. A job is claimed and deleted in its
// SQLite; what it writes is on disk before a request, a callback included, leaves it.
export class Scheduler {
  constructor(state, env) {
    this.storage = state.storage;
    this.sql = state.storage.sql;
    this.lanes = Number(env.LANES);
    this.receiver = env.RECEIVER;
    this.running = false;
    this.sql.exec("CREATE TABLE IF NOT EXISTS jobs (id TEXT PRIMARY KEY, due INTEGER, begun INTEGER) WITHOUT ROWID");
    this.sql.exec("CREATE INDEX IF NOT EXISTS by_due ON jobs (begun, due)");
    this.sql.exec("UPDATE jobs SET begun = 0 WHERE begun = 1"); // by an object that was killed
  }

  async fetch(request) {
    if (request.method === "POST") {
      for (const [id, due] of await request.json()) {
        this.sql.exec("INSERT INTO jobs (id, due, begun) VALUES (?, ?, 0)", id, due);
      }
    }
    await this.arm();
    return new Response("0");
  }

  async arm() {
    if (this.running) return;
    const next = this.sql.exec("SELECT min(due) AS due FROM jobs WHERE begun = 0").one().due;
    const armed = await this.storage.getAlarm();
    if (next !== null && (armed === null || next < armed || armed < Date.now())) await this.storage.setAlarm(next);
  }

  async alarm() {
    this.running = true;
    try {
      for (let due = this.due(); due.length; due = this.due()) {
        for (const { id } of due) this.sql.exec("UPDATE jobs SET begun = 1 WHERE id = ?", id);
        await this.storage.sync();
        await Promise.all(Array.from({ length: this.lanes }, () => this.lane(due)));
      }
    } finally {
      this.running = false;
    }
    await this.arm();
  }

  due() {
    const limit = 512;
    return this.sql
      .exec("SELECT id, due FROM jobs WHERE begun = 0 AND due <= ? ORDER BY due LIMIT ?", Date.now(), limit)
      .toArray();
  }

  async lane(due) {
    for (let job = due.shift(); job; job = due.shift()) {
      const said = `{"id":"${job.id}","scheduledFor":${job.due},"args":"`;
      const answer = await fetch(this.receiver, { method: "POST", body: `${said.padEnd(198, "x")}"}` });
      await answer.text();
      if (!answer.ok) throw new Error(`HTTP ${answer.status}`);
      this.sql.exec("DELETE FROM jobs WHERE id = ?", job.id);
    }
  }
}

export default {
  fetch: (request, env) => env.SCHEDULER.get(env.SCHEDULER.idFromName("bench")).fetch(request),
};
