// @ts-check
// Savepoints of a job: on a time line, in a table, and each by itself.

import { Fragment, h, cx, useId, useMemo, useState } from "./h.js";
import { Act } from "./actions.js";
import { bytes, count, counted, day, duration, epoch, shortId, time } from "./format.js";
import { Go } from "./route.js";
import { Ago, At, Bar, Card, Empty, Ended, Fact, Facts, Marked, Pill, notDrawn } from "./ui.js";
import { endedOf, titled, whoOf } from "./words.js";

/** How far a savepoint is verified: its newest verification. */
export function verifiedOf(savepoint) {
  const all = Array.isArray(savepoint.verified) ? savepoint.verified : savepoint.verified ? [savepoint.verified] : [];
  if (savepoint.damage) return { tone: "bad", words: "damaged", newest: null, all };
  const newest = [...all].sort((a, b) => (epoch(a.at) || 0) - (epoch(b.at) || 0)).pop();
  if (newest?.passed === false) return { tone: "bad", words: "damaged", newest, all };
  if (savepoint.rejected) return { tone: "warn", words: "rehearsal not passed", newest, all };
  if (!newest) return { tone: "off", words: "not verified", newest: null, all };
  return { tone: "ok", words: newest.level ? `verified (${newest.level})` : "verified", newest, all };
}

/** What a savepoint is called: its name, or else the beginning of its id. */
export const calledOf = (savepoint) => savepoint.name || shortId(savepoint.id);

export function Savepoints({ base, answer, line }) {
  const id = useId();
  const missing = notDrawn(answer);
  const all = useMemo(() => [...(answer.data?.savepoints || [])].sort((a, b) => (epoch(b.taken_at) || 0) - (epoch(a.taken_at) || 0)), [answer.data]);
  const [most, setMost] = useState(25);
  if (missing) return h(Card, { title: "Savepoints", id }, missing);
  if (!all.length) {
    return h(Card, { title: "Savepoints", id }, h(Empty, null, "There is no savepoint. If the checkpoint is lost now, the state is lost."),
      h(Act, { verb: "savepoint", primary: true }, "Take a savepoint"));
  }
  const several = new Set(all.map((one) => one.query)).size > 1;
  return h(Fragment, null,
    h(Card, { title: "Time line", id, aside: h("span", { className: "sb-muted" }, `${counted(all.length + (answer.data.more || 0), "savepoint")}, larger dots are larger savepoints`) },
      h(TimeLine, { base, all, seenAt: line?.parts?.savepoints?.at || answer.data.at })),
    h(Card, { title: "Savepoints", id: `${id}t` },
      h("div", { className: "sb-scroll" },
        h("table", { className: "sb-grid" },
          h("thead", null, h("tr", null, ["Savepoint", "Batch", "Taken", "Why", "New of all bytes", "Verified", "Kept", ""].map((words, index) =>
            h("th", { key: index, scope: "col" }, words || h("span", { className: "sb-hidden" }, "Actions"))))),
          h("tbody", null, all.slice(0, most).map((one) => h(SavepointRow, { key: `${one.query} ${one.id}`, one, base, several: several || hasSeveral(line) }))))),
      all.length > most && h("button", { type: "button", className: "sb-button", onClick: () => setMost(most + 100) }, `Show ${Math.min(100, all.length - most)} more`),
      answer.data.more > 0 && all.length <= most && h("p", { className: "sb-muted" }, `${counted(answer.data.more, "older savepoint")} are in the repository; \`streambank list\` shows them.`)));
}

