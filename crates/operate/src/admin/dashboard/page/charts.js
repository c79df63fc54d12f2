// Small charts in SVG. Each has a description for those who cannot see it, and its values as a table beside it.

import { h, s } from "./dom.js";
import { number } from "./text.js";

/** The width in which charts are drawn: near that of their column, so that their letters keep their size. */
function wide() {
  const page = document.documentElement.clientWidth;
  return Math.max(280, Math.min(540, page < 1000 ? page - 72 : 500));
}

const EDGE = { left: 52, right: 18, top: 14, bottom: 40 };

/** About `wanted` round numbers from `low` to `high`. */
function ticks(low, high, wanted = 4) {
  const raw = (high - low || 1) / wanted;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((size) => size >= raw);
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9) * step; at <= high + step * 1e-9; at += step) {
    found.push(Math.abs(at) < step * 1e-9 ? 0 : at);
  }
  return found;
}

function frame({ width, height, x, y, xTicks, yTicks, xName, xFormat, yFormat, label }, ...marks) {
  const [right, bottom] = [width - EDGE.right, height - EDGE.bottom];
  return s(
    "svg",
    { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label, class: "chart" },
    yTicks.map((tick) => [
      s("line", { x1: EDGE.left, x2: right, y1: y(tick), y2: y(tick), class: "grid" }),
      s("text", { x: EDGE.left - 8, y: y(tick) + 4, class: "end" }, yFormat(tick)),
    ]),
    xTicks.map((tick) => s("text", { x: x(tick), y: bottom + 17, class: "middle" }, xFormat(tick))),
    s("line", { x1: EDGE.left, x2: right, y1: bottom, y2: bottom, class: "axis" }),
    s("text", { x: right, y: height - 5, class: "end name" }, xName),
    ...marks,
  );
}

/**
 * Lines over a common axis. A series is `{ name, kind, points }`, with points `[x, y]` or `[x, y, error]`; a level is
 * `{ name, value, kind }`. Kinds are `first`, `second`, `third` and `muted`.
 */
export function lines({ title, about, series, levels = [], xName, xFormat = number, yFormat = number, yTick = yFormat, fromZero = true, xMax }) {
  const points = series.flatMap((one) => one.points);
  if (points.length === 0) return figure(title, about, empty());
  const [width, height] = [wide(), 250];
  const ys = points.flatMap(([, value, error = 0]) => [value - error, value + error]);
  ys.push(...levels.map((level) => level.value));
  let [low, high] = [Math.min(...ys), Math.max(...ys)];
  if (fromZero) low = Math.min(0, low);
  if (high === low) high = low + (Math.abs(low) || 1);
  high += 0.04 * (high - low);
  const first = fromZero && xMax !== undefined ? 0 : Math.min(...points.map(([at]) => at));
  const last = Math.max(xMax ?? -Infinity, ...points.map(([at]) => at), first + 1);
  const x = (at) => EDGE.left + ((at - first) / (last - first)) * (width - EDGE.left - EDGE.right);
  const y = (value) => EDGE.top + ((high - value) / (high - low)) * (height - EDGE.top - EDGE.bottom);
  const drawn = series.map(({ name, kind, points: mine }) => [
    s("path", { class: `line ${kind}`, d: mine.map(([at, value], n) => `${n ? "L" : "M"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`).join("") }),
    mine.map(([at, value, error]) => error === undefined ? null
      : s("line", { class: `error ${kind}`, x1: x(at), x2: x(at), y1: y(value - error), y2: y(value + error) })),
    (mine.length > 40 ? mine.slice(-1) : mine).map(([at, value, error]) => s(
      "circle", { class: `dot ${kind}`, cx: x(at), cy: y(value), r: 3 },
      s("title", {}, `${name}: ${yFormat(value)}${error === undefined ? "" : ` ± ${yFormat(error)}`} at ${xFormat(at)} ${xName}`),
    )),
  ]);
  const flat = levels.map((level) => s(
    "line", { class: `level ${level.kind}`, x1: EDGE.left, x2: width - EDGE.right, y1: y(level.value), y2: y(level.value) },
    s("title", {}, `${level.name}: ${yFormat(level.value)}`),
  ));
  const said = series.filter((one) => one.points.length > 0)
    .map((one) => `${one.name} is ${yFormat(one.points.at(-1)[1])} at ${xFormat(one.points.at(-1)[0])} ${xName}`);
  const label = [`${title}.`, ...said.map((text) => `${text}.`), ...levels.map((level) => `${level.name}: ${yFormat(level.value)}.`)].join(" ");
  const chart = frame({
    width, height, x, y, xName, xFormat, yFormat: yTick, label,
    xTicks: ticks(first, last, 5), yTicks: ticks(low, high),
  }, flat, drawn);
  const rows = series.flatMap((one) => one.points.slice(-12).map(([at, value, error]) => [
    one.name, xFormat(at), error === undefined ? yFormat(value) : `${yFormat(value)} ± ${yFormat(error)}`,
  ]));
  return figure(title, about, legend([...series, ...levels]), chart, table([ "", xName, "value" ], rows));
}

