// A receiver as the older system has it: it checks that system's signature, dedups by id, declines what overlaps.
// Served bare, or behind the example that accepts our callbacks, if a secret of ours is given.
import { createHmac, timingSafeEqual } from "node:crypto";
import { createServer } from "node:http";
import { accepting } from "./older-receiver.mjs";

const { LUNORA_SCHEDULER_SECRET, TOCSIN_SECRETS } = process.env;
const PATH = "/_lunora/scheduler/dispatch";
const done = new Map();
let declines = 1;

function refusal(status, code, headers = {}) {
  return Response.json({ error: { code, message: code } }, { status, headers });
}

async function dispatch(request) {
  if (request.method !== "POST" || new URL(request.url).pathname !== PATH) return refusal(405, "METHOD_NOT_ALLOWED");
  const body = await request.text();
  const given = Buffer.from(request.headers.get("x-lunora-scheduler-signature") ?? "");
  const wanted = Buffer.from(createHmac("sha256", LUNORA_SCHEDULER_SECRET).update(body).digest("base64url"));
  if (given.length !== wanted.length || !timingSafeEqual(given, wanted)) return refusal(403, "DISPATCH_UNAUTHENTICATED");
  const { id, functionPath, args, instanceName } = JSON.parse(body);
  if (functionPath === "busy" && declines-- > 0) return refusal(409, "DISPATCH_IN_PROGRESS", { "x-lunora-dispatch-declined": "1" });
  if (functionPath === "fails") return refusal(500, "INTERNAL");
  if (!done.has(id)) console.log(`ran ${functionPath} of ${instanceName} with ${JSON.stringify(args)}`);
  done.set(id, { result: args });
  return Response.json(done.get(id));
}

const secrets = (TOCSIN_SECRETS ?? "").split(",").filter(Boolean);
const fetch = secrets.length ? accepting(dispatch, { secrets, olderSecret: LUNORA_SCHEDULER_SECRET }) : dispatch;
const server = createServer(async (request, response) => {
  const pieces = [];
  for await (const piece of request) pieces.push(piece);
  const body = request.method === "POST" ? Buffer.concat(pieces) : undefined;
  const url = `http://127.0.0.1${request.url}`;
  const answer = await fetch(new Request(url, { method: request.method, headers: request.headers, body }));
  response.writeHead(answer.status, Object.fromEntries(answer.headers)).end(Buffer.from(await answer.arrayBuffer()));
});
server.listen(0, "127.0.0.1", () => console.log(`port ${server.address().port}`));
