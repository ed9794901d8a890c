// The page: it gets the session, follows the stream of events, and draws one view at a time. Text of the cluster becomes text nodes,
// never HTML. What has not changed keeps its elements, so that focus and scrolling stay where they are.
import { chart, draw, last, number, scaleOf } from "./charts.js";

const main = document.getElementById("main"), live = document.getElementById("live");
const rowsAtOnce = 100;

const state = {
  rows: new Map(), listed: false, overview: { sources: [] }, backends: { shown: [], total: 0, points: 90, span: 178 }, timeline: [], namespaces: null, debts: null, routes: null,
  jobs: [], drills: { drills: [] }, audit: [], connected: false,
};

// el makes an element: attributes, then children, which are elements or text.
function el(name, attributes = {}, ...children) {
  const e = document.createElement(name);
  for (const [k, v] of Object.entries(attributes)) {
    if (k === "on") for (const [event, f] of Object.entries(v)) e.addEventListener(event, f);
    else if (v === true) e.setAttribute(k, "");
    else if (v !== false && v !== undefined && v !== null) e.setAttribute(k, v);
  }
  e.append(...children.flat().filter(c => c !== null && c !== undefined && c !== false));
  return e;
}

// fill replaces the children of an element if what they are made of has changed.
function fill(parent, key, f) {
  const text = JSON.stringify(key);
  if (parent.dataset.key === text) return;
  parent.dataset.key = text;
  const focused = parent.contains(document.activeElement) ? document.activeElement.id || document.activeElement.getAttribute("href") : null;
  const open = new Set([...parent.querySelectorAll("details[open]")].map(d => d.dataset.id));
  parent.replaceChildren(...[f()].flat().filter(Boolean));
  for (const d of parent.querySelectorAll("details")) if (open.has(d.dataset.id)) d.open = true;
  if (focused) [...parent.querySelectorAll("a, button, input, summary")].find(e => e.id === focused || e.getAttribute("href") === focused)?.focus({ preventScroll: true });
}

// quantity is a number with its noun.
const quantity = (n, one, many = one + "s") => n + " " + (n === 1 ? one : many);

// causeAnd writes a message that leads with the cause. A URL at its end is shortened in its middle where it does not fit, the rest wraps.
function causeAnd(message) {
  const [, cause, url] = /^(.*) (https?:\/\/\S+)$/s.exec(message) || [null, message];
  if (!url) return message;
  return [cause + " ", el("span", { class: "url", title: url }, el("span", { class: "start" }, url.slice(0, -16)), el("span", {}, url.slice(-16)))];
}

const say = text => { live.textContent = text; };

