// @ts-check
// All jobs that the user may see, one line each, what needs a person first.

import { Fragment, h, cx, memo, useDeferredValue, useEffect, useMemo, useRef, useState } from "./h.js";
import { POLL_MS, airflowUrl, useAnswer, useImportErrors } from "./api.js";
import { ageOf, entryOf } from "./entry.js";
import { age, bytes, count, counted, figure, shortId } from "./format.js";
import { Go, pageUrl, setQuery, useRoute } from "./route.js";
import { RANK, inStateSince, isLate, isPast, newsOf, shownState, since, toneOf, troubles, unread, unwatched } from "./trouble.js";
import { Ago, Batch, Behind, Contained, Dot, Empty, Ended, Failed, Loading, Pill, Spark, useTick } from "./ui.js";
import { DESIRED, table } from "./words.js";

/** One job as the list sees it. */
function seen(answer) {
  const entry = entryOf(answer);
  const { job, line } = entry;
  const found = troubles(entry);
  return { entry, job, line, found, tone: toneOf(entry, found), text: searched(job, line, found) };
}

const searched = (job, line, found) =>
  [job, line?.state, line?.site, line?.desired?.by, ...found.map((one) => `${one.what} ${one.why}`)].join(" ").toLowerCase();

/** The lists that can be chosen, by trouble. */
const SHOWN = table({
  all: ["All", () => true],
  trouble: ["Need attention", (one) => one.tone === "bad" || one.tone === "warn"],
  bad: ["Broken", (one) => one.tone === "bad"],
  waits: ["Wait for a person", (one) => waiting(one) > 0],
  unwatched: ["Not watched", (one) => watched(one).tone === "bad"],
  stopped: ["Stopped", (one) => one.line?.desired?.state === "stopped" || one.line?.state === "stopped"],
});

const waiting = (one) => one.entry.approvals.length + (one.line?.waits || []).length;

/** Who keeps the job running, and whether that is well. */
function watched({ entry, line }) {
  if (!line) return { tone: "off", words: "–" };
  const meant = line.desired?.state === "running";
  if (meant && entry.run?.paused) return { tone: "bad", words: "run is paused" };
  if (!line.watch) return { tone: "off", words: "not known" };
  if (line.watch.watched && isPast(entry)) return { tone: "off", words: "not known" };
  if (line.watch.watched) return { tone: "ok", words: "watched", by: line.watch.by, at: line.watch.seen_at };
  if (unwatched(line)) return { tone: "bad", words: "no watcher", at: line.watch.seen_at, why: line.watch.why };
  if (line.watch.expected) return { tone: "off", words: "not yet" };
  return { tone: "off", words: meant ? "started by hand" : line.desired ? "not needed" : "not known" };
}

const numberOr = (value, none) => (typeof value === "number" ? value : none);
/** After so long a line says how old it is. */
const SEEN_S = 300;

const ageOr = (iso, none = -1) => numberOr(ageOf(iso), none);

/** How many objectives have a level; not those that are muted. */
function brokenOf(line, level) {
  const named = (line.verdicts || []).filter((one) => one.level === level);
  return Math.max(line.objectives?.[level] || 0, named.length) - named.filter((one) => one.mute).length;
}

/** How lines are sorted: heading, and a figure or text of a job; larger figures first. */
const SORTS = table({
  trouble: ["Job", (one) => -RANK[one.tone] * 1e12 + (one.found[0]?.urgent ? 5e11 : 0) + Math.min(4e11, ageOr(one.found[0]?.since, 0))],
  name: ["Name", null],
  state: ["State", (one) => -RANK[shownState(one.entry).tone]],
  watch: ["Watched", (one) => -RANK[watched(one).tone]],
  batch: ["Newest batch", (one) => ageOr(one.line?.batch_at)],
  lag: ["Lag", (one) => numberOr(one.line?.lag?.value, numberOr(one.line?.watermark_lag_s, -1))],
  size: ["State size", (one) => numberOr(one.line?.state_bytes, -1)],
  verdicts: ["Objectives", ({ line }) => (line ? brokenOf(line, "breach") * 1000 + brokenOf(line, "warn") : 0)],
  savepoint: ["Savepoint", (one) => (one.line ? ageOr(one.line.savepoint?.taken_at, 1e12) : -1)],
  drill: ["Drill", (one) => ageOr(one.line?.drill?.at)],
  waits: ["Waits", waiting],
});
const COLUMNS = ["trouble", "state", "watch", "batch", "lag", "size", "verdicts", "savepoint", "drill", "waits"];

