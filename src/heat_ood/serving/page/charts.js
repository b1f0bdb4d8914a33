// Drawings: each fills an element with one SVG of the width that there is.

const SVG = "http://www.w3.org/2000/svg";

export function fixed(value) {
  return value.toFixed(2).replace("-", "−");
}

export function number(value, digits = 2) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e6 || size < 1e-4) {
    const [mantissa, exponent] = value.toExponential(1).split("e");
    return `${mantissa} · 10${[...String(Number(exponent))].map((c) => SUPERSCRIPTS[c]).join("")}`;
  }
  const text = value.toLocaleString("en", { maximumSignificantDigits: Math.max(digits, Math.ceil(Math.log10(size))) });
  return text.replace("-", "−");
}

const SUPERSCRIPTS = { "-": "⁻", ...Object.fromEntries([..."⁰¹²³⁴⁵⁶⁷⁸⁹"].map((c, i) => [String(i), c])) };

function element(name, attributes = {}, text = null) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, String(value));
  if (text !== null) made.textContent = text;
  return made;
}

function canvas(place, height, label) {
  const width = Math.max(200, place.clientWidth);
  const svg = element("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": label });
  place.replaceChildren(svg);
  const add = (name, attributes, text) => svg.appendChild(element(name, attributes, text));
  return { width, add };
}

// Where text stands at x, so that half of its width is not cut off.
function anchored(x, width, half) {
  return x < half ? "start" : x > width - half ? "end" : "middle";
}

// The calibration scores with the score of one image: what lies at or beyond it is its p-value.
export function histogram(place, { edges, counts }, threshold, { score, ood }, label) {
  const { width, add } = canvas(place, 168, label);
  const [first, last] = [edges[0], edges.at(-1)];
  const span = last - first || 1;
  const low = Math.max(Math.min(first, score), first - span / 2) - span * 0.02;
  const high = Math.min(Math.max(last, score), last + span / 2) + span * 0.02;
  const x = (value) => ((Math.min(Math.max(value, low), high) - low) / (high - low)) * width;
  const most = Math.max(...counts, 1);
  const [top, base] = [34, 138];

  counts.forEach((count, i) => {
    if (count === 0) return;
    const height = Math.max(1.5, (count / most) * (base - top));
    const [left, right] = [x(edges[i]), x(edges[i + 1])];
    const far = edges[i] >= score || (edges[i + 1] >= score && i === counts.length - 1);
    const bar = { x: left + 0.5, width: Math.max(1, right - left - 1), y: base - height, height };
    add("rect", { class: far ? (ood ? "unlike" : "like") : "bar", ...bar });
  });
  add("line", { class: "axis", x1: 0, x2: width, y1: base + 0.5, y2: base + 0.5 });
  if (threshold !== null) {
    const at = x(threshold.score);
    add("line", { class: "limit", x1: at, x2: at, y1: 22, y2: base });
    add("text", { x: at, y: base + 17, "text-anchor": anchored(at, width, 30) }, `${threshold.rate} line`);
  }
  const at = x(score);
  const off = score > high ? " →" : score < low ? "← " : "";
  const words = off === "← " ? `${off}this image` : `this image${off}`;
  add("line", { class: "here", x1: at, x2: at, y1: 20, y2: base });
  add("circle", { class: "knob", cx: at, cy: base, r: 4.5 });
  add("text", { class: "strong", x: at, y: 13, "text-anchor": anchored(at, width, 44) }, words);
}

// A bar from zero, to the right where a part is more unusual than usual, on a scale from low to high.
export function bar(value, low, high) {
  const box = `${low} 0 ${high - low || 1} 1`;
  const svg = element("svg", { viewBox: box, preserveAspectRatio: "none", "aria-hidden": "true" });
  const kind = value < 0 ? "less" : "more";
  const [x, width] = [Math.min(value, 0), Math.abs(value)];
  svg.appendChild(element("rect", { class: kind, x, y: 0.08, width, height: 0.84 }));
  svg.appendChild(element("line", { class: "zero", x1: 0, x2: 0, y1: -0.15, y2: 1.15 }));
  return svg;
}

// The last scores, the newest at the right; what is unlike the training data points up.
export function strip(place, results, range, threshold, label) {
  const { width, add } = canvas(place, 150, label);
  const [top, base, right] = [10, 128, width - 8];
  const scores = results.map((one) => one.score);
  const [first, last] = range ?? [Math.min(...scores), Math.max(...scores)];
  const span = last - first || 1;
  const low = Math.max(Math.min(first, ...scores), first - span);
  const high = Math.min(Math.max(last, ...scores), last + span);
  const y = (value) => base - ((Math.min(Math.max(value, low), high) - low) / (high - low || 1)) * (base - top);
  const step = Math.min(12, right / 199);
  const shown = results.slice(-Math.floor(right / Math.max(step, 3) + 1));

  add("line", { class: "axis", x1: 0, x2: width, y1: base + 10.5, y2: base + 10.5 });
  if (threshold !== null) {
    const at = y(threshold.score);
    add("line", { class: "limit", x1: 0, x2: width, y1: at, y2: at });
    add("text", { x: 0, y: 150 }, `dashed: the ${threshold.rate} line`);
  }
  shown.forEach((one, i) => {
    const at = [right - (shown.length - 1 - i) * Math.max(step, 3), y(one.score)];
    if (one.ood) add("path", { class: "unlike", d: `M${at[0]} ${at[1] - 4.5}l4.5 8h-9z` });
    else add("circle", { class: "like", cx: at[0], cy: at[1], r: 2.8 });
  });
  add("text", { x: width, y: 150, "text-anchor": "end" }, "now");
}

// Evidence on a scale of powers of ten, with its largest value and where the alarm is.
export function evidence(place, now, largest, alarm, label) {
  const { width, add } = canvas(place, 150, label);
  const low = -2;
  const high = Math.max(Math.log10(alarm) + 2, Math.ceil(largest) + 1);
  const x = (value) => ((Math.min(Math.max(value, low), high) - low) / (high - low)) * width;
  const [y, height] = [58, 22];
  const limit = x(Math.log10(alarm));

  add("rect", { class: "track", x: 0, y, width, height, rx: 4 });
  const kind = now >= Math.log10(alarm) ? "unlike" : "like";
  add("rect", { class: kind, x: 0, y, width: Math.max(3, x(now)), height, rx: 4 });
  if (largest > now + 0.02) add("line", { class: "most", x1: x(largest), x2: x(largest), y1: y - 4, y2: y + height + 4 });
  add("line", { class: "limit", x1: limit, x2: limit, y1: y - 16, y2: y + height + 8 });
  add("text", { x: limit, y: y - 22, "text-anchor": anchored(limit, width, 20) }, "alarm");
  const every = Math.max(1, Math.ceil((high - low) / (width < 420 ? 5 : 8)));
  for (let power = low; power <= high; power += 1) {
    if ((power - Math.log10(alarm)) % every !== 0) continue;
    add("text", { x: x(power), y: y + height + 24, "text-anchor": anchored(x(power), width, 24) }, power10(power));
  }
}

export function power10(power) {
  if (power >= -2 && power <= 4) return (10 ** power).toLocaleString("en");
  return `10${[...String(power)].map((c) => SUPERSCRIPTS[c]).join("")}`;
}
