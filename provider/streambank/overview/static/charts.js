// @ts-check
// Plots of a job's measurements: values with their spread, limits, forecast, and marks for what happened.

import { Fragment, h, cx, useEffect, useId, useMemo, useRef, useState } from "./h.js";
import { listOf } from "./entry.js";
import { bytes, clock, count, counted, epoch, figure, time, zone } from "./format.js";
import uPlot from "./uPlot.esm.js";
import { Ago, Bar, Card, Empty, Marked, Pill, notDrawn } from "./ui.js";
import { LEVEL_TONE, LEVELS, MARKED, eventOf, ofSubject, table, titled } from "./words.js";

const HEIGHT = 190;
/** A limit this many times above all values would press the curve flat; it is named instead of drawn. */
const FAR = 2.5;
/** Units that an axis need not repeat at each of its lines. */
const COUNTED = new Set(["rows", "batches", "count", "rows/h"]);
const RANGES = table({ all: ["All", null], day: ["24 h", 86400], six: ["6 h", 21600], hour: ["1 h", 3600] });
const FIRST = ["state_rows", "state_bytes", "batch_duration", "checkpoint_duration", "watermark_lag", "source_lag", "access_latency"];

const seconds = (moment) => (typeof moment === "number" ? moment : epoch(moment));
const numbers = (...values) => values.filter((value) => typeof value === "number" && Number.isFinite(value));

/** All plots of a job, those of the state first. */
export function Charts({ answer, events, line }) {
  const [range, setRange] = useState("all");
  const id = useId();
  const theme = useTheme();
  const missing = notDrawn(answer);
  const charts = answer.data?.charts || [];
  const several = new Set(charts.map((one) => one.query)).size > 1;
  const order = (one) => (FIRST.indexOf(one.objective) + 1 || FIRST.length + 1);
  const shown = useMemo(() => charts.filter((one) => one.t?.length).sort((a, b) => order(a) - order(b)), [charts]);
  const marks = useMemo(() => listOf(events).filter((one) => MARKED.has(one.kind) && epoch(one.at) !== null)
    .map((one) => ({ at: epoch(one.at), ...eventOf(one), kind: one.kind, query: one.query })), [events]);
  const until = Math.max(...shown.map((one) => one.t[one.t.length - 1]), 0);
  return h(Card, {
    title: "Measurements", id,
    aside: shown.length > 0 && h(Fragment, null, h("span", { className: "sb-muted" }, "kept ", h(Ago, { iso: answer.data.at })), h("div", { className: "sb-chips", role: "group", "aria-label": "Time range" },
      Object.entries(RANGES).map(([name, [words]]) =>
        h("button", { key: name, type: "button", className: cx("sb-chip", range === name && "sb-on"), "aria-pressed": range === name,
          onClick: () => setRange(name) }, words)))),
  },
  missing || (shown.length === 0
    ? h(Empty, null, notMeasured(line))
    : h(Fragment, null,
      h("div", { className: "sb-charts" }, shown.map((one) =>
        h(Chart, { key: `${one.query} ${one.objective} ${one.subject}`, chart: one, marks, theme, several,
          from: RANGES[range][1] === null ? null : until - RANGES[range][1] }))),
      h(Legend, { marks }))));
}

/** Why there is nothing to draw. */
const UNMEASURED = table({
  "repository-lost": "Measurements were among the job's records, and are lost with them. New ones come with the first batch after a restore.",
  "checkpoint-lost": "There are no measurements: the checkpoint is gone, and the records have none of its batches. New ones come with the first batch after a restore.",
  unreadable: "The job's records cannot be read, so it is not known what was measured.",
});
const notMeasured = (line) => (UNMEASURED[line?.state] || (line?.batch > 0 ? "No measurements of its batches are known." : "No batch has been measured yet."));