function sorted(all, by, upwards) {
  const figureOf = SORTS[by][1];
  const order = all.map((one) => [figureOf ? figureOf(one) : 0, one]);
  order.sort(([a, one], [b, other]) => b - a || one.job.localeCompare(other.job));
  const lines = order.map(([, one]) => one);
  return upwards ? lines.reverse() : lines;
}

export function JobList() {
  const answer = useAnswer("jobs");
  const { query } = useRoute();
  useTick(POLL_MS);
  const [text, setText] = useFilterText(query.get("q") || "");
  const searchedFor = useDeferredValue(text.trim().toLowerCase());
  const shown = SHOWN[query.get("show")] ? query.get("show") : "all";
  const by = SORTS[query.get("sort")] ? query.get("sort") : "trouble";
  const upwards = query.get("up") === "1";

  const jobs = answer.data?.jobs;
  // Ages decide what is wrong, so it is judged again at each tick.
  const all = useMemo(() => (jobs || []).map(seen), [jobs, Math.floor(Date.now() / POLL_MS)]);
  const matching = useMemo(() => all.filter((one) => !searchedFor || one.text.includes(searchedFor)), [all, searchedFor]);
  const lines = useMemo(() => sorted(matching.filter(SHOWN[shown][1]), by, upwards), [matching, shown, by, upwards]);

  const broken = useImportErrors(Boolean(answer.data?.import_errors));

  if (answer.loading) return h(Fragment, null, h(Head, { all: [] }), h(Loading));
  if (answer.data === undefined) return h(Fragment, null, h(Head, { all: [] }), h(Failed, { error: answer.error, again: answer.again }));
  if (!all.length) {
    return h(Fragment, null, h(Head, { all }), h(NotImported, { files: broken }), h(Empty, null,
      "There is no streaming job that you may see. Jobs appear here once Airflow has read a DAG that works on them: one that streaming_jobs.toml declares, or one of your own whose tasks name the job."));
  }
  return h(Fragment, null,
    h(Head, { all }),
    h(Behind, { answer }),
    h(NotImported, { files: broken }),
    h(Filters, { all: matching, text, setText, shown, by, upwards }),
    lines.length ? h(Table, { lines, by, upwards }) : h(Empty, null, "No job matches. ",
      h("button", { type: "button", className: "sb-link", onClick: () => (setText(""), setQuery({ show: null })) }, "Show all jobs")));
}

/** DAG files of which Airflow has no DAGs, or old ones: a job that they declare may be missing here. */
function NotImported({ files }) {
  if (!files.length) return null;
  const names = files.slice(0, 3).map((one) => one.filename);
  return h("p", { className: "sb-behind", role: "status" },
    `Airflow cannot import ${files.more ? "at least " : ""}${counted(files.length, "DAG file")}: ${names.join(", ")}${files.length > names.length ? ", …" : ""}. If streaming jobs are declared there, they may be missing here. `,
    h("a", { href: airflowUrl() }, "See Airflow's Home"));
}