function SavepointRow({ one, base, several }) {
  const verified = verifiedOf(one);
  const share = one.bytes > 0 && typeof one.new_bytes === "number" ? one.new_bytes / one.bytes : null;
  const who = whoOf(one.by);
  return h("tr", null,
    h("td", null, h(Go, { to: [...base, "savepoints", one.id] }, calledOf(one)), several && h("small", null, one.query),
      one.kind && one.kind !== "taken" && h("small", null, one.kind)),
    h("td", null, count(one.batch)),
    h("td", null, h(At, { iso: one.taken_at }), h("small", null, h(Ago, { iso: one.taken_at }))),
    h("td", null, one.why || one.note || h("span", { className: "sb-muted" }, "no reason given"), who && h("small", null, "by ", who)),
    h("td", null, share === null ? bytes(one.bytes) : h(Fragment, null, h(Bar, { share, label: `${bytes(one.new_bytes)} new, ${bytes(one.bytes - one.new_bytes)} shared` }),
      h("small", null, `${bytes(one.new_bytes)} of ${bytes(one.bytes)}`))),
    h("td", null, h(Pill, { tone: verified.tone }, verified.words), one.drilled && h("small", null, drilledOf(one.drilled))),
    h("td", null, keptOf(one)),
    h("td", { className: "sb-row-actions" }, h(Act, { verb: "restore", fill: fillOf(one, several), small: true }, "Restore…")));
}

/** How the newest drill of a savepoint ended, and where it took it from if not from the job's repository. */
export const drilledOf = (drill) => `drill: ${endedOf(drill).words}${drill.replica ? `, from ${drill.replica}` : ""}`;

const hasSeveral = (line) => (line?.queries || []).length > 1;

/** What a form is filled with for a savepoint; of several queries with the one that it is of. */
const fillOf = (one, several) => ({ savepoint: one.id, ...(several && one.query ? { query: one.query } : {}) });

/** How long a savepoint is kept: {words, until, why, tone}. */
export function keptFor(one) {
  if (one.pinned) return { words: "pinned" };
  if (one.held) return { words: "held", why: typeof one.held === "string" ? one.held : "Something else needs it." };
  const expires = typeof one.expires === "string" ? { at: one.expires } : one.expires;
  if (expires && !expires.at) return { words: "goes with the next expiry", why: expires.why, tone: "warn" };
  return expires ? { words: "until", until: expires.at, why: expires.why } : { words: one.kept || "kept", tone: "muted" };
}

function keptOf(one) {
  const { words, until, why, tone } = keptFor(one);
  return h("span", { title: why || undefined, className: tone === "muted" ? "sb-muted" : tone && `sb-text-${tone}` }, words, until && h(Fragment, null, " ", h(At, { iso: until })));
}

/** Dots along time: filled where verified, crossed where damaged. It goes to the moment when they were seen: how long nothing has been saved is seen, too. */
function TimeLine({ base, all, seenAt }) {
  const [width, height] = [1000, 84];
  const dated = all.filter((one) => epoch(one.taken_at) !== null);
  if (!dated.length) return null;
  const from = Math.min(...dated.map((one) => epoch(one.taken_at)));
  const last = Math.max(...dated.map((one) => epoch(one.taken_at)));
  const to = Math.max(last, epoch(seenAt) || 0, from + 60);
  const largest = Math.max(...dated.map((one) => one.bytes || 0), 1);
  const place = (at) => 24 + ((at - from) / (to - from)) * (width - 48);
  const ticks = [0, 0.25, 0.5, 0.75, 1].map((share) => from + (to - from) * share);
  const long = to - from > 5 * 86400; // else two of the five may be of one day
  return h("div", { className: "sb-timeline" },
    h("div", { className: "sb-timeline-line", "aria-hidden": true }),
    ticks.map((at, index) => {
      const iso = new Date(at * 1000).toISOString();
      return h("span", { key: at, className: cx("sb-timeline-tick", index === 0 && "sb-first", index === ticks.length - 1 && "sb-last"), style: { left: `${(place(at) / width) * 100}%` }, "aria-hidden": true }, long ? day(iso) : time(iso));
    }),
    [...dated].reverse().map((one) => {
      const verified = verifiedOf(one);
      const size = 10 + Math.sqrt((one.bytes || 0) / largest) * 16;
      const words = `${calledOf(one)}, batch ${one.batch}, ${time(one.taken_at)}, ${bytes(one.bytes)}, ${verified.words}${one.pinned ? ", pinned" : ""}`;
      return h(Go, {
        key: `${one.query} ${one.id}`, to: [...base, "savepoints", one.id], className: cx("sb-timeline-dot", `sb-${verified.tone}`, one.pinned && "sb-pinned"),
        title: words, "aria-label": words,
        style: { left: `${(place(epoch(one.taken_at)) / width) * 100}%`, top: height / 2 - 8, width: size, height: size, marginLeft: -size / 2, marginTop: -size / 2 },
      });
    }));
}

