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
const state = new Map(); // webhook-id -> "running" | "done"

const handlers = {
  "invoices:send": async (args, job) => console.log(`attempt ${job.attempt} of ${job.id}: ${JSON.stringify(args)}`),
};

/** [status, headers]: what each means is the table in docs/receiving.md. */
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
  if (state.get(id) === "done") return [200, {}];
  if (state.get(id) === "running") return [409, { "tocsin-declined": "1" }]; // again later, not charged
  const handler = handlers[job.functionPath];
  if (!handler) return [404, {}]; // retried: while a new version is rolled out it may be known soon
  state.set(id, "running");
  try {
    await handler(job.args, job);
    state.set(id, "done");
    setTimeout(() => state.delete(id), 24 * 3600 * 1000).unref();
    return [200, {}];
  } catch (error) {
    console.error(error);
    state.delete(id);
    return error.never ? [422, { "tocsin-retry": "never" }] : [500, {}];
  }
}

function verified(body, headers) {
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
    ([status, headers]) => response.writeHead(status, headers).end(),
    () => response.destroy(), // the caller left
  ),
);
server.listen(Number(process.env.PORT ?? 8000), "127.0.0.1", () => console.log(`port ${server.address().port}`));
