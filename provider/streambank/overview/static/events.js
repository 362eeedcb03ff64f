// @ts-check
// What happened to a job, newest first; what the doctor found; what the driver said last.

import { Fragment, h, cx, useId, useMemo, useState } from "./h.js";
import { clock, count, counted, day, duration, shortId } from "./format.js";
import { Ago, At, Card, Empty, Marked, Pill, notDrawn } from "./ui.js";
import { LEVEL_TONE, eventOf, stepOf, table, titled, whoOf } from "./words.js";

const KINDS = table({
  all: ["All", () => true],
  bad: ["Failures", (one) => ["bad", "warn"].includes(eventOf(one).tone)],
  savepoints: ["Savepoints and restores", (one) => /savepoint|restored|reinstated|drilled|refresh|rolled/.test(one.kind)],
  changes: ["By people", (one) => Boolean(one.by) && !/^airflow\b/.test(one.by)],
});

export function Events({ answer, short = false, more = null }) {
  const id = useId();
  const [kind, setKind] = useState("all");
  const [most, setMost] = useState(50);
  const missing = notDrawn(answer);
  const all = useMemo(() => [...(answer.data?.events || [])].sort((a, b) => String(b.at || "").localeCompare(String(a.at || ""))), [answer.data]);
  const shown = all.filter(KINDS[kind][1]).slice(0, short ? 6 : most);
  const days = grouped(shown);
  return h(Card, {
    title: short ? "Last events" : "Events", id,
    aside: short ? more : all.length > 0 && h("div", { className: "sb-chips", role: "group", "aria-label": "Which events" },
      Object.entries(KINDS).map(([name, [words, matches]]) =>
        h("button", { key: name, type: "button", className: cx("sb-chip", kind === name && "sb-on"), "aria-pressed": kind === name, onClick: () => setKind(name) },
          words, h("span", { className: "sb-count" }, count(all.filter(matches).length))))),
  },
  missing || (shown.length === 0 ? h(Empty, null, "Nothing of this kind has happened.")
    : [...days].map(([name, events]) => h("div", { key: name, className: "sb-day" },
      h("h3", null, name),
      h("ol", { className: "sb-events" }, events.map((one, index) => h(Happening, { key: index, one })))))),
  !short && all.filter(KINDS[kind][1]).length > most &&
    h("button", { type: "button", className: "sb-button", onClick: () => setMost(most + 100) }, "Show older ones"));
}

function grouped(events) {
  const days = new Map();
  for (const one of events) days.set(day(one.at), [...(days.get(day(one.at)) || []), one]);
  return days;
}

function Happening({ one }) {
  const { words, tone } = eventOf(one);
  const facts = factsOf(one);
  return h("li", { className: `sb-event sb-event-${tone}` },
    h("span", { className: "sb-event-time" }, h(At, { iso: one.at }, clock(one.at))),
    h("span", { className: `sb-event-mark sb-${tone}`, "aria-hidden": true }),
    h("span", { className: "sb-event-body" },
      h("strong", { className: tone === "bad" ? "sb-text-bad" : undefined }, words),
      one.query && one.query !== "main" && h("span", { className: "sb-muted" }, ` ${one.query}`),
      one.by && h("span", { className: "sb-muted" }, ` by ${whoOf(one.by)}`),
      facts && h("span", { className: "sb-muted" }, ` · ${facts}`),
      (one.why || one.facts?.error || one.facts?.failure) && h("p", null, one.why || one.facts.error || one.facts.failure)));
}

/** How a job was stopped. */
const HOW = table({
  boundary: "at a batch boundary", forced: "its batch was abandoned", killed: "its driver was killed", dead: "its driver had died before",
  none: "no driver ran",
});

/** The facts of an event that a person reads at a glance. */
function factsOf({ facts, kind }) {
  if (!facts) return "";
  const said = [];
  const add = (words) => said.push(words);
  if (facts.savepoint && typeof facts.savepoint === "string") add(shortId(facts.savepoint));
  if (typeof facts.batch === "number") add(`batch ${count(facts.batch)}`);
  if (typeof facts.paused_s === "number") add(`without a batch for ${duration(facts.paused_s)}`);
  if (typeof facts.batches_back === "number") add(`${counted(facts.batches_back, "batch")} back`);
  if (facts.skipped) add(`passed over ${facts.skipped}`);
  if (facts.how) add(HOW[facts.how] || facts.how);
  if (facts.cause) add(`cause: ${facts.cause}`);
  if (typeof facts.exit_code === "number" && facts.exit_code !== 0) add(`exit code ${facts.exit_code}`);
  if (typeof facts.seconds === "number") add(`took ${duration(facts.seconds)}`);
  if (typeof facts.rto_s === "number") add(`back after ${duration(facts.rto_s)}`);
  if (typeof facts.still_s === "number") add(`no batch for ${duration(facts.still_s)}`);
  if (kind === "crash-loop" && Array.isArray(facts.failures)) add(counted(facts.failures.length, "failure"));
  if (facts.step) add(`at “${stepOf(facts.step)}”`);
  if (facts.not_run) add(`application not run: ${facts.not_run}`);
  return said.join(", ");
}

export function Findings({ answer, at, act }) {
  const id = useId();
  const missing = notDrawn(answer, "No check has run yet. `Check now`, or DiagnoseStreamingJobOperator in a DAG of your own, searches for problems ahead.".replaceAll("`", ""));
  const all = answer.data?.findings || [];
  return h(Card, { title: "Problems ahead", id, aside: answer.data ? h(Fragment, null, h("span", { className: "sb-muted" }, "checked ", h(Ago, { iso: at || answer.data.at })), act) : act },
    missing || (all.length === 0 ? h(Empty, null, "The last check found none.")
      : h("ul", { className: "sb-findings" }, all.map((one, index) =>
        h("li", { key: index },
          h(Pill, { tone: LEVEL_TONE[one.level || one.severity] || "info" }, titled(one.code)),
          one.since && h("span", { className: "sb-muted" }, " since ", h(At, { iso: one.since })),
          h("p", null, one.text || one.cause),
          one.text && one.cause && h("p", { className: "sb-muted" }, one.cause),
          (one.cure || one.hint) && h("p", { className: "sb-cure" }, h("strong", null, "What to do: "), h(Marked, { text: one.cure || one.hint })))))));
}

export function DriverLog({ answer }) {
  const id = useId();
  const [copied, setCopied] = useState(false);
  const missing = notDrawn(answer);
  const lines = answer.data?.lines || [];
  const copy = async () => {
    await navigator.clipboard.writeText(lines.join("\n"));
    setCopied(true);
  };
  return h(Card, {
    title: "The driver's log from its last exception on", id,
    aside: h(Fragment, null, answer.data?.driver && h("span", { className: "sb-muted" }, `driver ${typeof answer.data.driver === "string" ? answer.data.driver : answer.data.driver.launch_id || ""}`),
      lines.length > 0 && navigator.clipboard && h("button", { type: "button", className: "sb-button sb-small", onClick: copy }, copied ? "Copied" : "Copy")),
  },
  answer.data?.cause && h("p", { className: "sb-text-bad" }, answer.data.cause),
  missing || (lines.length === 0 ? h(Empty, null, answer.data.why || "The newest driver has logged no exception.")
    : h("pre", { className: "sb-log", tabIndex: 0, "aria-label": "Lines of the log" }, lines.map((line, index) =>
      h("span", { key: index, className: /^\s*(at |\.\.\.|File ")/.test(line) ? "sb-muted" : /exception|error|caused by/i.test(line) ? "sb-text-bad" : undefined }, `${line}\n`)))));
}