/** What is typed, at once; the address follows when one has stopped typing: browsers limit how often it changes. */
function useFilterText(said) {
  const [text, setText] = useState(said);
  const written = useRef(said);
  useEffect(() => {
    if (said === written.current) return;
    written.current = said;
    setText(said);
  }, [said]);
  useEffect(() => {
    if (text === written.current) return undefined;
    const timer = setTimeout(() => {
      written.current = text;
      setQuery({ q: text });
    }, 350);
    return () => clearTimeout(timer);
  }, [text]);
  return [text, setText];
}

function Head({ all }) {
  const bad = all.filter((one) => one.tone === "bad");
  const warn = all.filter((one) => one.tone === "warn");
  const worst = bad[0] || warn[0];
  return h("header", { className: "sb-head" },
    h("h1", { tabIndex: -1 }, "Streaming jobs"),
    all.length > 0 && h("p", { className: "sb-summary", role: "status" },
      worst === undefined
        ? h(Pill, { tone: "ok" }, `${counted(all.length, "job")}, none needs attention`)
        : h(Fragment, null,
          bad.length > 0 && h(Pill, { tone: "bad" }, `${counted(bad.length, "job")} broken`),
          warn.length > 0 && h(Pill, { tone: "warn" }, `${counted(warn.length, "job")} with a warning`),
          h("span", { className: "sb-muted" }, `of ${counted(all.length, "job")}`))));
}

function Filters({ all, text, setText, shown, by, upwards }) {
  return h("div", { className: "sb-filters", role: "search" },
    h("input", {
      type: "search", className: "sb-input", placeholder: "Filter by name, state or problem", "aria-label": "Filter jobs", value: text,
      onChange: (event) => setText(event.target.value),
    }),
    h("div", { className: "sb-chips", role: "group", "aria-label": "Which jobs" },
      Object.entries(SHOWN).map(([name, [words, matches]]) =>
        h("button", {
          key: name, type: "button", className: cx("sb-chip", shown === name && "sb-on"), "aria-pressed": shown === name,
          onClick: () => setQuery({ show: name === "all" ? null : name }),
        }, words, h("span", { className: "sb-count" }, count(all.filter(matches).length))))),
    h("label", { className: "sb-sort-narrow" }, "Sort by ",
      h("select", { className: "sb-input", value: by, onChange: (event) => setQuery({ sort: event.target.value, up: null }) },
        Object.entries(SORTS).map(([name, [words]]) => h("option", { key: name, value: name }, name === "trouble" ? "What is wrong" : words))),
      h("button", { type: "button", className: "sb-button", "aria-label": "Turn the order round", onClick: () => setQuery({ up: upwards ? null : "1" }) },
        upwards ? "↑" : "↓")));
}

function Table({ lines, by, upwards }) {
  return h("div", { className: "sb-table", role: "table", "aria-label": "Streaming jobs", "aria-rowcount": lines.length + 1 },
    h("div", { className: "sb-row sb-row-head", role: "row" },
      COLUMNS.map((name) =>
        h("span", { key: name, role: "columnheader", "aria-sort": by === name ? (upwards ? "ascending" : "descending") : "none" },
          h("button", { type: "button", className: "sb-sort", onClick: () => setQuery(by === name ? { up: upwards ? null : "1" } : { sort: name, up: null }) },
            SORTS[name][0], h("span", { "aria-hidden": true, className: "sb-arrow" }, by === name ? (upwards ? "↑" : "↓") : ""))))),
    lines.map((one) => h(Line, { key: one.job, one, drawn: drawnOf(one) })));
}

/** What a line shows, as one text: a line is drawn again when that changes, not at each answer. */
const drawnOf = ({ line, entry, found }) =>
  JSON.stringify([line?.at, line?.batch_at && age(ageOf(line.batch_at)), line?.savepoint?.taken_at && age(ageOf(line.savepoint.taken_at)),
    line?.at && age(ageOf(line.at)), entry.run, entry.approvals, found.map((one) => [one.what, since(one.since)]), entry.error]);