/** Bars: `{ name, value, text }` each, where `value` is null for a count that is hidden. */
export function bars({ title, about, items, xName, level }) {
  if (items.length === 0) return figure(title, about, empty());
  const [width, height] = [wide(), 220];
  const values = items.map((item) => item.value ?? 0);
  const high = Math.max(...values, level?.value ?? 0, 10) * 1.06;
  const room = width - EDGE.left - EDGE.right;
  const step = room / items.length;
  const x = (place) => EDGE.left + step * (place + 0.5);
  const y = (value) => EDGE.top + ((high - value) / high) * (height - EDGE.top - EDGE.bottom);
  const bottom = height - EDGE.bottom;
  const thick = Math.max(1.5, Math.min(48, step * 0.72));
  const drawn = items.map((item, place) => s(
    "rect", {
      class: item.value === null ? "bar hidden-cell" : "bar",
      x: (x(place) - thick / 2).toFixed(1), width: thick.toFixed(1), rx: Math.min(3, thick / 3),
      y: item.value === null ? bottom - 4 : y(item.value).toFixed(1),
      height: item.value === null ? 4 : Math.max(1, bottom - y(item.value)).toFixed(1),
    }, s("title", {}, `${item.name}: ${item.text}`),
  ));
  const flat = level === undefined ? null
    : s("line", { class: "level second", x1: EDGE.left, x2: width - EDGE.right, y1: y(level.value), y2: y(level.value) });
  const every = Math.ceil(items.length / Math.max(2, Math.floor(room / 62)));
  const shown = items.map((_, place) => place).filter((place) => place % every === 0);
  const chart = frame({
    width, height, x, y, xName, label: `${title}. ${items.slice(-16).map((item) => `${item.name}: ${item.text}`).join(", ")}.`,
    xTicks: shown, yTicks: ticks(0, high, 3).filter((tick) => Number.isInteger(tick)), xFormat: (place) => items[place].name, yFormat: number,
  }, drawn, flat);
  const key = level === undefined ? null : legend([{ name: level.name, kind: "second" }]);
  return figure(title, about, key, chart, table([xName, "count"], items.slice(-24).map((item) => [item.name, item.text])));
}

/** The stages of a funnel: `{ name, value, text }` each, as bars from left to right. */
export function funnel(stages) {
  const most = Math.max(10, ...stages.map((stage) => stage.value ?? 0));
  return h("ol", { class: "funnel" }, stages.map((stage) => h("li", {},
    h("span", { class: "stage" }, stage.name),
    h("span", { class: "count" }, stage.text),
    s("svg", { viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true" },
      s("rect", { class: "track", x: 0, y: 0, width: 100, height: 8 }),
      s("rect", { class: "bar", x: 0, y: 0, height: 8, width: stage.value === null ? 0.6 : (100 * stage.value) / most })),
  )));
}

/** A share of a whole as a bar, with marks at other shares. */
export function meter({ share, label, marks = [], kind = "" }) {
  const part = Math.max(0, Math.min(1, share));
  return s("svg", { class: `meter ${kind}`, viewBox: "0 0 100 6", preserveAspectRatio: "none", role: "img", "aria-label": label },
    s("rect", { class: "track", x: 0, y: 0, width: 100, height: 6 }),
    s("rect", { class: "bar", x: 0, y: 0, width: (100 * part).toFixed(2), height: 6 }),
    marks.map((mark) => s("rect", { class: "mark", x: (100 * mark - 0.2).toFixed(2), y: 0, width: 0.4, height: 6 })));
}

function legend(parts) {
  const named = parts.filter((part) => part.name);
  return h("ul", { class: "legend" }, named.map((part) => h("li", {},
    h("span", { class: `swatch ${part.kind} ${part.points ? "" : "dashed"}`, "aria-hidden": "true" }), part.name)));
}

function empty() {
  return h("p", { class: "empty" }, "Nothing to draw yet.");
}

function table(heads, rows) {
  return h("details", { class: "values" }, h("summary", {}, "Values"),
    h("div", { class: "scroll", tabindex: "0" }, h("table", {},
      h("thead", {}, h("tr", {}, heads.map((head) => h("th", { scope: "col" }, head)))),
      h("tbody", {}, rows.map((row) => h("tr", {}, row.map((value) => h("td", {}, value))))))));
}

/** A chart with its title and the sentence that explains it. */
export function figure(title, about, ...parts) {
  return h("figure", {}, h("h3", {}, title), parts, about ? h("figcaption", {}, about) : null);
}