export function Savepoint({ base, id, answer, line, status }) {
  const heading = useId();
  const back = h("p", null, h(Go, { to: [...base, "savepoints"] }, "All savepoints"));
  const missing = notDrawn(answer);
  if (missing) return h(Card, { title: "Savepoint", id: heading }, back, missing);
  const one = (answer.data.savepoints || []).find((each) => each.id === id);
  if (!one) {
    return h(Card, { title: "Savepoint", id: heading }, back,
      h(Empty, null, "This savepoint is not among the newest 200 of the job. It may have expired; `streambank list` shows all."));
  }
  const several = hasSeveral(line);
  const manifest = (answer.data.manifests || {})[id];
  const verified = verifiedOf(one);
  return h(Fragment, null, back,
    h(Card, { title: one.name ? `Savepoint ${one.name}` : `Savepoint ${shortId(one.id)}`, id: heading, aside: h(Pill, { tone: verified.tone }, verified.words) },
      h(Facts, null,
        h(Fact, { name: "Taken" }, h(At, { iso: one.taken_at }), " (", h(Ago, { iso: one.taken_at }), ")"),
        h(Fact, { name: "After batch" }, count(one.batch)),
        one.query && one.query !== "main" && h(Fact, { name: "Query" }, one.query),
        h(Fact, { name: "Size" }, bytes(one.bytes), typeof one.new_bytes === "number" && `, of which ${bytes(one.new_bytes)} new`),
        typeof one.files === "number" && h(Fact, { name: "Files" }, count(one.files)),
        h(Fact, { name: "Kept" }, keptOf(one)),
        one.drilled && h(Fact, { name: "Last drill of it" }, h(Ended, { drill: one.drilled }), ", ", h(Ago, { iso: one.drilled.at }),
          one.drilled.replica && h(Fragment, null, ", from ", h("code", null, one.drilled.replica))),
        one.watermark && h(Fact, { name: "Event time until" }, h(At, { iso: one.watermark })),
        one.spark_version && h(Fact, { name: "Spark" }, one.spark_version),
        one.derived_from && h(Fact, { name: "Made from" }, h(Go, { to: [...base, "savepoints", one.derived_from] }, shortId(one.derived_from))),
        h(Fact, { name: "Why", wide: true }, one.why || one.note || "no reason given", whoOf(one.by) && `, by ${whoOf(one.by)}`),
        h(Fact, { name: "Id", wide: true }, h("code", null, one.id))),
      h("div", { className: "sb-actions" }, h(Act, { verb: "restore", fill: fillOf(one, several), primary: true }, "Restore this savepoint…"),
        // A drill of several queries is of all of them together: no savepoint of one can be chosen.
        !several && h(Act, { verb: "drill", fill: fillOf(one, several) }, "Drill this savepoint…"), h(Act, { verb: "verify", fill: fillOf(one, several) }, "Verify again…"))),
    h(WhatARestoreDoes, { one, line, status: status?.data, verified }),
    h(Verifications, { verified }),
    manifest ? h(Manifest, { manifest }) : h(Card, { title: "Manifest", id: `${heading}m` },
      h(Empty, null, "The manifest is shown of the newest 20 savepoints; `streambank show` prints this one's.")));
}

