// Before a receiver of the older system (docs/compatibility.md), which answers 403 to callbacks that it did not sign itself:
// verifies ours, signs the same body as that system did, and says "still at work" in our words.
//
//   export default { fetch: accepting(worker.fetch, { secrets: [TOCSIN_SECRET], olderSecret: LUNORA_SCHEDULER_SECRET }) };
import { Webhook } from "standardwebhooks";

const MAX_AHEAD_S = 60; // the library itself takes what is five minutes ahead
const bytes = (text) => new TextEncoder().encode(text);

export function accepting(receive, { secrets, olderSecret }) {
  const webhooks = secrets.map((secret) => new Webhook(secret));
  return async (request, ...more) => {
    if (!request.headers.has("webhook-id")) return receive(request, ...more); // not from tocsin
    const body = await request.text();
    if (!isGenuine(webhooks, body, Object.fromEntries(request.headers))) return new Response(null, { status: 401 });
    const key = await crypto.subtle.importKey("raw", bytes(olderSecret), { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
    const mac = new Uint8Array(await crypto.subtle.sign("HMAC", key, bytes(body)));
    const signature = btoa(String.fromCharCode(...mac)).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
    const headers = { "content-type": "application/json", "x-lunora-scheduler-signature": signature };
    const answer = await receive(new Request(request.url, { method: "POST", headers, body }), ...more);
    const declined = answer.status === 409 && answer.headers.get("x-lunora-dispatch-declined") === "1";
    return declined ? new Response(answer.body, { status: 409, headers: { "tocsin-declined": "1" } }) : answer;
  };
}

function isGenuine(webhooks, body, headers) {
  if (headers["webhook-timestamp"] - Date.now() / 1000 > MAX_AHEAD_S) return false;
  return webhooks.some((webhook) => {
    try {
      return webhook.verify(body, headers) !== undefined;
    } catch {
      return false; // the next secret, while they rotate
    }
  });
}
