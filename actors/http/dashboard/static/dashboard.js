/* The dashboard works without this. With it, pages follow what happens, questions open as dialogs, times are told in the
   zone of the browser, and keys go places. It asks nothing but the pages of the dashboard themselves. */
(() => {
  "use strict";
  const POLL_MS = 5000;
  const FEED_POLL_MS = 15000; // for what the feed does not tell: workers, schedules, what falls due
  const LEAST_MS = 1000; // between two looks, however much changes
  const SHARE = 10; // and so many times as long as the last look took: a server that has much to do has more time
  const html = document.documentElement;

  // ---- Theme: before the first paint ----
  const THEMES = ["system", "light", "dark"];
  const kept = () => { try { return localStorage.getItem("tocsin-theme") || "system"; } catch { return "system"; } };
  const paint = (theme) => { if (theme === "system") delete html.dataset.theme; else html.dataset.theme = theme; };
  paint(kept());

  // ---- Times ----
  const exact = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
  const precise = new Intl.DateTimeFormat(undefined, {
    year: "numeric", month: "short", day: "numeric", hour: "numeric", minute: "2-digit", second: "2-digit",
    fractionalSecondDigits: 3, timeZoneName: "short",
  });
  const UNITS = [[86400, "d", 3600, "h"], [3600, "h", 60, "m"], [60, "m", 1, "s"]];
  const span = (ms) => {
    const s = Math.floor(ms / 1000);
    for (const [size, unit, small, name] of UNITS) {
      if (s >= size) {
        const rest = Math.floor((s % size) / small);
        return Math.floor(s / size) + unit + (rest ? ` ${rest}${name}` : "");
      }
    }
    return `${s}s`;
  };
  let skew = 0; // how far the server's clock is ahead
  const relative = (at) => {
    const away = at - (Date.now() + skew);
    if (Math.abs(away) < 1000) return "now";
    return away > 0 ? `in ${span(away)}` : `${span(-away)} ago`;
  };
  const tell = (root) => {
    for (const one of root.querySelectorAll("time[datetime]")) {
      const at = Date.parse(one.dateTime);
      if (Number.isNaN(at)) continue;
      const words = one.dataset.as === "relative" ? relative(at) : exact.format(at);
      if (one.textContent !== words) one.textContent = words;
      if (!one.dataset.told) { one.dataset.told = "1"; one.title = `${precise.format(at)} = ${one.dateTime}`; }
    }
  };

  // ---- Following what happens: the page is fetched again, and its live parts are exchanged ----
  const shown = new Map();
  let asking = false;
  let took = 0;
  const inUse = (part) => {
    const focus = document.activeElement;
    return part.querySelector("input:checked, details[open]") !== null
      || (part.contains(focus) && focus.matches("input, select, textarea, summary"));
  };
  const exchange = (part, fresh) => {
    const focus = document.activeElement;
    const place = part.contains(focus) ? [...part.querySelectorAll("a, button")].indexOf(focus) : -1;
    const address = place >= 0 ? focus.getAttribute("href") : null;
    part.className = fresh.className;
    part.replaceChildren(...fresh.childNodes);
    tell(part);
    if (place >= 0) {
      const all = [...part.querySelectorAll("a, button")];
      (all.find((one) => address !== null && one.getAttribute("href") === address) || all[place])?.focus({ preventScroll: true });
    }
  };
  const say = (words, stale = false) => {
    const fresh = document.getElementById("fresh");
    if (!fresh) return;
    fresh.hidden = !words;
    fresh.textContent = words;
    fresh.classList.toggle("stale", stale);
  };
  const refresh = async () => {
    if (asking || document.hidden || document.querySelector("dialog[open]") || !document.querySelector("[data-live]")) return;
    asking = true;
    const began = Date.now();
    try {
      const answer = await fetch(location.href, { headers: { accept: "text/html" }, cache: "no-store" });
      if (answer.status === 401) { location.reload(); return; }
      if (!answer.ok) { say(`The server answers ${answer.status}`, true); return; }
      const text = await answer.text();
      took = Date.now() - began;
      const page = new DOMParser().parseFromString(text, "text/html");
      for (const fresh of page.querySelectorAll("[data-live][id]")) {
        const part = document.getElementById(fresh.id);
        const now = fresh.className + fresh.innerHTML;
        if (!part || shown.get(fresh.id) === now || inUse(part)) continue;
        shown.set(fresh.id, now);
        exchange(part, fresh);
      }
      say("");
    } catch {
      say("No answer: shown as it was", true);
    } finally {
      asking = false;
    }
  };

  // The feed says when to look. It is closed while nobody sees the page: a browser opens only six to one server.
  let feed = null;
  let looked = Date.now();
  let soon = 0;
  const look = () => { looked = Date.now(); soon = 0; return refresh(); };
  const changed = () => { soon ||= setTimeout(look, Math.max(0, looked + Math.max(LEAST_MS, SHARE * took) - Date.now())); };
  const follow = () => {
    const address = document.body.dataset.feed;
    if (document.hidden || !address || !document.querySelector("[data-live]")) { feed?.close(); feed = null; return; }
    if (feed && feed.readyState !== EventSource.CLOSED) return;
    feed = new EventSource(address);
    // The first frame too: what changed between this page and the feed is in neither.
    for (const kind of ["snapshot", "change", "resync"]) feed.addEventListener(kind, changed);
  };
  const isFollowed = () => feed !== null && feed.readyState === EventSource.OPEN;

  // ---- Questions as dialogs ----
  const open = (content) => {
    const dialog = document.createElement("dialog");
    dialog.append(content);
    dialog.addEventListener("close", () => dialog.remove());
    dialog.addEventListener("click", (event) => {
      if (event.target === dialog || event.target.closest("[data-close]")) { event.preventDefault(); dialog.close(); }
    });
    document.body.append(dialog);
    dialog.showModal();
    return dialog;
  };
  // How long it takes follows the pace that is filled in.
  const followPace = (root) => {
    for (const words of root.querySelectorAll("[data-paced]")) {
      const field = words.closest("form").elements[words.dataset.pace];
      const [pace, time] = words.querySelectorAll("b");
      field.addEventListener("input", () => {
        const rate = Number(field.value);
        words.hidden = !(Number.isInteger(rate) && rate > 0);
        if (words.hidden) return;
        pace.textContent = field.value;
        time.textContent = span(Math.max(1, Math.floor(words.dataset.paced / rate)) * 1000);
      });
    }
  };
  const ask = async (address) => {
    try {
      const answer = await fetch(address, { headers: { accept: "text/html" }, cache: "no-store" });
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const form = page.querySelector("form.question");
      if (!answer.ok || !form) { location.assign(address); return; }
      form.action = address;
      tell(form);
      followPace(form);
      const dialog = open(form);
      dialog.setAttribute("aria-label", form.querySelector("h1")?.textContent || "");
      (form.querySelector("input:not([type=hidden]), select") || form.querySelector(".choice button"))?.focus();
    } catch {
      location.assign(address);
    }
  };

  // ---- Keys ----
  let gone = 0; // when `g` was pressed
  const row = (step) => {
    const all = [...document.querySelectorAll("main tbody tr")].map((one) => one.querySelector("a")).filter(Boolean);
    if (!all.length) return;
    const here = all.indexOf(document.activeElement);
    all[Math.min(all.length - 1, Math.max(0, here < 0 ? (step > 0 ? 0 : all.length - 1) : here + step))].focus();
  };
  const help = () => {
    const box = document.createElement("div");
    box.className = "question";
    const add = (name, text, into = box) => { const made = document.createElement(name); made.textContent = text; into.append(made); return made; };
    add("h1", "Keys");
    const list = add("dl", "");
    list.className = "facts";
    const line = (keys, words) => {
      const term = add("dt", "", list);
      for (const key of keys) { add("kbd", key, term); term.append(" "); }
      add("dd", words, list);
    };
    for (const link of document.querySelectorAll("nav.pages a[data-key]")) {
      line(["g", link.dataset.key], link.firstChild.textContent.trim());
    }
    line(["/"], "First filter of the page");
    line(["j", "k"], "Next and previous row");
    line(["n"], "Next page of a list");
    line(["r"], "Look again now");
    line(["?"], "These keys");
    const close = add("button", "Close");
    close.dataset.close = "";
    open(box);
    close.focus();
  };
  const key = (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    if (event.target.matches("input, select, textarea")) { if (event.key === "Escape") event.target.blur(); return; }
    const target = Date.now() - gone < 1500 ? document.querySelector(`nav.pages a[data-key="${CSS.escape(event.key)}"]`) : null;
    gone = 0;
    if (target) target.click();
    else if (event.key === "g") gone = Date.now();
    else if (event.key === "/") document.querySelector(".filters input, .filters select")?.focus();
    else if (event.key === "j") row(1);
    else if (event.key === "k") row(-1);
    else if (event.key === "n") document.querySelector('.pager a[rel="next"]')?.click();
    else if (event.key === "r") look();
    else if (event.key === "?") help();
    else return;
    event.preventDefault();
  };

  document.addEventListener("DOMContentLoaded", () => {
    const served = Number(document.body.dataset.now);
    if (served) skew = Math.abs(served - Date.now()) > 5000 ? served - Date.now() : 0;
    tell(document);
    followPace(document);
    const theme = document.getElementById("theme");
    if (theme) {
      const name = () => { theme.querySelector("span:last-child").textContent = `: ${kept()}`; theme.setAttribute("aria-label", `Theme: ${kept()}`); theme.title = "Press to change the colours"; };
      theme.hidden = false;
      name();
      theme.addEventListener("click", () => {
        const next = THEMES[(THEMES.indexOf(kept()) + 1) % THEMES.length];
        try { localStorage.setItem("tocsin-theme", next); } catch { /* kept for this page only */ }
        paint(next);
        name();
      });
    }
    const keys = document.getElementById("keys");
    if (keys) { keys.hidden = false; keys.addEventListener("click", help); }
    document.querySelector("nav.pages [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
    document.addEventListener("keydown", key);
    document.addEventListener("click", (event) => {
      const link = event.target.closest("a[data-ask]");
      if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
      event.preventDefault();
      ask(link.href);
    });
    // Whatever is not filled in is left out of the address.
    for (const form of document.querySelectorAll("form.filters")) {
      form.addEventListener("formdata", (event) => { for (const [name, value] of [...event.formData]) if (!value) event.formData.delete(name); });
      form.addEventListener("change", (event) => { if (event.target.matches("select")) form.requestSubmit(); });
    }
    document.addEventListener("visibilitychange", () => { follow(); if (!document.hidden) look(); });
    window.addEventListener("pagehide", () => feed?.close());
    window.addEventListener("pageshow", (event) => { if (event.persisted) { follow(); look(); } });
    follow();
    setInterval(() => tell(document), 1000);
    setInterval(() => { if (Date.now() - looked >= (isFollowed() ? FEED_POLL_MS : POLL_MS)) look(); follow(); }, POLL_MS);
  });
})();