function Chart({ chart, marks, theme, from, several }) {
  const place = useRef(null);
  const [tip, setTip] = useState(null);
  const id = useId();
  const newest = newestOf(chart);
  useEffect(() => {
    const plot = drawn(place.current, chart, marks, from, setTip);
    const resized = new ResizeObserver(() => plot.setSize({ width: place.current.clientWidth, height: HEIGHT }));
    resized.observe(place.current);
    return () => {
      resized.disconnect();
      plot.destroy();
    };
  }, [chart, marks, theme, from]);
  const limits = [["warns at", chart.warn], ["broken at", chart.breach]].filter(([, value]) => typeof value === "number")
    .map(([words, value]) => `${words} ${figure(value, chart.unit)}`).join(", ");
  const title = titled(chart.objective) + ofSubject(chart.subject) + (several ? ` (${chart.query})` : "");
  return h("figure", { className: "sb-chart", "aria-labelledby": id },
    h("figcaption", { id },
      h("span", { className: "sb-chart-title", title: chart.meaning }, title),
      h("strong", { title: `measured ${time(newest.iso)}` }, figure(newest.value, chart.unit)),
      chart.level && chart.level !== "ok" && h(Pill, { tone: LEVEL_TONE[chart.level] }, LEVELS[chart.level]),
      h("small", { className: "sb-muted" }, [limits || "no limit", ahead(chart)].filter(Boolean).join(" · "))),
    h("div", { className: "sb-plot", ref: place, role: "img", "aria-label": `${title}: ${summary(chart)}` },
      tip && h("div", { className: "sb-tip", style: { left: tip.left, top: tip.top }, "aria-hidden": true },
        h("strong", null, tip.value), h("span", null, tip.at), tip.spread && h("span", null, tip.spread),
        tip.marks.map((one, index) => h("span", { key: index, className: `sb-text-${one.tone}` }, one.words)))));
}

/** The newest value, and when it was measured; of a snapshot of an earlier release the last point, which may be a median. */
export function newestOf({ newest, t, v }) {
  const [value, at] = newest ? [newest.value, newest.at] : [v[v.length - 1], t[t.length - 1]];
  return { value, iso: new Date(at * 1000).toISOString() };
}

/** What a plot shows, for who cannot see it. */
function summary(chart) {
  const all = numbers(...chart.v, ...(chart.low || []), ...(chart.high || []));
  if (!all.length) return "no values";
  const newest = newestOf(chart);
  return `${figure(newest.value, chart.unit)} at ${time(newest.iso)}, between ${figure(Math.min(...all), chart.unit)} and ` +
    `${figure(Math.max(...all), chart.unit)} since ${time(new Date(chart.t[0] * 1000).toISOString())}`;
}

function ahead({ forecast, unit }) {
  if (!forecast || !forecast.grows || typeof forecast.expected !== "number") return "";
  return `${figure(forecast.expected, unit)} expected by ${time(new Date(seconds(forecast.end) * 1000).toISOString())}`;
}

/** From when to when a plot goes: in a chosen range the forecast gets as much room as the past, at most. */
export function span(from, low, high, newest) {
  const begin = from === null ? low : Math.max(from, low);
  const end = from === null ? high : Math.min(high, Math.max(newest, from) + (newest - from > 0 ? newest - from : 60));
  return [begin, end <= begin ? begin + 60 : end];
}

/** A chart whose line ends at each restart and begins again after it: nothing was measured between. */
export function withGaps(chart) {
  const restarts = (chart.restarts || []).map(seconds).filter((at) => at > chart.t[0] && at <= chart.t[chart.t.length - 1]);
  const all = chart.t.map((at, index) => [at, chart.v[index], chart.high?.[index], chart.low?.[index]]);
  // The first batch of a run may have been measured in the second in which the run began.
  restarts.forEach((at) => all.push([chart.t.includes(at) ? at - 0.5 : at, null, null, null]));
  all.sort(([a], [b]) => a - b);
  const column = (index) => all.map((one) => one[index]);
  return { ...chart, t: column(0), v: column(1), high: chart.high?.length ? column(2) : chart.high, low: chart.low?.length ? column(3) : chart.low };
}

/** Where a value stands alone between gaps, so that no line goes through it. */
export const alone = (values) => values.flatMap((value, index) =>
  (typeof value === "number" && typeof values[index - 1] !== "number" && typeof values[index + 1] !== "number" ? [index] : []));

