// A receiver in Node with nothing but the Standard Webhooks library:
//
//   npm install standardwebhooks && TOCSIN_SECRETS=whsec_... node receiver.mjs
//
// This one remembers in memory which jobs are done. Where that must outlive the process, write the webhook-id in one
// transaction with your own writes, under a unique index.
import { createServer } from "node:http";
import { Webhook } from "standardwebhooks";

const webhooks = (process.env.TOCSIN_SECRETS ?? "").split(",").map((secret) => new Webhook(secret.trim()));
const MAX_BODY = 1024 * 1024;
const MAX_RESULT = 64 * 1024;
const MAX_AHEAD_S = 60; // the library itself takes what is five minutes ahead
const state = new Map(); // webhook-id -> "running" | its answer

const handlers = {
  "invoices:send": async (args, job) => {
    console.log(`attempt ${job.attempt} of ${job.id}: ${JSON.stringify(args)}`);
    return { sent: args };
  },
};

/** [status, headers, body]: what each means is the table in docs/receiving.md. */
async function answer(request) {
  if (request.method !== "POST") return [405, { allow: "POST" }];
  const pieces = [];
  let size = 0;
  for await (const piece of request) {
    if ((size += piece.length) <= MAX_BODY) pieces.push(piece);
  }
  if (size > MAX_BODY) return [413, {}];
  const job = verified(Buffer.concat(pieces), request.headers); // on the bytes as they came
  if (!job) return [401, {}];
  const id = request.headers["webhook-id"]; // the same over all attempts of a job
  if (state.get(id) === "running") return [409, { "tocsin-declined": "1" }]; // again later, not charged
  if (state.has(id)) return state.get(id); // with its result: the first answer may have got lost
  const handler = handlers[job.functionPath];
  if (!handler) return [404, {}]; // retried: while a new version is rolled out it may be known soon
  state.set(id, "running");
  try {
    const answered = done(await handler(job.args, job));
    state.set(id, answered);
    setTimeout(() => state.delete(id), 24 * 3600 * 1000).unref();
    return answered;
  } catch (error) {
    console.error(error);
    state.delete(id);
    return error.never ? [422, { "tocsin-retry": "never" }] : [500, {}];
  }
}

/** What the handler returned is the job's result, if it is JSON of at most 64 KiB; done it is in any case. */
function done(returned) {
  try {
    const body = JSON.stringify(returned);
    if (Buffer.byteLength(body ?? "") > MAX_RESULT) throw new Error(`a result of more than ${MAX_RESULT} bytes`);
    if (body) return [200, { "content-type": "application/json" }, body];
  } catch (error) {
    console.error(error);
  }
  return [200, {}];
}

function verified(body, headers) {
  if (headers["webhook-timestamp"] - Date.now() / 1000 > MAX_AHEAD_S) return;
  for (const webhook of webhooks) {
    try {
      return webhook.verify(body, headers);
    } catch {
      // the next secret, while they rotate
    }
  }
}

const server = createServer((request, response) =>
  answer(request).then(
    ([status, headers, body]) => response.writeHead(status, headers).end(body),
    () => response.destroy(), // the caller left
  ),
);
server.listen(Number(process.env.PORT ?? 8000), "127.0.0.1", () => console.log(`port ${server.address().port}`));