async function ask(path, body) {
  const options = body === undefined ? {} : { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  const response = await fetch(path, options);
  const content = await response.json();
  if (!response.ok) throw new Error(content.error);
  return content;
}

// States and times.
const looks = {
  available: "good", True: "good", well: "good", ready: "good", ok: "good", passed: "good", done: "good", unavailable: "bad", False: "bad", ejected: "bad", failed: "bad",
  broken: "bad", "not ready": "bad", "half-open": "warn", terminating: "warn", local: "quiet", skipped: "quiet", running: "warn", cancelled: "quiet", degraded: "warn",
};
const look = s => looks[s] || "unknown";
const status = (s, text = s) => el("span", { class: "state " + look(s) }, el("span", { class: "dot " + (look(s) === "quiet" ? "unknown" : look(s)), "aria-hidden": "true" }), text);
const tag = (text, kind = "", title) => el("span", { class: "tag " + kind, title }, text);

function ago(when) {
  const s = Math.max(0, (Date.now() - new Date(when)) / 1000);
  if (s < 60) return Math.floor(s) + " s";
  if (s < 3600) return Math.floor(s / 60) + " min";
  if (s < 172800) return Math.floor(s / 3600) + " h";
  return Math.floor(s / 86400) + " d";
}
function clock(when) {
  const d = new Date(when), today = new Date().toDateString() === d.toDateString();
  const time = d.toLocaleTimeString("en-GB");
  return today ? time : d.toLocaleDateString("en-CA").slice(5) + " " + time.slice(0, 5);
}
const since = when => when ? el("time", { datetime: when, title: when, "data-since": when }, ago(when)) : "";
const hrefOf = name => "#apiservices/" + encodeURIComponent(name);
const linkTo = name => el("a", { href: hrefOf(name), class: "name" }, name);
const sourceOf = name => state.overview.sources.find(s => s.name === name);

// absent says what a section cannot show.
function absent(...names) {
  return names.map(sourceOf).filter(s => s && (s.missing || s.error)).map(s => el("p", { class: "missing" + (s.error ? " error" : "") }, s.error ? s.name + ": " + s.error : s.missing));
}
const absentKey = (...names) => names.map(sourceOf).map(s => s && [s.missing, s.error]);

const head = (title, lead, ...tools) => el("div", { class: "head" }, el("div", {}, el("h1", {}, title), lead && el("p", { class: "lead" }, lead)), tools.length > 0 && el("div", { class: "tools" }, ...tools));

// way is the path of a request. In the list it begins after the API server, which is the same everywhere, and a gateway is a point.
function way(r, short) {
  const parts = [];
  for (const [i, h] of (r.hops || []).entries()) {
    if (i === 0) parts.push(el("span", { class: short ? "hidden" : "to" }, h.from));
    parts.push(el("span", { class: "arrow " + look(h.state), "aria-hidden": "true" }), el("span", { class: "hidden" }, h.state === "available" ? "reaches" : h.state === "unavailable" ? "does not reach" : "may reach"),
      i === 0 && r.gateway ? short ? el("span", { title: "gateway " + h.to }, el("span", { "aria-hidden": "true" }, "◦"), el("span", { class: "hidden" }, "gateway " + h.to)) : el("span", { class: "to" }, "gateway " + h.to) :
        el("span", { class: "to" }, h.to));
  }
  return el("div", { class: "way" }, ...parts);
}

function verdicts(r) {
  const all = r.verdicts || [];
  if (all.length === 0) return null;
  const reach = all.filter(v => v.state === "available").length;
  return tag(reach + " of " + all.length, reach === all.length ? "good" : reach === 0 ? "bad" : "warn", all.map(v => v.replica + ": " + v.state).join("\n"));
}

const byState = (a, b) => a.rank - b.rank || (a.name < b.name ? -1 : 1);
const sorted = () => [...state.rows.values()].sort(byState);
const noteText = n => n.type + "=" + n.status;
const remote = () => [...state.rows.values()].filter(r => r.service || r.state === "unavailable");
const troubled = () => remote().filter(r => r.state !== "available").sort(byState);

// A view has enter(), which makes its frame, and update(), which fills in what has changed.
const views = {};

views.overview = () => {
  const figures = el("div", { class: "figures" }), trouble = el("div", { class: "card flush" }), recent = el("div", { class: "card flush" }), sources = el("div");
  main.append(head("Overview"), figures, el("div", { class: "two" }, el("section", { "aria-labelledby": "h-trouble" }, el("h2", { id: "h-trouble" }, "Needs attention"), trouble),
    el("section", { "aria-labelledby": "h-recent" }, el("h2", { id: "h-recent" }, "Latest changes"), recent)), el("section", { "aria-labelledby": "h-sources" }, el("h2", { id: "h-sources" }, "What is read"), sources));
  return () => {
    const all = remote(), bad = troubled(), stuck = state.namespaces ? state.namespaces.shown.filter(n => n.stuck) : [];
    const rate = state.backends.shown.reduce((sum, b) => sum + (last(b.series.rate) || 0), 0);
    const numbers = [
      [state.listed ? all.length : null, all.length === 1 ? "APIService with a backend" : "APIServices with a backend", "#apiservices"], [state.listed ? bad.length : null, "not available", "#apiservices"],
      [state.namespaces ? stuck.length : null, stuck.length === 1 ? "namespace stuck" : "namespaces stuck", "#namespaces"],
      [state.debts ? state.debts.total : null, state.debts?.total === 1 ? "cleanup debt" : "cleanup debts", "#namespaces"],
      [state.backends.shown.length ? rate : null, "requests a second", "#endpoints"],
    ];
    fill(figures, numbers.map(n => [number(n[0]), n[1]]), () => numbers.map(([n, text, href]) => el("a", { class: "card figure", href }, el("b", {}, number(n)), el("span", {}, text))));
    const noted = all.filter(r => r.degraded).sort(byState);
    fill(trouble, [state.listed, bad, noted, stuck], () => {
      const items = [...bad.map(r => item("APIService", r.name, look(r.state), r.reason, r.message, r.since)),
        ...stuck.map(n => item("Namespace", n.name, "bad", "terminating", (n.by || []).map(b => b.kind + " " + b.name).join(", "), n.since)),
        ...noted.map(r => {
          const n = (r.notes || [])[0];
          return item("APIService", r.name, "warn", "warning: " + (n ? noteText(n) : "not every replica reaches it"), n && n.message, n ? n.since : r.since);
        })];
      if (items.length === 0) return el("p", { class: "empty" }, !state.listed ? "Waiting for the API server." : all.length === 0 ? "No APIServices with a backend." : "Nothing. Every server is reached.");
      return el("ul", { class: "timeline" }, ...items.slice(0, 12), items.length > 12 && el("li", {}, el("span"), el("span"), el("a", { href: "#apiservices" }, (items.length - 12) + " more")));
    });
    fill(recent, [state.listed, state.timeline.slice(0, 10)], () => moments(state.timeline.slice(0, 10), state.listed ? "No changes yet." : "Waiting for the API server."));
    fill(sources, state.overview.sources, () => el("div", { class: "card" }, el("dl", { class: "facts" }, ...state.overview.sources.flatMap(s => [
      el("dt", {}, s.name), el("dd", {}, s.ok ? status("ok", "read every " + s.every + " s") : s.missing ? el("span", { class: "note" }, s.missing) : status("failed", s.error))]))));
  };
};

function item(kind, name, how, reason, message, at) {
  return el("li", {}, since(at), el("span", { class: "dot " + how, "aria-hidden": "true" }), el("div", {}, kind === "APIService" ? linkTo(name) : el("a", { href: "#namespaces", class: "name" }, name),
    " ", el("span", { class: "sub" }, reason || ""), message && el("p", { class: "sub" }, causeAnd(message))));
}

function moments(list, none) {
  if (list.length === 0) return el("p", { class: "empty" }, none);
  return el("ul", { class: "timeline" }, ...list.map(m => el("li", {},
    el("time", { datetime: m.at, title: m.at }, clock(m.at)), el("span", { class: "dot " + (m.bad ? "bad" : m.good ? "good" : "unknown"), "aria-hidden": "true" }),
    el("div", {}, m.object === "APIService" ? linkTo(m.name) : el("span", { class: "name" }, m.object + " " + m.name), " ", what(m), m.message && el("p", { class: "sub" }, causeAnd(m.message))))));
}

function what(m) {
  const text = m.kind === "event" ? m.reason + (m.count > 1 ? ", " + m.count + " times" : "") :
    (m.kind === "verdict" ? (m.to === "True" ? "reached" : "not reached") + " by " + m.what : m.what === m.to ? m.what : m.what + " " + (m.from ? m.from + " → " : "is ") + m.to) + (m.reason ? ", " + m.reason : "");
  return el("span", { class: "sub" }, text);
}

// filterBox is kept while a view stays.
function filterBox(label, changed) {
  return el("input", { type: "search", id: "filter", placeholder: "Filter", "aria-label": label, autocomplete: "off", spellcheck: "false", on: { input: e => changed(e.target.value.trim().toLowerCase()) } });
}

views.apiservices = () => {
  let text = "", local = false, shown = rowsAtOnce;
  const body = el("tbody"), table = el("table", { class: "wide dense" }, el("caption", { class: "hidden" }, "APIServices"),
    el("thead", {}, el("tr", {}, ...["APIService", "State", "Server", "Replicas", "Since", "Reason"].map(t => el("th", { scope: "col" }, t)))), body);
  const more = el("div", { class: "more" }), count = el("p", { class: "note", role: "status" }), missing = el("div"), rows = new Map();
  const update = () => {
    let list = sorted();
    if (!local) list = list.filter(r => r.state !== "local");
    if (text) list = list.filter(r => [r.name, r.service, r.gateway, r.reason, r.message, r.degraded ? "degraded" : r.state].some(t => t && t.toLowerCase().includes(text)));
    const visible = list.slice(0, shown), names = new Set(visible.map(r => r.name));
    const focused = body.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    for (const [name, e] of rows) if (!names.has(name)) { e.remove(); rows.delete(name); }
    visible.forEach((r, i) => {
      let e = rows.get(r.name);
      if (!e) rows.set(r.name, e = el("tr"));
      if (body.children[i] !== e) body.insertBefore(e, body.children[i] || null);
      fill(e, r, () => [
        el("td", {}, linkTo(r.name)), el("td", {}, status(r.degraded ? "degraded" : r.state)),
        el("td", {}, r.service ? way(r, true) : el("span", { class: "sub" }, "served by the API server itself")),
        el("td", {}, verdicts(r)), el("td", { class: "when" }, since(r.since)),
        el("td", { class: "reason" }, r.state !== "available" && r.state !== "local" && (r.message ? el("p", { class: "sub" }, causeAnd(r.message)) : r.reason),
          (r.notes || []).length > 0 && el("div", { class: "tags" }, ...r.notes.map(n => tag(noteText(n), "warn", n.message)))),
      ]);
    });
    // A line that moves loses the focus.
    if (focused && !body.contains(document.activeElement)) [...body.querySelectorAll("a")].find(a => a.getAttribute("href") === focused)?.focus({ preventScroll: true });
    fill(more, [list.length, shown, state.listed, text], () => list.length === 0 ? el("p", { class: "note" }, !state.listed ? "Waiting for the API server." : text ? "No APIServices match the filter." : "No APIServices with a backend.") :
      list.length > shown && el("button", { id: "more", on: { click: () => { shown += rowsAtOnce; update(); say(Math.min(shown, list.length) + " shown"); } } }, "Show " + Math.min(rowsAtOnce, list.length - shown) + " more"));
    const bad = list.filter(r => r.state === "unavailable").length;
    fill(count, [state.listed, list.length, bad], () => document.createTextNode(state.listed ? quantity(list.length, "APIService") + (bad ? ", " + bad + " unavailable" : "") : ""));
    fill(missing, absentKey("APIServices"), () => absent("APIServices"));
  };
  main.append(head("APIServices", null, filterBox("Filter APIServices", t => { text = t; shown = rowsAtOnce; update(); }),
    el("label", { class: "check" }, el("input", { type: "checkbox", on: { change: e => { local = e.target.checked; update(); } } }), "Local ones too"), count), missing, el("div", { class: "card flush" }, table, more));
  return update;
};

// measure is a chart with its latest number and its scale. time has the number of points and the seconds that they span.
function measure(title, lines, time, unit, least, note, limit) {
  const value = last(lines[0].values), text = lines.filter(l => !l.faint || value === null).map(l => l.name + " " + number(last(l.values), unit)).join(", ");
  const svg = chart(), top = scaleOf(lines, least, limit);
  draw(svg, title + ": " + text, lines, time.points, top);
  return el("div", { class: "measure" }, el("p", { class: "label" }, el("span", {}, title), el("b", {}, note || number(value, unit))), svg,
    el("p", { class: "scale" }, el("span", {}, "0 to " + number(top, unit) + (top === limit ? ", the limit" : "")), el("span", {}, lasting(time.span))));
}
const lasting = seconds => "last " + (seconds >= 120 ? Math.round(seconds / 60) + " min" : Math.round(seconds) + " s");

// addressOf lets an IPv6 address wrap after its colons.
const addressOf = a => a.startsWith("[") ? a.split(/(?<=:)/).flatMap(part => [part, el("wbr")]) : a;

function backendCard(b, time) {
  const s = b.series, probing = last(s.median) === null, lines = probing ? [{ name: "probe", values: s.probe, look: "faint" }] :
    [{ name: "median", values: s.median }, { name: "95th percentile", values: s.slowest, look: "second" }];
  const top = scaleOf((b.endpoints || []).map(e => ({ values: e.series.inFlight })), 10);
  const endpoints = (b.endpoints || []).length > 0 && el("div", { class: "endpoints" }, el("table", {}, el("caption", { class: "hidden" }, "Endpoints of " + b.name),
    el("thead", {}, el("tr", {}, ...["Endpoint", "State", "In flight", "0 to " + top + ", " + lasting(time.span), "Ejections"].map((t, i) => el("th", { scope: "col", class: i === 3 ? "trend" : i > 1 ? "num" : "" }, t)))),
    el("tbody", {}, ...b.endpoints.map(e => {
      const svg = chart();
      const lines = [{ values: e.series.inFlight }, { values: e.series.ejections, steps: true }];
      draw(svg, "requests in flight at " + e.address + ", now " + e.inFlight, lines, time.points, top);
      return el("tr", {}, el("td", {}, el("span", { class: "mono" }, addressOf(e.address)), e.zone && el("span", { class: "sub" }, " " + e.zone), e.state !== "well" && e.lastFailure && el("p", { class: "sub" }, causeAnd(e.lastFailure))),
        el("td", {}, status(e.state)), el("td", { class: "num" }, number(e.inFlight)), el("td", { class: "trend" }, svg), el("td", { class: "num" }, number(e.ejections)));
    }))));
  return el("article", { class: "card", "aria-label": b.name + " seen by " + b.replica + (b.trust ? ", " + b.trust : "") }, el("div", { class: "head" }, el("h3", {}, b.name), b.trouble ? tag("trouble", "bad") : null), el("p", { class: "sub" }, "seen by " + b.replica + (b.trust ? ", certificate: " + b.trust : "")),
    el("div", { class: "charts" },
      measure("In flight", [{ name: "in flight", values: s.inFlight }, { name: "ejections", values: s.ejections, steps: true, faint: true }], time, "", 10, undefined, b.limit),
      measure("Requests", [{ name: "requests", values: s.rate }, { name: "failed", values: s.failures, look: "bad" }], time, "/s", 1),
      measure(probing ? "Probe" : "Latency", lines, time, "ms", 10, probing ? undefined : number(last(s.median)) + " · " + number(last(s.slowest)) + " ms"),
      measure("Ejections", [{ name: "ejections", values: s.ejections }], time, "", 10)), endpoints);
}

views.endpoints = () => {
  const missing = el("div"), cards = el("div", { class: "cards servers" }), count = el("p", { class: "note", role: "status" });
  main.append(head("Endpoints", "Extension servers as each replica sees them: latency is the median and the 95th percentile of the time to the response headers.", count), el("h2", { class: "hidden" }, "Extension servers"), missing, cards);
  return () => {
    const { shown, total } = state.backends;
    fill(count, [shown.length, total], () => document.createTextNode(shown.length < total ? "The " + shown.length + " busiest of " + total + "; an APIService's own page has all of its" : quantity(total, "backend")));
    fill(missing, absentKey("front door"), () => absent("front door"));
    fill(cards, [shown, state.listed, !!sourceOf("front door")?.missing], () => shown.length > 0 ? shown.map(b => backendCard(b, state.backends)) : state.listed && !sourceOf("front door")?.missing && el("p", { class: "note" }, "No APIServices with a backend."));
  };
};

views.timeline = () => {
  let text = "";
  const body = el("div", { class: "card flush" }), missing = el("div");
  const update = () => {
    const list = state.timeline.filter(m => !text || [m.name, m.reason, m.message, m.what].some(t => t && t.toLowerCase().includes(text))).slice(0, 200);
    fill(body, [list, text], () => moments(list, text ? "No changes match the filter." : "No changes yet."));
    fill(missing, absentKey("Events"), () => absent("Events"));
  };
  main.append(head("Timeline", "Changes of conditions, verdicts of replicas, and Events, latest first.", filterBox("Filter the timeline", t => { text = t; update(); })), missing, body);
  return update;
};

views.namespaces = () => {
  const body = el("div", { class: "card flush" }), debts = el("div", { class: "card flush" }), missing = el("div"), missingDebts = el("div");
  main.append(head("Namespaces", "Those that are being deleted, and who holds them up."), missing, body,
    el("section", { "aria-labelledby": "h-debts" }, el("h2", { id: "h-debts" }, "Cleanup debts"), missingDebts, debts));
  return () => {
    fill(missing, absentKey("namespaces"), () => absent("namespaces"));
    fill(missingDebts, absentKey("debts"), () => absent("debts"));
    const n = state.namespaces;
    fill(body, n, () => !n || n.shown.length === 0 ? el("p", { class: "empty" }, n ? "No namespaces are being deleted." : "Waiting for the API server.") : el("table", { class: "wide" }, el("caption", { class: "hidden" }, "Namespaces that terminate"),
      el("thead", {}, el("tr", {}, ...["Namespace", "State", "Held up by", "Since"].map(t => el("th", { scope: "col" }, t)))),
      el("tbody", {}, ...n.shown.map(x => el("tr", {}, el("td", { class: "name" }, x.name), el("td", {}, x.stuck ? status("failed", "stuck") : status("running", "terminating")),
        el("td", {}, ...(x.by || []).map(c => el("p", {}, c.kind + " ", c.kind === "APIService" ? linkTo(c.name) : el("span", { class: "name" }, c.name), " ", el("span", { class: "sub" }, c.why || ""))),
          ...(x.conditions || []).map(c => el("p", { class: "sub" }, c.type + ": " + c.message))), el("td", { class: "when" }, since(x.since)))))));
    const d = state.debts;
    debts.hidden = !d;
    fill(debts, d, () => !d || d.shown.length === 0 ? el("p", { class: "empty" }, "No cleanup debts.") : el("table", { class: "wide" }, el("caption", { class: "hidden" }, "Cleanup debts"),
      el("thead", {}, el("tr", {}, ...["Namespace", "Group-version", "APIService", "State", "Since"].map(t => el("th", { scope: "col" }, t)))),
      el("tbody", {}, ...d.shown.map(x => el("tr", {}, el("td", { class: "name" }, x.namespace, el("p", { class: "sub mono" }, x.id)), el("td", {}, x.groupVersion), el("td", {}, linkTo(x.apiService.split("/")[0])),
        el("td", {}, x.state, x.message && el("p", { class: "sub" }, x.message)), el("td", { class: "when" }, since(x.since)))))));
  };
};

views.routes = () => {
  const body = el("div", { class: "cards" }), missing = el("div");
  main.append(head("Routes", "APIRoutes, with the requests that each backend gets from all of its APIServices together."), el("h2", { class: "hidden" }, "APIRoutes"), missing, body);
  return () => {
    fill(missing, absentKey("APIRoutes"), () => absent("APIRoutes"));
    const r = state.routes;
    fill(body, r, () => {
      if (!r) return null;
      if (r.shown.length === 0) return sourceOf("APIRoutes")?.missing ? null : el("p", { class: "note" }, "No APIRoutes.");
      return r.shown.map(x => {
        const total = x.backends.reduce((sum, b) => sum + (b.rate || 0), 0);
        return el("article", { class: "card", "aria-label": x.name }, el("div", { class: "head" }, el("h3", {}, linkTo(x.name)), status(x.state)), x.message && el("p", { class: "sub" }, causeAnd(x.message)),
          el("div", { class: "charts" }, ...x.backends.map(b => el("div", {}, measure(b.name, [{ name: "requests a second", values: b.series }], { points: state.backends.points, span: state.backends.span }, "/s", 1, total > 0 && b.rate !== null ? number(b.rate, "/s") + " · " + Math.round(100 * b.rate / total) + " %" : number(b.rate, "/s")),
            el("p", { class: "sub" }, status(b.state), " " + (b.service || "") + (b.version ? ", version " + b.version : "")), b.state !== "available" && b.message && el("p", { class: "sub" }, causeAnd(b.message))))),
          (x.rules || []).length > 0 && el("dl", { class: "facts" }, ...x.rules.flatMap(rule => [el("dt", {}, "rule " + rule.name), el("dd", {}, rule.to.join(", "), rule.fallback && ", else " + rule.fallback, rule.readOnly && ", reads only",
            (rule.rolledBack || []).length > 0 && " ", (rule.rolledBack || []).length > 0 && tag("rolled back: " + rule.rolledBack.join(", "), "bad"), ...(rule.notes || []).map(n => el("p", { class: "sub" }, n.type + " " + n.status + ", " + n.reason + ": " + n.message)))])));
      });
    });
  };
};

// Runs of the doctor and of drills.
const runs = new Map();
async function load(id) {
  try { runs.set(id, await ask("api/runs/" + id)); } catch (e) { runs.set(id, { error: e.message }); }
  redraw();
}
async function begin(path, body, text) {
  try { await ask(path, body); say(text); } catch (e) { say(e.message); alertBox(e.message); }
}
function alertBox(text) {
  document.getElementById("alert")?.remove();
  main.querySelector(".head").after(el("p", { class: "missing error", id: "alert", role: "alert" }, text));
}
const running = () => state.jobs.find(j => j.state === "running");

function runList(kind, show) {
  const list = state.jobs.filter(j => j.kind === kind);
  if (list.length === 0) return el("p", { class: "empty" }, "No runs yet.");
  return list.map((j, i) => {
    if (j.state !== "running" && i === 0 && !runs.has(j.id)) { runs.set(j.id, null); load(j.id); }
    const r = runs.get(j.id);
    const open = e => { if (e.target.open && !runs.has(j.id) && j.state !== "running") { runs.set(j.id, null); load(j.id); } };
    return el("details", { "data-id": "run-" + j.id, open: i === 0, on: { toggle: open } },
      el("summary", {}, el("span", { class: "name" }, j.target), status(j.state === "done" ? (j.broken ? "broken" : "ok") : j.state, j.state === "done" ? (j.broken ? j.broken + " of " + j.checked + (kind === "doctor" ? " broken" : " failed") : j.checked + " checked, all well") : j.state),
        j.phase && el("span", { class: "sub" }, j.phase), el("span", { class: "sub" }, clock(j.began)),
        j.state === "running" && el("button", { id: "cancel", on: { click: e => { e.preventDefault(); begin("api/runs/" + j.id + "/cancel", {}, "cancelled"); } } }, "Cancel")),
      el("div", { class: "inside" }, j.error && el("p", { class: "missing error" }, j.error), r && r.error && el("p", { class: "missing error" }, r.error), r && show(r)));
  });
}

function doctorReport(r) {
  return el("div", { class: "inside" }, el("div", {}, r.available && status(r.available.status, "Available " + r.available.status), el("p", { class: "sub" }, (r.gateway ? "gateway " + r.gateway.service + " → " : "") + (r.service || "local"))),
    r.broken && el("div", { class: "cause" }, el("p", {}, el("b", {}, "Broken at " + r.broken.hop), r.broken.found ? ": " + r.broken.found : ""), el("p", { class: "sub" }, r.broken.cause)),
    r.broken && (r.broken.mend || []).length > 0 && el("div", {}, el("h3", {}, "What to do"), el("pre", {}, r.broken.mend.join("\n"))),
    el("ul", { class: "hops" }, ...r.hops.map(h => el("li", {}, el("span", { class: "name" }, h.name), status(h.state), el("span", {}, h.found || "")))));
}

const doctorRun = r => (r.reports || []).length === 1 ? doctorReport(r.reports[0]) : el("div", {}, ...(r.reports || []).map(one => el("details", { "data-id": "report-" + r.id + one.apiService },
  el("summary", {}, el("span", { class: "name" }, one.apiService), one.broken ? status("broken", "broken at " + one.broken.hop) : status("ok")), doctorReport(one))),
  r.leftOut && el("p", { class: "note" }, r.leftOut + " more, none of them broken unless all above are"));

views.doctor = () => {
  const body = el("div", { class: "card flush" });
  const button = el("button", { class: "main", id: "run", on: { click: () => begin("api/doctor", { apiService: "" }, "the doctor has begun") } }, "Check all APIServices");
  main.append(head("Doctor", "Checks each hop from an APIService to its server, from this machine and through the API server, and says what to do. It only reads.", button), el("h2", { class: "hidden" }, "Runs"), body);
  return () => {
    button.disabled = !!running();
    fill(body, [state.jobs.filter(j => j.kind === "doctor"), [...runs].map(([k, v]) => [k, !!v])], () => runList("doctor", doctorRun));
  };
};

const drillRun = r => el("div", {}, ...(r.drills || []).map(d => el("details", { "data-id": "drill-" + r.id + d.drill, open: r.drills.length === 1 },
  el("summary", {}, el("span", { class: "name" }, d.drill), status(d.verdict), el("span", { class: "sub" }, d.title)), el("div", { class: "inside" }, d.why && el("p", { class: "note" }, d.why),
    (d.findings || []).length > 0 && el("ul", { class: "timeline" }, ...d.findings.map(f => el("li", {}, el("span"), el("span", { class: "dot " + (f.holds ? "good" : "bad") }), el("div", {}, el("span", { class: "hidden" }, f.holds ? "holds: " : "does not hold: "), f.expected, f.seen && el("p", { class: "sub" }, f.seen))))),
    (d.measures || []).length > 0 && el("dl", { class: "facts" }, ...d.measures.flatMap(m => [el("dt", {}, m.name), el("dd", {}, m.never ? "not within " + number(m.seconds, "s") : number(m.seconds, "s"))])),
    (d.traffic || []).length > 0 && el("table", { class: "wide" }, el("caption", { class: "hidden" }, "Requests"), el("thead", {}, el("tr", {}, ...["Requests for", "Verb", "Phase", "Outcomes", "Median", "Longest"].map((t, i) => el("th", { scope: "col", class: i > 3 ? "num" : "" }, t)))),
      el("tbody", {}, ...d.traffic.map(t => el("tr", {}, el("td", {}, t.who), el("td", {}, t.verb), el("td", {}, t.phase), el("td", {}, Object.entries(t.outcomes).map(([k, v]) => v + " × " + k).join(", ")),
        el("td", { class: "num" }, number(1000 * t.medianSeconds, "ms")), el("td", { class: "num" }, number(1000 * t.maxSeconds, "ms"))))))))));

views.drills = () => {
  const list = el("div", { class: "card flush" }), body = el("div", { class: "card flush" }), where = el("div"), chosen = new Set();
  const button = el("button", { class: "main", id: "run", on: { click: () => begin("api/drills", { names: [...chosen] }, "the drills have begun") } }, "Run");
  const update = () => {
    const d = state.drills;
    button.disabled = !!running() || chosen.size === 0 || !d.where;
    button.textContent = chosen.size > 1 ? "Run " + chosen.size + " drills" : "Run the drill";
    fill(where, [d.where, d.why], () => el("p", { class: "missing" }, d.where ? "They run on " + d.where + "." : d.why));
    fill(list, d, () => el("table", { class: "wide" }, el("caption", { class: "hidden" }, "Drills"), el("thead", {}, el("tr", {}, ...[d.where && "", "Drill", "What happens", "About"].filter(t => t !== undefined).map(t => el("th", { scope: "col" }, t || el("span", { class: "hidden" }, "Chosen"))))),
      el("tbody", {}, ...d.drills.map(x => el("tr", {}, d.where && el("td", {}, el("input", { type: "checkbox", "aria-label": "choose " + x.name, on: { change: e => { e.target.checked ? chosen.add(x.name) : chosen.delete(x.name); update(); } } })),
        el("td", { class: "name" }, x.name), el("td", {}, x.title), el("td", { class: "when" }, x.about))))));
    fill(body, [state.jobs.filter(j => j.kind === "drills"), [...runs].map(([k, v]) => [k, !!v])], () => runList("drills", drillRun));
  };
  main.append(head("Drills", "Rehearsed failures of extension servers. Each drill starts its own servers in its own namespaces, and removes them.", button), where,
    el("section", { "aria-labelledby": "h-runs" }, el("h2", { id: "h-runs" }, "Runs"), body), el("section", { "aria-labelledby": "h-drills" }, el("h2", { id: "h-drills" }, "All drills"), list));
  return update;
};

views.audit = () => {
  const body = el("div", { class: "card flush" });
  main.append(head("Audit", "What this page did since the console was started, and what was refused. The terminal has the same lines."), body);
  return () => fill(body, state.audit, () => state.audit.length === 0 ? el("p", { class: "empty" }, "No actions yet.") : el("table", { class: "wide" }, el("caption", { class: "hidden" }, "Actions"),
    el("thead", {}, el("tr", {}, ...["Time", "Action", "Result"].map(t => el("th", { scope: "col" }, t)))),
    el("tbody", {}, ...state.audit.map(d => el("tr", {}, el("td", { class: "when" }, clock(d.at)), el("td", {}, el("span", { class: "name" }, d.what), " ", d.target || ""), el("td", {}, d.bad ? status("failed", d.result) : d.result))))));
};

// detail is the page of one APIService. It is asked for anew with every sample.
function detail(name) {
  const top = el("div", { class: "stack" }), body = el("div", { class: "two" }), cards = el("div", { class: "cards servers" }), report = el("div", { class: "card flush" }), history = el("div", { class: "card flush" });
  const button = el("button", { class: "main", id: "run", on: { click: () => begin("api/doctor", { apiService: name }, "the doctor has begun") } }, "Run the doctor");
  main.append(el("div", { class: "head" }, el("div", {}, el("p", { class: "crumb" }, el("a", { href: "#apiservices" }, "APIServices")), el("h1", {}, name)), el("div", { class: "tools" }, button)), top, body,
    el("section", { "aria-labelledby": "h-endpoints" }, el("h2", { id: "h-endpoints" }, "Endpoints"), cards),
    el("div", { class: "two" }, el("section", { "aria-labelledby": "h-report" }, el("h2", { id: "h-report" }, "Doctor"), report), el("section", { "aria-labelledby": "h-history" }, el("h2", { id: "h-history" }, "Timeline"), history)));
  let busy = false, asked = -1, d = null, failed = "", examined = false;
  const update = () => {
    if (!busy && asked !== state.tick) {
      busy = true; asked = state.tick;
      ask("api/apiservices/" + encodeURIComponent(name)).then(r => { d = r; failed = ""; }, e => { failed = e.message; }).then(() => { busy = false; if (current === update) show(); });
    }
    show();
  };
  const show = () => {
    button.disabled = !!running();
    const r = state.rows.get(name);
    // The doctor examines an unavailable APIService once in a visit. The console omits the run if the last one was a moment ago.
    if (r && r.state === "unavailable" && !examined && !running()) {
      examined = true;
      ask("api/doctor", { apiService: name, automatic: true }).then(a => { if (a.busy) examined = false; }, e => alertBox(e.message));
    }
    fill(top, [r, failed, d && d.missing], () => [failed && el("p", { class: "missing error" }, failed), r && el("div", { class: "card" }, el("div", { class: "head" }, r.service ? way(r) : el("span", {}, "Served by the API server itself."), status(r.degraded ? "degraded" : r.state))),
      r && r.message && r.state !== "available" && r.state !== "local" && el("p", { class: "cause" }, el("b", {}, r.reason), ": ", causeAnd(r.message)), d && (d.missing || []).map(m => el("p", { class: "missing" }, m))].flat());
    if (!d) return;
    fill(body, [d.conditions, d.certificate, r && r.verdicts, d.probes && d.probes.map(p => [p.replica, p.up, p.error, Math.round(p.milliseconds)])], () => [
      el("section", { class: "card", "aria-labelledby": "h-replicas" }, el("h2", { id: "h-replicas" }, "Replicas"), !r || (r.verdicts || []).length === 0 ? el("p", { class: "note" }, r && r.service ? "The API server publishes no verdicts of its replicas: the condition Available is that of all." : "No replicas: a local APIService has no backend.") :
        el("dl", { class: "facts" }, ...r.verdicts.flatMap(v => [el("dt", {}, v.of), el("dd", {}, status(v.state, v.state === "available" ? v.replica + " reaches it" : v.state === "unavailable" ? v.replica + " does not reach it" : v.replica + " does not know"), v.state !== "available" && v.message && el("p", { class: "sub" }, causeAnd(v.message)))]),
          ...(d.probes || []).flatMap(p => [el("dt", {}, "probe"), el("dd", {}, status(p.up ? "ok" : "failed", p.up ? number(p.milliseconds, "ms") : p.failures + " failed in a row"), p.error && el("p", { class: "sub" }, causeAnd(p.error)))]))),
      el("section", { class: "card", "aria-labelledby": "h-conditions" }, el("h2", { id: "h-conditions" }, "Conditions"), el("dl", { class: "facts" }, ...d.conditions.flatMap(c => [el("dt", {}, c.type), el("dd", {},
        c.severity && [tag(c.severity, c.severity === "error" ? "bad" : "warn"), " "], c.status + (c.reason ? ", " + c.reason : ""), " ", el("span", { class: "sub" }, since(c.since)), c.message && el("p", { class: "sub" }, c.message))]),
        d.certificate && [el("dt", {}, "certificate"), el("dd", {}, d.insecure && [tag("warning", "warn"), " "], d.certificate + (d.insecure ? ", insecureSkipTLSVerify" : ""))],
        el("dt", {}, "created"), el("dd", {}, since(d.created)), el("dt", {}, "priority"), el("dd", {}, d.groupPriority + ", version " + d.versionPriority)))]);
    fill(cards, [d.backends, d.endpoints], () => (d.backends || []).length > 0 ? d.backends.map(b => backendCard(b, d)) : (d.endpoints || []).length > 0 ?
      el("div", { class: "card" }, el("dl", { class: "facts" }, ...d.endpoints.flatMap(e => [el("dt", { class: "mono" }, e.address), el("dd", {}, status(e.state), " ", el("span", { class: "sub" }, [e.target, e.zone].filter(Boolean).join(", ")))]))) :
      el("p", { class: "note" }, d.service ? "No endpoints are known." : "No endpoints: a local APIService has no backend."));
    fill(history, d.timeline, () => moments(d.timeline, "No changes yet."));
    const job = state.jobs.find(j => j.kind === "doctor" && j.target === name);
    if (job && job.state !== "running" && !runs.has(job.id)) { runs.set(job.id, null); load(job.id); }
    fill(report, [job, job && !!runs.get(job.id)], () => !job ? el("p", { class: "empty" }, "No runs yet.") : job.state === "running" ? el("p", { class: "empty" }, status("running", "checking each hop")) :
      job.error ? el("p", { class: "empty" }, job.error) : runs.get(job.id)?.reports ? doctorReport(runs.get(job.id).reports[0]) : el("p", { class: "empty" }, job.state));
  };
  return update;
}

// The view is the fragment of the address, so that Back works.
let current = () => {}, shown = null;
function route() {
  const [view, name] = location.hash.slice(1).split("/");
  if (location.hash === "#main") return;
  const where = views[view] ? view : "overview", key = where + "/" + (name || "");
  for (const a of document.querySelectorAll("#nav a")) {
    const here = a.getAttribute("href") === "#" + where;
    here ? a.setAttribute("aria-current", "page") : a.removeAttribute("aria-current");
    if (here && shown !== null) a.scrollIntoView({ block: "nearest", inline: "center" });
  }
  if (shown === key) return;
  const first = shown === null;
  shown = key;
  main.replaceChildren();
  current = where === "apiservices" && name ? detail(decodeURIComponent(name)) : views[where]();
  current();
  document.title = main.querySelector("h1").textContent + " · " + (state.overview.context || "Console");
  if (!first) { main.focus({ preventScroll: true }); scrollTo(0, 0); }
}

let drawing = false;
function redraw() {
  if (drawing) return;
  drawing = true;
  requestAnimationFrame(() => { drawing = false; current(); chrome(); });
}

function badge(id, n, bad) {
  const e = document.getElementById(id);
  e.textContent = n ? String(n) : "";
  e.className = "count" + (bad ? " bad" : "");
}
function chrome() {
  const o = state.overview, bad = remote().filter(r => r.state === "unavailable").length, stuck = state.namespaces ? state.namespaces.shown.filter(n => n.stuck).length : 0;
  document.getElementById("context").textContent = o.context || "Console";
  document.getElementById("where").textContent = [o.server, o.version, o.kind].filter(Boolean).join(" · ");
  badge("n-apiservices", bad || remote().length, bad > 0);
  badge("n-endpoints", state.backends.total, false);
  badge("n-namespaces", stuck, stuck > 0);
  badge("n-routes", state.routes && state.routes.total, false);
  const list = sourceOf("APIServices"), ok = state.connected && (!list || list.ok);
  document.querySelector("#link .dot").className = "dot " + (ok ? "good live" : "bad");
  const text = !state.connected ? "the console has ended" : ok ? "live" : "the API server does not answer";
  if (document.getElementById("linktext").textContent !== text) document.getElementById("linktext").textContent = text;
}

function follow() {
  const stream = new EventSource("api/stream");
  const on = (name, f) => stream.addEventListener(name, e => { f(JSON.parse(e.data)); redraw(); });
  stream.onopen = () => { state.connected = true; redraw(); };
  stream.onerror = () => {
    state.connected = false;
    redraw();
    if (stream.readyState === EventSource.CLOSED) gate("This browser has no session here. Start the console again, and open the link that it prints.");
  };
  on("apiservices", c => {
    if (c.complete) state.rows.clear();
    for (const r of c.set || []) {
      const was = state.rows.get(r.name);
      if (was && was.state !== r.state) say(r.name + " is " + r.state);
      state.rows.set(r.name, r);
    }
    for (const name of c.gone || []) state.rows.delete(name);
    state.listed = true;
  });
  for (const name of ["overview", "backends", "timeline", "namespaces", "debts", "routes", "jobs", "drills", "audit", "tick"]) on(name, c => { state[name] = c; });
  stream.addEventListener("beat", () => {});
}

function gate(text) {
  main.replaceChildren(el("div", { class: "gate card" }, el("h1", {}, "Console"), el("p", {}, text)));
  current = () => {};
}

async function start() {
  const token = new URLSearchParams(location.hash.slice(1)).get("token");
  if (token) {
    history.replaceState(null, "", location.pathname); // the token stays neither in the address nor in the history
    try {
      const { path } = await ask("session", { token });
      location.replace(path);
    } catch (e) { gate(e.message); }
    return;
  }
  if (!location.pathname.startsWith("/s/")) {
    gate("Open the link that the console printed. It works once.");
    return;
  }
  addEventListener("hashchange", route);
  route();
  follow();
  // Ages move on without news. Without a front door there are no samples: the page of an APIService is asked for anew by this.
  setInterval(() => {
    for (const t of document.querySelectorAll("[data-since]")) { const text = ago(t.dataset.since); if (t.textContent !== text) t.textContent = text; }
    if (sourceOf("front door")?.missing) { state.tick = (state.tick || 0) + 1; redraw(); }
  }, 2000);
}
start();