function drawn(place, whole, marks, from, setTip) {
  const chart = withGaps(whole);
  const colour = colours(place);
  const { forecast, unit } = chart;
  const far = forecast && seconds(forecast.end);
  const began = forecast && seconds(forecast.begin);
  const more = far ? [began, far] : [];
  const empty = more.map(() => null);
  const data = [
    [...chart.t, ...more],
    [...chart.v, ...empty],
    [...(chart.high?.length ? chart.high : chart.v), ...empty],
    [...(chart.low?.length ? chart.low : chart.v), ...empty],
  ];
  if (far) {
    const blank = chart.t.map(() => null);
    data.push([...blank, forecast.value, forecast.expected]);
    data.push([...blank, forecast.value, forecast.high ?? forecast.expected]);
    data.push([...blank, forecast.value, forecast.low ?? forecast.expected]);
  }
  const drawnHigh = numbers(...data[2], forecast?.expected);
  const top = Math.max(...drawnHigh, 0);
  const limits = [["warn", chart.warn], ["bad", chart.breach]].filter(([, value]) => typeof value === "number" && value <= top * FAR);
  const highest = Math.max(top, ...limits.map(([, value]) => value)) || 1;
  const least = Math.min(...numbers(...data[3]), ...limits.map(([, value]) => value));
  // Of values that are all the same it begins at zero: an axis without a length is never finished.
  const floor = least < 0 || (least > highest * 0.6 && least < highest) ? least - (highest - least) * 0.15 : 0;
  const plain = { points: { show: false } };
  const line = (stroke, extra = {}) => ({ ...plain, stroke, width: 1.75, ...extra });
  const options = {
    width: place.clientWidth || 320,
    height: HEIGHT,
    padding: [14, 8, 0, 0],
    legend: { show: false },
    tzDate: (at) => uPlot.tzDate(new Date(at * 1000), zone()),
    cursor: { sync: { key: "streambank" }, points: { size: 7 }, y: false },
    scales: {
      x: { range: (_, low, high) => span(from, low, high, chart.t[chart.t.length - 1]) },
      y: { range: () => [floor, highest + (highest - floor) * 0.08] },
    },
    axes: [
      { stroke: colour.muted, grid: { stroke: colour.grid, width: 1 }, ticks: { show: false }, font: colour.font, values: axisTimes, space: 70, size: 30 },
      { stroke: colour.muted, grid: { stroke: colour.grid, width: 1 }, ticks: { show: false }, font: colour.font, size: 66,
        values: (_, ticks) => ticks.map((tick) => (tick === null ? "" : COUNTED.has(unit) ? count(tick) : figure(tick, unit))) },
    ],
    series: [
      {},
      line(colour.line, { points: { show: false, filter: () => alone(data[1]), size: 6, fill: colour.line } }),
      line(undefined, { width: 0 }),
      line(undefined, { width: 0 }),
      ...(far ? [line(colour.line, { dash: [5, 4] }), line(undefined, { width: 0 }), line(undefined, { width: 0 })] : []),
    ],
    bands: [{ series: [2, 3], fill: colour.band }, ...(far ? [{ series: [5, 6], fill: colour.forecast }] : [])],
    hooks: {
      draw: [(plot) => drawLimits(plot, limits, colour), (plot) => drawMarks(plot, chart, marks, colour)],
      setCursor: [(plot) => setTip(tipOf(plot, chart, marks))],
    },
  };
  return new (/** @type {any} */ (uPlot))(options, data, place);
}

const axisTimes = (plot, ticks) => {
  const wide = plot.scales.x.max - plot.scales.x.min > 2 * 86400;
  return ticks.map((tick) => {
    const iso = new Date(tick * 1000).toISOString();
    return wide ? time(iso).split(",")[0] : clock(iso).slice(0, 5);
  });
};

function drawLimits(plot, limits, colour) {
  const { ctx, bbox } = plot;
  for (const [tone, value] of limits) {
    const y = Math.round(plot.valToPos(value, "y", true)) + 0.5;
    ctx.save();
    ctx.strokeStyle = colour[tone];
    ctx.lineWidth = devicePixelRatio;
    ctx.setLineDash([6 * devicePixelRatio, 3 * devicePixelRatio]);
    ctx.beginPath();
    ctx.moveTo(bbox.left, y);
    ctx.lineTo(bbox.left + bbox.width, y);
    ctx.stroke();
    ctx.restore();
  }
}

function drawMarks(plot, chart, marks, colour) {
  const { ctx, bbox } = plot;
  const all = [
    ...(chart.restarts || []).map((at) => ({ at: seconds(at), tone: "warn", thin: true })),
    ...marks.filter((one) => !one.query || one.query === chart.query),
  ];
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, 0, bbox.width, bbox.top + bbox.height);
  ctx.clip();
  for (const { at, tone, kind, thin } of all) {
    const x = Math.round(plot.valToPos(at, "x", true)) + 0.5;
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    ctx.strokeStyle = ctx.fillStyle = colour[tone] || colour.muted;
    ctx.lineWidth = devicePixelRatio;
    ctx.globalAlpha = thin || kind === "savepoint-taken" ? 0.35 : 0.8;
    if (kind !== "savepoint-taken") {
      ctx.setLineDash([2 * devicePixelRatio, 3 * devicePixelRatio]);
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
    }
    if (thin) continue;
    ctx.globalAlpha = 1;
    const size = 4 * devicePixelRatio;
    ctx.beginPath();
    ctx.moveTo(x - size, bbox.top - size * 2);
    ctx.lineTo(x + size, bbox.top - size * 2);
    ctx.lineTo(x, bbox.top - 1);
    ctx.fill();
  }
  ctx.restore();
}