const Cell = ({ label, children, className }) =>
  h("span", { role: "cell", className: cx("sb-cell", className), "data-label": label }, h("span", { className: "sb-value" }, children));

const unknown = (words) => h(Cell, { label: "", className: "sb-span" }, h("span", { className: "sb-muted" }, words));

const Line = memo(function Line({ one }) {
  const { job, line, found, tone } = one;
  const worst = found[0];
  const serious = worst && RANK[worst.tone] < RANK.info;
  const news = newsOf(line);
  return h("div", { role: "row", className: cx("sb-row", `sb-row-${tone}`) },
    h("span", { role: "rowheader", className: "sb-cell sb-cell-job" },
      h("span", { className: "sb-value" },
        h("span", { className: "sb-job" }, h(Dot, { tone, label: { bad: "broken", warn: "warning", ok: "well", info: line?.state === "running" ? "runs; see beside" : "not running, or at work", off: "not running" }[tone] || tone }),
          h(Go, { to: [job], className: "sb-job-link" }, job), line?.site && h("span", { className: "sb-muted" }, line.site)),
        worst && h("span", { className: cx("sb-reason", serious && `sb-text-${worst.tone}`), title: worst.why },
          worst.what, worst.since && h("span", { className: "sb-muted" }, ` ${since(worst.since)}`),
          found.length > 1 && serious && h("span", { className: "sb-muted" }, ` and ${found.length - 1} more`)),
        news && h("span", { className: "sb-reason sb-muted sb-news", title: news.why }, news.what, h("span", { className: "sb-muted" }, ` ${age(ageOf(news.at))} ago`)),
        line && !worst?.old && ageOf(line.at) > SEEN_S && h("span", { className: cx("sb-reason", isLate(line) ? "sb-text-bad" : "sb-muted") }, "seen ", h(Ago, { iso: line.at })))),
    line ? h(Contained, { otherwise: unknown("what is kept of it cannot be drawn") }, h(Known, { one })) : unknown("no snapshot yet"));
}, (before, after) => before.drawn === after.drawn);

const WAITS = table({ "give-up": "gave up", unfenced: "not fenced" });

function Known({ one }) {
  const { line, entry } = one;
  const state = shownState(entry);
  const watch = watched(one);
  return h(Fragment, null,
    h(Cell, { label: "State" }, h(Pill, { tone: state.tone, title: line.state_why }, state.words),
      h("small", null, [line.desired ? DESIRED[line.desired.state] : "", since(inStateSince(line))].filter(Boolean).join(", "))),
    h(Cell, { label: "Watched" }, watch.tone === "off" ? h("span", { className: "sb-muted" }, watch.words) :
      h("span", { className: `sb-text-${watch.tone}`, title: watch.why || watch.by || undefined }, watch.words),
      watch.at && h("small", null, watch.tone === "bad" ? "last sign " : "sign ", h(Ago, { iso: watch.at }))),
    h(Cell, { label: "Newest batch" }, h(Batch, { line }),
      line.batch_at && h("small", null, h(Ago, { iso: line.batch_at }))),
    h(Cell, { label: "Lag" }, h(Lag, { line })),
    h(Cell, { label: "State size", className: "sb-cell-size" },
      h("span", null, bytes(line.state_bytes), h("small", null, typeof line.state_rows === "number" ? counted(line.state_rows, "row") : "")),
      h(Spark, { values: line.spark?.bytes?.some((each) => typeof each === "number") ? line.spark.bytes : line.spark?.rows,
        label: "State size over the last hours", width: 72 })),
    h(Cell, { label: "Objectives" }, h(Objectives, { line })),
    h(Cell, { label: "Savepoint" }, h(Newest, { line })),
    h(Cell, { label: "Drill" }, line.drill
      ? h(Fragment, null, h(Ended, { drill: line.drill }),
        h("small", null, h(Ago, { iso: line.drill.at })))
      : h("span", { className: "sb-muted" }, unread(line, "recoveries") ? "not known" : "none")),
    h(Cell, { label: "Waits" }, waiting(one)
      ? h("span", { className: "sb-text-warn", title: (line.waits || []).map((each) => each.what).join("\n") },
        [entry.approvals.length > 0 && "approval",
          ...(line.waits || []).map((each) => WAITS[each.kind] || each.kind)].filter(Boolean).join(", "))
      : h("span", { className: "sb-muted" }, "–")));
}

