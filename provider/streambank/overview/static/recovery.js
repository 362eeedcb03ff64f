// @ts-check
// Drills and restores, step by step; the repository and its replicas.

import { Fragment, h, useId } from "./h.js";
import { bytes, count, counted, duration, shortId } from "./format.js";
import { Go } from "./route.js";
import { Act } from "./actions.js";
import { Ago, At, Bar, Card, Empty, Fact, Facts, Failed, Pill, notDrawn } from "./ui.js";
import { endedOf, stepOf, whoOf } from "./words.js";

export function Recovery({ base, answer }) {
  const id = useId();
  const missing = notDrawn(answer);
  if (missing) return h(Card, { title: "Drills and restores", id }, missing);
  return h(Fragment, null,
    h(Runs, { base, title: "Drills", runs: answer.data.drills || [], nothing: "No drill has been run. A drill restores a savepoint into a copy and runs it there.",
      act: h(Act, { verb: "drill", small: true }, "Drill…") }),
    h(Runs, { base, title: "Restores", runs: answer.data.restores || [], nothing: "The job has never been restored.", well: "restored" }));
}

function Runs({ base, title, runs, nothing, act, well }) {
  const id = useId();
  const newest = [...runs].sort((a, b) => String(b.at || "").localeCompare(String(a.at || "")));
  return h(Card, { title, id, aside: act },
    newest.length === 0 ? h(Empty, null, nothing) : h("p", { className: "sb-muted" }, "RTO and RPO count from the start of each, not from the disaster."),
    newest.length > 0 && h("ol", { className: "sb-runs" }, newest.map((one, index) => h("li", { key: index }, h(Run, { one, base, well, open: index === 0 })))));
}

function Run({ one, base, open, well }) {
  const steps = stepsOf(one.steps);
  const longest = Math.max(...steps.map((step) => step.seconds || 0), 0.001);
  const ended = endedOf(one, well);
  const savepoint = typeof one.savepoint === "string" ? one.savepoint : null;
  return h("details", { open },
    h("summary", null,
      h(Pill, { tone: ended.tone }, ended.words + (one.passed === false && one.step ? `${one.query ? ` for query ${one.query}` : ""} at “${stepOf(one.step)}”` : "")),
      h(At, { iso: one.at }),
      h("span", null, "RTO ", h("strong", null, duration(one.rto_s))),
      h("span", null, "RPO ", h("strong", null, duration(one.rpo_s)))),
    (one.error || one.why) && h("p", null, typeof one.error === "object" && one.error ? one.error.message : one.error || one.why),
    h("p", { className: "sb-muted" }, savepoint && h(Fragment, null, "Savepoint ", h(Go, { to: [...base, "savepoints", savepoint] }, shortId(savepoint))),
      one.replica && ` from ${one.replica}`, one.by && ` by ${whoOf(one.by)}`),
    (one.skipped || []).length > 0 && h(Fragment, null, h("p", { className: "sb-text-warn" }, "Newer savepoints that were passed over:"),
      h("ul", { className: "sb-list" }, one.skipped.map((each) => h("li", { key: each.savepoint },
        h(Go, { to: [...base, "savepoints", each.savepoint] }, shortId(each.savepoint)), `: ${each.why}`)))),
    steps.length > 0 && h("ol", { className: "sb-steps" }, steps.map((step) =>
      h("li", { key: step.name },
        h("span", null, stepOf(step.name)),
        h(Bar, { share: (step.seconds || 0) / longest, tone: step.name === one.step && one.passed === false ? "bad" : "info", label: duration(step.seconds) }),
        h("span", { className: "sb-right" }, duration(step.seconds))))));
}

const stepsOf = (steps) =>
  Array.isArray(steps) ? steps : Object.entries(steps || {}).map(([name, seconds]) => ({ name, seconds }));

export function Repository({ answer }) {
  const id = useId();
  const missing = notDrawn(answer);
  if (missing) return h(Card, { title: "Repository", id }, missing);
  const one = answer.data;
  const expiry = one.next_expiry;
  return h(Fragment, null,
    h(Card, { title: "Repository", id, aside: one.damage?.length ? h(Pill, { tone: "bad" }, "damaged") : h(Pill, { tone: "ok" }, "no known damage") },
      h(Facts, null,
        h(Fact, { name: "Location", wide: true }, h("code", null, one.location || "–")),
        h(Fact, { name: "Savepoints" }, count(one.savepoints)),
        h(Fact, { name: "Size" }, bytes(one.bytes)),
        h(Fact, { name: "Objects" }, count(one.objects)),
        h(Fact, { name: "Grows by" }, typeof one.new_bytes_per_day === "number" ? `${bytes(one.new_bytes_per_day)} a day` : "–"),
        h(Fact, { name: "Next expiry" }, expiry ? h(Fragment, null, expiry.at ? h(At, { iso: expiry.at }) : "with the next expiry", `: ${expiry.at_least ? "at least " : ""}${counted(expiry.count, "savepoint")}`,
          typeof expiry.bytes === "number" && `, ${bytes(expiry.bytes)}`) : "none planned")),
      one.damage?.length > 0 && h(Fragment, null, h("h3", null, "Damage"),
        h("ul", { className: "sb-list" }, one.damage.map((each, index) =>
          h("li", { key: index }, typeof each === "string" ? each : [each.savepoint && shortId(each.savepoint), each.what || each.message || each.cause].filter(Boolean).join(": ")))))),
    h(Replicas, { replicas: one.replicas || [] }));
}

function Replicas({ replicas }) {
  const id = useId();
  if (!replicas.length) return null;
  return h(Card, { title: "Replicas", id },
    h("div", { className: "sb-replicas" }, replicas.map((one) =>
      h("div", { key: one.name, className: "sb-replica" }, h("h3", null, one.name),
        one.error ? h(Failed, { error: typeof one.error === "string" ? { message: one.error } : one.error }) : h(Facts, null,
          one.location !== one.name && h(Fact, { name: "Location", wide: true }, h("code", null, one.location || "–")),
          h(Fact, { name: "Newest" }, newestOf(one)),
          h(Fact, { name: "Behind" }, behindOf(one.behind)))))));
}

function newestOf({ newest, taken_at: at }) {
  if (!newest) return "none";
  const id = typeof newest === "string" ? newest : newest.id || newest.savepoint;
  const iso = typeof newest === "object" ? newest.taken_at : at;
  return h(Fragment, null, shortId(id), iso && h(Fragment, null, ", ", h(Ago, { iso })));
}

const behindOf = (behind) =>
  behind === null || behind === undefined ? "–" : behind === 0 ? "nothing" : typeof behind === "number" ? counted(behind, "savepoint") : String(behind);
