// Small charts as inline SVG. The numbers are beside them as text; a chart is an image with a name.

const ns = "http://www.w3.org/2000/svg";
const width = 240, height = 48, pad = 2;

function make(name, attributes) {
  const e = document.createElementNS(ns, name);
  for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
  return e;
}

// path joins points that are numbers, with gaps where there is none. The latest point is at the right.
function path(values, span, top) {
  let d = "", open = false;
  const step = (width - 2 * pad) / Math.max(1, span - 1), first = span - values.length;
  values.forEach((v, i) => {
    if (v === null) { open = false; return; }
    const x = pad + (first + i) * step, y = height - pad - (height - 2 * pad) * Math.min(1, v / top);
    const next = values[i + 1];
    if (!open && (next === null || next === undefined)) d += `M${(x - 0.5).toFixed(1)} ${y.toFixed(1)}h1`;
    else d += (open ? "L" : "M") + x.toFixed(1) + " " + y.toFixed(1);
    open = true;
  });
  return d;
}

export function last(values) {
  for (let i = (values || []).length - 1; i >= 0; i--) if (values[i] !== null) return values[i];
  return null;
}

// scaleOf returns the maximum of the axis: a round number that is at least least, so that a small value looks small. Near the limit it is
// the limit.
export function scaleOf(lines, least, limit) {
  const most = Math.max(least, ...lines.filter(l => !l.steps).flatMap(l => l.values || []).filter(v => v !== null));
  if (limit && most >= limit / 2) return Math.max(limit, most);
  const unit = 10 ** Math.floor(Math.log10(most));
  return [1, 2, 5, 10].map(f => f * unit).find(v => v >= most * 0.999);
}

// draw fills a figure with lines: {name, values, look, steps}. Steps are counters of failures: each increase is a mark at the top.
export function draw(svg, label, lines, span, top) {
  const parts = [make("line", { x1: 0, x2: width, y1: height - 1, y2: height - 1, class: "axis" })];
  for (const l of lines) {
    const values = (l.values || []).slice(-span);
    if (l.steps) {
      const step = (width - 2 * pad) / Math.max(1, span - 1), first = span - values.length;
      values.forEach((v, i) => {
        const before = values[i - 1];
        if (i > 0 && v !== null && before !== null && v > before) {
          const x = pad + (first + i) * step;
          parts.push(make("line", { x1: x, x2: x, y1: 0, y2: height / 4, class: "mark" }));
        }
      });
      continue;
    }
    if (l.look === "bad" && !values.some(v => v > 0)) continue; // red is for failures only
    const d = path(values, span, top);
    if (d) parts.push(make("path", { d, class: "line " + (l.look || "") }));
  }
  svg.replaceChildren(...parts);
  svg.setAttribute("aria-label", label);
}

export function chart() {
  return make("svg", { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", class: "chart", role: "img", "aria-label": "no data yet" });
}

// number writes a number in few characters.
export function number(v, unit = "") {
  if (v === null || v === undefined) return "–";
  const a = Math.abs(v);
  const text = a >= 10000 ? (v / 1000).toFixed(0) + " k" : a >= 100 || Number.isInteger(v) ? v.toFixed(0) : a >= 10 ? v.toFixed(1) : a === 0 ? "0" : v.toFixed(a < 0.1 ? 3 : 2);
  return unit ? text + " " + unit : text;
}