function tipOf(plot, chart, marks) {
  const { left, idx } = plot.cursor;
  if (idx === null || idx === undefined || left < 0) return null;
  const expected = idx >= chart.t.length;
  const value = expected ? plot.data[4]?.[idx] : chart.v[idx];
  if (typeof value !== "number") return null;
  const low = chart.low?.[idx];
  const high = chart.high?.[idx];
  const at = plot.data[0][idx];
  const near = marks.filter((one) => Math.abs(plot.valToPos(one.at, "x") - left) < 6);
  const iso = new Date(at * 1000).toISOString();
  const x = plot.valToPos(at, "x") + plot.bbox.left / devicePixelRatio;
  return {
    left: Math.min(Math.max(0, x + 10), Math.max(0, plot.width - 190)),
    top: 22,
    value: `${figure(value, chart.unit)}${expected ? " expected" : ""}`,
    at: `${time(iso).split(",")[0]}, ${clock(iso)}`,
    spread: typeof low === "number" && typeof high === "number" && low !== high ? `${figure(low, chart.unit)} to ${figure(high, chart.unit)}` : "",
    marks: near.slice(0, 4),
  };
}

/** Colours of the present theme, for the canvas. */
function colours(place) {
  const style = getComputedStyle(place);
  const of = (name) => style.getPropertyValue(`--sb-${name}`).trim();
  return {
    line: of("line"), band: of("band"), forecast: of("forecast"), grid: of("grid"), muted: of("muted"), warn: of("warn"), bad: of("bad"),
    ok: of("ok"), info: of("info"), font: `11px ${style.fontFamily}`,
  };
}

/** Light or dark, as Airflow says; changes when the user switches. */
function useTheme() {
  const read = () => document.documentElement.className;
  const [theme, set] = useState(read);
  useEffect(() => {
    const watched = new MutationObserver(() => set(read()));
    watched.observe(document.documentElement, { attributes: true, attributeFilter: ["class", "data-theme"] });
    return () => watched.disconnect();
  }, []);
  return theme;
}

function Legend({ marks }) {
  const kinds = [...new Map(marks.map((one) => [one.words, one])).values()];
  return h("p", { className: "sb-legend" },
    h("span", null, h("i", { className: "sb-key sb-key-band" }), "smallest to largest"),
    h("span", null, h("i", { className: "sb-key sb-key-forecast" }), "forecast"),
    h("span", null, h("i", { className: "sb-key sb-key-warn" }), "warns"),
    h("span", null, h("i", { className: "sb-key sb-key-bad" }), "broken"),
    kinds.map((one) => h("span", { key: one.words }, h("i", { className: `sb-mark sb-text-${one.tone}`, "aria-hidden": true }, "▼"), one.words)));
}

/** The largest partitions of the state, and how much larger than the mean they are. */
export function Partitions({ answer }) {
  const id = useId();
  const partitions = answer.data?.partitions || [];
  if (!partitions.length) return null;
  const sorted = [...partitions].sort((a, b) => (b.bytes || 0) - (a.bytes || 0));
  const most = sorted[0].bytes || 1;
  const stores = answer.data.stores || [];
  const total = stores.reduce((sum, one) => sum + (one.partitions || 0), 0);
  const mean = (total ? stores.reduce((sum, one) => sum + (one.bytes || 0), 0) : sorted.reduce((sum, one) => sum + (one.bytes || 0), 0)) / (total || sorted.length);
  const named = (one) => [one.query !== "main" && one.query, one.name ? `${one.name} (${one.operator})` : `operator ${one.operator}`, one.store && one.store !== "default" && one.store,
    `partition ${one.partition}`].filter(Boolean).join(", ");
  return h(Card, { title: "Partitions by size", id, aside: h("span", { className: "sb-muted" },
    `${counted(total || sorted.length, "partition")}, the largest is ${Number((most / (mean || 1)).toPrecision(2))} times the mean`) },
  h("ol", { className: "sb-partitions" }, sorted.slice(0, 16).map((one) =>
    h("li", { key: named(one) },
      h("span", null, named(one)),
      h(Bar, { share: (one.bytes || 0) / most, tone: one.bytes > mean * 3 ? "warn" : "info", label: bytes(one.bytes) }),
      h("span", { className: "sb-right" }, bytes(one.bytes), typeof one.rows === "number" && h("small", null, counted(one.rows, "row")))))),
  sorted.length > 16 && h("p", { className: "sb-muted" }, `and ${(total || sorted.length) - 16} smaller ones`),
  stores.filter((one) => one.uneven && one.advice).map((one) => h("p", { key: named(one), className: "sb-cure" }, h("strong", null, "What to do: "), h(Marked, { text: one.advice }))));
}