function Lag({ line }) {
  const parts = [];
  if (line.lag && typeof line.lag.value === "number") parts.push(h("span", { key: "lag", title: line.lag.what }, figure(line.lag.value, line.lag.unit)));
  if (typeof line.watermark_lag_s === "number") parts.push(h("small", { key: "event", title: "How far event time is behind" }, "event time ", age(line.watermark_lag_s)));
  return parts.length ? parts : h("span", { className: "sb-muted" }, "–");
}

function Objectives({ line }) {
  const broken = brokenOf(line, "breach");
  const warned = brokenOf(line, "warn");
  if (!broken && !warned) {
    const { ok: kept = 0, unknown = 0 } = line.objectives || {};
    if (!kept) return h("span", { className: "sb-muted" }, line.level ? "no data" : "–");
    return h(Fragment, null, h("span", { className: "sb-text-ok" }, unknown ? `${kept} kept` : `all ${kept} kept`),
      unknown > 0 && h("small", null, `${unknown} without data`));
  }
  return h(Fragment, null,
    broken > 0 && h("span", { className: "sb-text-bad" }, `${broken} broken`),
    warned > 0 && h(broken ? "small" : "span", { className: "sb-text-warn" }, counted(warned, "warning")));
}

function Newest({ line }) {
  return h(Fragment, null,
    line.savepoint
      ? h("span", { title: line.savepoint.id }, h(Ago, { iso: line.savepoint.taken_at }),
        h("small", null, line.savepoint.name || shortId(line.savepoint.id)))
      : h("span", { className: "sb-muted" }, unread(line) ? "not known" : "none verified"),
    (line.replicas || []).map((one) =>
      h("small", { key: one.name, className: cx("sb-ellipsis", one.error && "sb-text-bad"), title: `${one.name}: ${one.savepoint || "none"}` },
        one.name, " ", one.error ? "not read" : one.taken_at ? h(Ago, { iso: one.taken_at }) : "empty")));
}

/** The card on Airflow's Home: how many jobs there are, and the five that need a person most. */
export function HomeCard() {
  const answer = useAnswer("jobs");
  useTick(POLL_MS);
  const all = (answer.data?.jobs || []).map(seen);
  if (answer.loading) return h(Loading);
  if (answer.data === undefined) return h("p", { className: "sb-muted" }, `Streaming jobs are not shown: ${answer.error.message}`);
  if (!all.length) return null;
  const first = sorted(all.filter(SHOWN.trouble[1]), "trouble", false);
  return h("section", { className: "sb-card sb-home", "aria-labelledby": "sb-home-title" },
    h("header", { className: "sb-card-head" }, h("h2", { id: "sb-home-title" }, "Streaming jobs"),
      h("a", { className: "sb-aside", href: pageUrl() }, `All ${counted(all.length, "job")}`)),
    first.length === 0 ? h(Pill, { tone: "ok" }, "None needs attention")
      : h("ul", { className: "sb-home-list" }, first.slice(0, 5).map((one) =>
        h("li", { key: one.job }, h(Dot, { tone: one.tone, label: one.tone === "bad" ? "broken" : "warning" }),
          h("a", { href: pageUrl(one.job) }, one.job), " ", one.found[0].what, one.found[0].since && h("span", { className: "sb-muted" }, ` ${since(one.found[0].since)}`)))),
    first.length > 5 && h("a", { href: `${pageUrl()}?show=trouble` }, `and ${first.length - 5} more`));
}
