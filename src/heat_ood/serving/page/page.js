// The service's page: give it an image, read the verdict, watch the stream. Foreign text is only ever textContent.

import { bar, evidence, fixed, histogram, number, power10, strip } from "./charts.js";
import { Failed, blob, get, score } from "./service.js";

const $ = (id) => document.getElementById(id);
const EVERY = 1000; // milliseconds between two looks at the stream
let info = null;
let shown = null; // the last answer, to draw it again in another width
let stream = null;
let pending = null;

function made(name, text, className) {
  const node = document.createElement(name);
  if (text !== undefined) node.textContent = text;
  if (className !== undefined) node.className = className;
  return node;
}

function show(id, visible) {
  $(id).hidden = !visible;
}

function percent(share) {
  if (share > 0.999 && share < 1) return "over 99.9 %";
  return `${(100 * share).toLocaleString("en", { maximumSignificantDigits: share > 0.99 ? 3 : 2 })} %`;
}

// What is served

async function introduce() {
  info = await get("v1/info");
  const { about, classes, calibration, fpr } = info;
  const model = about?.seen?.model;
  const facts = [
    typeof model === "string" ? model : about?.method,
    classes && `${classes.length.toLocaleString("en")} classes`,
    calibration && `${calibration.samples.toLocaleString("en")} held-out samples`,
    calibration && `${percent(fpr)} false alarms`,
  ];
  $("served").textContent = facts.filter(Boolean).join(" · ");
  $("version").textContent = `heat-ood ${info.version}`;
  if (!info.takes.includes("images")) {
    show("how", false);
    $("drop").disabled = true;
    $("ask").replaceChildren(made("strong", "Features, not images"));
    fail(new Failed("This detector judges features, not images. Send them to /v1/score."));
  } else {
    offer().catch(() => show("offered", false));
  }
}

async function offer() {
  const { samples } = await get("samples");
  show("offered", samples.length > 0);
  $("offers").replaceChildren(...samples.map(offered));
}