/** What a restore would do, in sentences: `status` is the part of that name, if it is known. */
export function effectsOf(one, line, status, verified) {
  // The line's batch is that of the oldest query.
  const query = status?.queries?.[one.query] || (hasSeveral(line) ? null : { batch: line?.batch, progress_at: line?.batch_at });
  const again = typeof query?.batch === "number" && typeof one.batch === "number" ? query.batch - one.batch : null;
  const gap = query?.progress_at && one.taken_at ? epoch(query.progress_at) - epoch(one.taken_at) : null;
  const steps = [];
  if (verified.tone === "bad") steps.push("**This savepoint is damaged.** A restore of it is refused. Choose another one, or a replica as its repository.");
  if (one.rejected) steps.push("**Its rehearsal has not passed.** Only a restore that names it uses it. Drill it first.");
  if (verified.tone === "off") steps.push("It has not been verified yet. A restore verifies every file before the job begins to use it.");
  steps.push(`The job gets a new checkpoint directory that stands after batch ${count(one.batch)}. The present one stays where it is, so that this can be undone.`);
  if (again !== null && again > 0) {
    steps.push(`${counted(again, "batch")} after it ${again === 1 ? "is" : "are"} processed again` +
      (gap > 0 ? `, which is the input of about ${duration(gap)} (RPO)` : "") + ", as long as the sources still have that input.");
  } else if (again === 0) steps.push("It is of the newest batch, so nothing is processed again.");
  else steps.push("How many batches are processed again is said by the plan.");
  steps.push("Rows that sinks have written since are handled as the form says: by default you are asked, and shown how many there are.");
  if (line?.state === "running") steps.push("The job runs. It is stopped for the restore, after a question, and started afterwards.");
  if (line?.drill?.passed && typeof line.drill.rto_s === "number") steps.push(`The last drill was back after ${duration(Math.round(line.drill.rto_s))} (RTO).`);
  return steps;
}

function WhatARestoreDoes({ one, line, status, verified }) {
  const id = useId();
  return h(Card, { title: "What a restore would do", id },
    h("ul", { className: "sb-list" }, effectsOf(one, line, status, verified).map((words) => h("li", { key: words }, h(Marked, { text: words })))),
    h("p", { className: "sb-muted" }, "The run works out the exact plan from storage, shows it, and waits for a person's approval before it changes anything."));
}

function Verifications({ verified }) {
  const id = useId();
  return h(Card, { title: "Verifications", id },
    verified.all.length === 0 ? h(Empty, null, "None yet.")
      : h("ul", { className: "sb-list" }, [...verified.all].sort((a, b) => (epoch(b.at) || 0) - (epoch(a.at) || 0)).map((one, index) =>
        h("li", { key: index }, h(Pill, { tone: one.passed === false ? "bad" : "ok" }, one.passed === false ? "damaged" : "passed"), " ",
          h(At, { iso: one.at }), one.level && ` · ${one.level}`,
          problemsOf(one).length > 0 && h("ul", null, problemsOf(one).map((words, at) => h("li", { key: at }, words)))))));
}

const problemsOf = (one) =>
  Array.isArray(one.problems) ? one.problems.map((each) => (typeof each === "string" ? each : each.message || each.cause || JSON.stringify(each)))
    : one.problems ? [counted(one.problems, "problem")] : [];

/** A manifest in words: what was saved of operators, sources and sinks. */
function Manifest({ manifest }) {
  const id = useId();
  const lists = ["operators", "sources", "sinks"].filter((name) => manifest[name]?.length);
  // Its size and its number of files are said above.
  const rest = Object.entries(manifest).filter(([name, value]) => ![...lists, "files", "bytes"].includes(name) && value !== null && typeof value !== "object");
  return h(Card, { title: "Manifest", id },
    h(Facts, null, rest.map(([name, value]) =>
      name === "seconds" ? h(Fact, { key: name, name: "The take took" }, duration(value))
        : h(Fact, { key: name, name: titled(name) }, typeof value === "number" ? (/bytes/.test(name) ? bytes(value) : count(value)) : String(value)))),
    lists.map((name) => h("div", { key: name }, h("h3", null, titled(name)),
      h("ul", { className: "sb-list" }, manifest[name].map((one, index) => h("li", { key: index }, sentence(one)))))));
}

/** One entry of a manifest as a person reads it, whether it is a sentence already or has fields. */
export function sentence(one) {
  if (one === null || one === undefined) return "–";
  if (typeof one !== "object") return String(one);
  if (one.text || one.words) return one.text || one.words;
  return Object.entries(one).filter(([, value]) => value !== null && value !== "")
    .map(([name, value]) => `${titled(name).toLowerCase()} ${typeof value === "object" ? [].concat(value).map((each) => (typeof each === "object" ? JSON.stringify(each) : each)).join(", ")
      : typeof value === "number" && /bytes/.test(name) ? bytes(value).toString() : value}`).join(", ");
}