function offered({ name, url }) {
  const button = made("button", name);
  button.type = "button";
  button.title = name;
  const image = blob(url.replace(/^\//, ""));
  image.then((found) => {
    const picture = made("img");
    picture.alt = name;
    picture.src = URL.createObjectURL(found);
    button.replaceChildren(picture);
  }, () => {}); // its name stays, and a click says what is wrong
  button.addEventListener("click", () => image.then((found) => judge(found, name), fail));
  const item = made("li");
  item.append(button);
  return item;
}

// One image

async function judge(file, name) {
  pending?.abort();
  const own = new AbortController();
  pending = own;
  preview(file, name);
  if (shown === null) $("verdict").replaceChildren(made("p", "Judging…", "empty"));
  $("answer").setAttribute("aria-busy", "true");
  try {
    const most = info?.limits.body_bytes ?? Infinity;
    if (file.size > most) throw new Failed(`${name} has ${bytes(file.size)}, and at most ${bytes(most)} are taken.`);
    const result = await score(file, name, own.signal);
    if (own !== pending) return;
    shown = result;
    show("wrong", false);
    tell(result);
    draw();
    $("verdict").scrollIntoView({ block: "nearest" });
    await look();
  } catch (error) {
    if (own === pending) fail(error);
  } finally {
    if (own === pending) $("answer").setAttribute("aria-busy", "false");
  }
}

function bytes(count) {
  return count < 1e6 ? `${Math.ceil(count / 1e3)} kB` : `${(count / 1e6).toFixed(1)} MB`;
}

function fail(error) {
  if (error.name === "AbortError") return;
  shown = null;
  $("verdict").className = "verdict";
  $("verdict").replaceChildren();
  draw();
  $("wrong").textContent = error instanceof Failed ? error.message : "The page failed. Load it again.";
  show("wrong", true);
  $("wrong").scrollIntoView({ block: "nearest" });
  if (!(error instanceof Failed)) console.error(error);
}

function preview(file, name) {
  const image = $("preview");
  if (image.src) URL.revokeObjectURL(image.src);
  image.onload = () => {
    image.classList.toggle("tiny", image.naturalWidth < 100);
    reveal(true);
  };
  image.onerror = () => reveal(false);
  image.alt = name;
  image.src = URL.createObjectURL(file);
}

function reveal(visible) {
  show("preview", visible);
  show("ask", !visible);
  $("drop").classList.toggle("filled", visible);
  $("how").textContent = visible ? "Choose, drop or paste another" : "or drop one here, or paste it";
}

function tell(result) {
  const { ood, verdict, p_value: p, class: found } = result;
  const place = $("verdict");
  place.className = ood === null ? "verdict" : ood ? "verdict unlike" : "verdict like";
  const said = verdict === null ? "No verdict: not calibrated" : verdict[0].toUpperCase() + verdict.slice(1);
  place.replaceChildren(made("p", ood ? `${said}: p = ${number(p)}` : said, "said"), made("p", why(result), "why"));

  const facts = made("dl", undefined, "facts");
  const add = (term, value) => {
    const pair = facts.appendChild(made("div"));
    pair.append(made("dt", term), made("dd", value));
  };
  if (found) add("Taken for", found.name);
  if (found) add("Probability", percent(found.probability));
  if (p !== null) add("p-value", number(p));
  add("Score", number(result.score, 3));
  place.append(facts);
}

function why({ ood, p_value: p, class: found, fpr }) {
  if (ood === null) return "The detector has no held-out samples to compare with. Calibrate it to have a verdict.";
  const share = `${percent(p)} of held-out images are at least as unusual`;
  if (!ood) return `About ${share}. Below ${percent(fpr)} it would be called unlike.`;
  const doubt = found ? ` The model takes it for “${found.name}” all the same: do not rely on that.` : "";
  return `At most ${share}; the line is at ${percent(fpr)}.${doubt}`;
}

function threshold(fpr) {
  const found = Object.entries(info?.calibration?.thresholds ?? {}).find(([rate]) => Number(rate) === fpr);
  return found === undefined ? null : { rate: percent(fpr), score: found[1] };
}

function draw() {
  const bins = info?.calibration?.histogram;
  show("ranked", Boolean(shown && bins));
  show("composed", Boolean(shown?.terms));
  if (shown && bins) {
    const many = info.calibration.samples.toLocaleString("en");
    const beyond = info.about.calibration?.per_class
      ? "the p-value counts those of the same predicted class."
      : "to the right of the line, those at least as unusual.";
    const words = `Scores of the ${many} held-out samples; ${beyond}`;
    $("ranked-words").textContent = words;
    histogram($("histogram"), bins, threshold(shown.fpr), shown, `${words} p = ${number(shown.p_value)}.`);
  }
  if (shown?.terms) terms(shown.terms, shown.score);
}

function terms(parts, score) {
  const values = [0, score, ...parts.map(({ value }) => value)];
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const line = (name, value, className) => {
    const item = made("li", undefined, className);
    item.append(made("span", name), bar(value, low, high), made("span", fixed(value), "value"));
    return item;
  };
  const lines = parts.map(({ name, value }) => line(name, value));
  $("terms").replaceChildren(...lines, line("score", score, "sum"));
}

// The stream

async function look() {
  try {
    if (info === null) await introduce();
    stream = await get("v1/recent");
    show("silent", false);
    watch();
  } catch (error) {
    $("silent").textContent = error instanceof Failed ? error.message : "The page failed. Load it again.";
    show("silent", true);
    if (!(error instanceof Failed)) console.error(error);
  }
}

function watch() {
  if (stream === null) return;
  const { results, drift } = stream;
  const unlike = results.filter(({ ood }) => ood).length;
  const words = results.length === 0 ? "Nothing has been judged yet." : counted(results.length, unlike);
  say("strip-words", words);
  const edges = info?.calibration?.histogram.edges;
  if (results.length > 0) strip($("strip"), results, edges && [edges[0], edges.at(-1)], threshold(info?.fpr), words);
  const told = drifting(drift);
  say("drift-words", told, drift?.alarm ? "alarm" : "soft");
  if (drift) evidence($("drift"), drift.log10_evidence, drift.largest_log10_evidence, drift.alarm_at, told);
}

function say(id, words, className = "soft") {
  if ($(id).textContent !== words) $(id).textContent = words;
  $(id).className = className;
}

function counted(all, unlike) {
  const last = all === 1 ? "The last sample is" : `Of the last ${all.toLocaleString("en")} samples,`;
  if (all === 1) return `${last} ${unlike ? "unlike" : "like"} the training data.`;
  return `${last} ${unlike === 0 ? "none is" : unlike === 1 ? "1 is" : `${unlike} are`} unlike the training data.`;
}

function drifting(drift) {
  if (drift === null) return "Drift is not watched.";
  const many = `${drift.samples.toLocaleString("en")} ${drift.samples === 1 ? "sample" : "samples"}`;
  if (!drift.alarm) {
    const most = `largest ${number(10 ** drift.largest_log10_evidence)}, alarm at ${number(drift.alarm_at)}`;
    const sign = drift.evidence < 10 ? "Nothing says" : "There is a sign, and no proof,";
    return `${number(drift.evidence)} after ${many} (${most}). ${sign} that the stream has changed.`;
  }
  const since = new Date(1000 * drift.alarm_since).toLocaleString([], { dateStyle: "medium", timeStyle: "short" });
  const start = drift.likely_start === null ? "" : ` It probably began at sample ${drift.likely_start.toLocaleString("en")}.`;
  const most = power10(Math.floor(drift.largest_log10_evidence));
  return `Alarm since ${since}: the stream is no longer like the held-out samples.${start} Evidence above ${most}.`;
}

// What the reader does

function take(files) {
  const file = [...(files ?? [])][0];
  if (file) judge(file, file.name || "pasted image");
}

function listen() {
  $("drop").addEventListener("click", () => $("file").click());
  $("file").addEventListener("change", () => {
    take($("file").files);
    $("file").value = "";
  });
  document.addEventListener("paste", (event) => take(event.clipboardData?.files));
  for (const name of ["dragenter", "dragover"]) document.addEventListener(name, (event) => hover(event, true));
  for (const name of ["dragleave", "drop"]) document.addEventListener(name, (event) => hover(event, false));
  document.addEventListener("drop", (event) => take(event.dataTransfer?.files));
  document.addEventListener("visibilitychange", () => document.hidden || look());
  new ResizeObserver(() => {
    draw();
    watch();
  }).observe(document.body);
}

function hover(event, over) {
  event.preventDefault();
  $("drop").classList.toggle("over", over);
}

async function begin() {
  listen();
  for (;;) {
    if (!document.hidden) await look();
    await new Promise((resolve) => setTimeout(resolve, EVERY));
  }
}

begin();
