// @ts-check
// One job: what is wrong and what to do at the top, then everything that explains it.

import { Fragment, h, cx, useId } from "./h.js";
import { POLL_MS, airflowUrl, questionUrl, useAnswer, useImportErrors, usePart } from "./api.js";
import { Act, Actions, Toolbar, useMay } from "./actions.js";
import { Charts, Partitions } from "./charts.js";
import { causeOf, entryOf, listOf } from "./entry.js";
import { DriverLog, Events, Findings } from "./events.js";
import { bytes, count, counted, duration, figure, shortId } from "./format.js";
import { Recovery, Repository } from "./recovery.js";
import { Go } from "./route.js";
import { Savepoint, Savepoints } from "./savepoints.js";
import { RANK, inStateSince, isLate, isPast, isWell, newsOf, shownState, since, troubles, unread, unwatched } from "./trouble.js";
import { Ago, At, Batch, Behind, Card, Contained, Empty, Ended, Fact, Facts, Failed, Loading, Marked, Pill, useTick } from "./ui.js";
import { DESIRED, LEVELS, LEVEL_TONE, actionOf, answerWords, ofSubject, table, titled, whoOf } from "./words.js";

const TABS = table({
  overview: "Overview", savepoints: "Savepoints", events: "Events", log: "Log", recovery: "Drills and restores", repository: "Repository",
});

/** A job's page. `tab` and `item` are what follows its name in the address. */
export function JobPage({ job, tab = "overview", item = null, alone = false }) {
  const answer = useAnswer("jobs", job);
  const verdicts = usePart(job, "verdicts", answer.data?.line);
  const broken = [...(answer.data?.dags || []), ...listOf(answer.data?.own)].find((one) => one.broken);
  const [failed] = useImportErrors(Boolean(broken && answer.data.import_errors), broken);
  useTick(POLL_MS);
  const head = alone ? null : h("nav", { className: "sb-crumbs", "aria-label": "Breadcrumb" }, h(Go, { to: [] }, "Streaming jobs"), " / ", h("span", { "aria-current": "page" }, job));
  // With the verdicts comes what to do: it must not push buttons down when a person is about to press one.
  if (answer.loading || (answer.data && verdicts.loading)) return h(Fragment, null, head, h(Loading));
  if (answer.data === undefined) {
    return h(Fragment, null, head, answer.error.status === 404
      ? h(Empty, null, `There is no job ${job} that you may see. A job is here once Airflow has read a DAG that works on it and names it, and for those who may read that DAG. If a template or a mapped task names it, give a task of the DAG inlets=[page_asset("${job}")].`)
      : h(Failed, { error: answer.error, again: answer.again }));
  }
  const entry = { ...entryOf(answer.data), file: broken?.file, cause: causeOf(failed) };
  const shown = TABS[tab] ? tab : "overview";
  const again = () => setTimeout(answer.again, 1500);
  const base = alone ? [] : [job];
  return h(Actions, { job, dags: entry.dags, own: entry.own, approvals: entry.approvals, done: again },
    head,
    h(Head, { entry }),
    h(Behind, { answer }),
    h(Contained, null, h(Trouble, { entry, base, verdicts: listOf(verdicts.data?.verdicts), short: shown !== "overview" })),
    h(Toolbar, { running: entry.line?.state === "running" }),
    h("nav", { className: "sb-tabs", "aria-label": "Views of the job" },
      Object.entries(TABS).map(([name, words]) =>
        h(Go, { key: name, to: name === "overview" ? base : [...base, name], className: cx("sb-tab", shown === name && "sb-on"), "aria-current": shown === name ? "page" : undefined }, words))),
    h("div", { className: "sb-view", key: shown }, view(shown, item, { job, entry, base })));
}

function view(tab, item, { job, entry, base }) {
  const { line } = entry;
  if (tab === "savepoints" && item) return h(OneSavepoint, { job, id: item, line, base });
  switch (tab) {
    case "savepoints": return h(WithPart, { job, line, part: "savepoints", view: Savepoints, base });
    case "events": return h(WithPart, { job, line, part: "events", view: Events });
    case "log": return h(WithPart, { job, line, part: "log", view: DriverLog });
    case "recovery": return h(WithPart, { job, line, part: "recoveries", view: Recovery, base });
    case "repository": return h(WithPart, { job, line, part: "repository", view: Repository });
    default: return h(Overview, { job, entry, base });
  }
}

// What asks for a part stays where the part cannot be drawn: the next one may be better.
const WithPart = ({ job, part, view: View, base, line }) => h(Contained, null, h(View, { base, line, answer: usePart(job, part, line) }));
const OneSavepoint = ({ job, id, line, base }) =>
  h(Contained, null, h(Savepoint, { base, id, line, answer: usePart(job, "savepoints", line), status: usePart(job, "status", line) }));

const Head = ({ entry }) =>
  h("header", { className: "sb-head" }, h("h1", { tabIndex: -1 }, entry.job), entry.line && h(Contained, null, h(Summary, { entry })));

function Summary({ entry }) {
  const { line } = entry;
  const state = shownState(entry);
  return h("p", { className: "sb-summary" },
    h(Pill, { tone: state.tone, title: line.state_why }, state.words),
    h("span", null, isPast(entry) ? "" : [since(inStateSince(line)), asMeant(line)].filter(Boolean).join(", ")),
    line.site && h("span", { className: "sb-muted" }, `at ${line.site}`),
    h("span", { className: isLate(line) ? "sb-text-bad" : "sb-muted" }, "seen ", h(Ago, { iso: line.at })));
}

const asMeant = ({ state, desired }) =>
  !desired ? "" : state === "unknown" ? `it ${DESIRED[desired.state] || "is asked otherwise"}` : state === desired.state ? "as it should be" : `but it ${DESIRED[desired.state] || "should be otherwise"}`;

/** What is wrong, since when, what to do: the worst with one button, the others as lines. */
function Trouble({ entry, base, verdicts, short }) {
  const id = useId();
  const may = useMay();
  const found = troubles(entry, verdicts);
  const news = newsOf(entry.line);
  const newer = news && h("span", { className: "sb-news", title: news.why }, news.what, h("span", { className: "sb-muted" }, " ", h(Ago, { iso: news.at })), h("span", null, `. ${news.why} `), h(Go, { to: [...base, "events"] }, "See the events"));
  if (!found.length) {
    return isWell(entry) ? h("p", { className: "sb-banner sb-banner-ok", role: "status" }, h(Pill, { tone: "ok" }, "All is well"),
      entry.line.state === "stopped" ? "The job is stopped, as it should be."
        : entry.line.level === "ok" || entry.line.objectives?.ok ? "Nothing needs a person." : "Nothing needs a person. No objective has data yet.", newer) : null;
  }
  const [worst, ...others] = found;
  // What helps may have been begun already, and wait for an answer.
  const asks = worst.approval || entry.approvals.find((one) => worst.action && (one.dag_id === entry.dags[worst.action]?.dag_id || entry.own.some((dag) => dag.dag_id === one.dag_id && dag.verbs.includes(worst.action))));
  const first = worst.reads && !asks;
  const button = asks ? h("a", { key: "act", className: "sb-button sb-primary", href: questionUrl(asks) }, answerWords(asks))
    : worst.home ? h("a", { key: "act", className: "sb-button", href: airflowUrl() }, "See Airflow's Home")
      : worst.action && may(worst.action) ? h(Act, { key: "act", verb: worst.action, primary: !first }, `${actionOf(worst.action).button}…`) : null;
  const view = worst.tab && worst.tab !== "overview" && h(Go, { key: "view", className: cx("sb-button", first && "sb-primary"), to: [...base, worst.tab] },
    { log: "Read the log", events: "See the events" }[worst.tab] || `See ${TABS[worst.tab].toLowerCase()}`);
  // What is wrong is read aloud when it changes; not each minute, with how long it has been so.
  return h("section", { className: `sb-banner sb-banner-${worst.tone}`, "aria-labelledby": id },
    h("div", { className: "sb-banner-main" },
      h("h2", { id }, h("span", { role: RANK[worst.tone] < RANK.info ? "alert" : undefined }, h(Pill, { tone: worst.tone }, worst.what)), worst.since && h("span", { className: "sb-since" }, since(worst.since), " (since ", h(At, { iso: worst.since }), ")")),
      worst.why && h("p", null, worst.why),
      worst.do && h("p", { className: "sb-do" }, h("strong", null, "What to do: "), h(Marked, { text: worst.do })),
      newer && h("p", null, newer)),
    h("div", { className: "sb-banner-act" },
      first ? [view, button] : [button, view]),
    short && others.length > 0 && h("p", { className: "sb-others" }, h(Go, { to: base }, `and ${others.length} more`)),
    !short && others.length > 0 && h("ul", { className: "sb-others" }, others.map((one, index) =>
      h("li", { key: index }, h(Pill, { tone: one.tone }, one.what), one.since && h("span", { className: "sb-muted" }, since(one.since)),
        h("span", null, one.why),
        one.approval ? h("a", { href: questionUrl(one.approval) }, answerWords(one.approval))
          : one.action && one.action !== worst.action && may(one.action) ? h(Act, { verb: one.action, small: true }) : null))));
}

function Overview({ job, entry, base }) {
  const charts = usePart(job, "charts", entry.line);
  const events = usePart(job, "events", entry.line);
  const verdicts = usePart(job, "verdicts", entry.line);
  const findings = usePart(job, "findings", entry.line);
  const status = usePart(job, "status", entry.line);
  return h(Fragment, null,
    entry.line && h(Contained, null, h(Glance, { line: entry.line, status, base })),
    h(Contained, null, h(Charts, { answer: charts, events: events.data?.events, line: entry.line })),
    h("div", { className: "sb-two" },
      h(Contained, null, h(Verdicts, { answer: verdicts, line: entry.line })),
      h(Contained, null, h(Findings, { answer: findings, at: entry.line?.parts?.findings?.at, act: h(Act, { verb: "sla", small: true }) }))),
    h("div", { className: "sb-two" },
      h(Contained, null, h(Events, { answer: events, short: true, more: h(Go, { to: [...base, "events"] }, "All events") })),
      h(Contained, null, h(Partitions, { answer: charts }))));
}

/** The job in a dozen figures. */
function Glance({ line, status, base }) {
  const id = useId();
  const queries = Object.entries(status.data?.queries || {});
  return h(Card, { title: "At a glance", id },
    h(Facts, null,
      h(Fact, { name: "Newest batch" }, h(Batch, { line }), line.batch_at && h(Fragment, null, ", ", h(Ago, { iso: line.batch_at }))),
      h(Fact, { name: "State" }, bytes(line.state_bytes), typeof line.state_rows === "number" && `, ${counted(line.state_rows, "row")}`),
      h(Fact, { name: "Lag" }, line.lag ? h("span", { title: line.lag.what }, figure(line.lag.value, line.lag.unit)) : typeof line.watermark_lag_s !== "number" && "–",
        typeof line.watermark_lag_s === "number" && `${line.lag ? ", " : ""}event time ${duration(Math.round(line.watermark_lag_s))} behind`),
      h(Fact, { name: "A batch takes" }, duration(line.batch_s), typeof line.commit_s === "number" && `, of which the checkpoint ${duration(line.commit_s)}`),
      h(Fact, { name: "Newest verified savepoint" }, line.savepoint
        ? h(Fragment, null, h(Go, { to: [...base, "savepoints", line.savepoint.id] }, line.savepoint.name || shortId(line.savepoint.id)), ", ", h(Ago, { iso: line.savepoint.taken_at }))
        : unread(line) ? "not known" : h("span", { className: "sb-text-warn" }, "none")),
      (line.replicas || []).map((one) => h(Fact, { key: one.name, name: `In replica ${one.name}` },
        one.error ? h("span", { className: "sb-text-bad" }, "cannot be read") : one.taken_at ? h(Fragment, null, shortId(one.savepoint), ", ", h(Ago, { iso: one.taken_at })) : "none")),
      h(Fact, { name: "Last drill" }, line.drill ? h(Fragment, null, h(Ended, { drill: line.drill }), ", ",
        h(Ago, { iso: line.drill.at }), typeof line.drill.rto_s === "number" && `, back after ${duration(Math.round(line.drill.rto_s))}`) : unread(line, "recoveries") ? "not known" : "none"),
      h(Fact, { name: "Watched" }, line.watch?.watched ? h("span", { title: line.watch.by }, "by ", watcherOf(line.watch.by), ", ", h(Ago, { iso: line.watch.seen_at })) : line.watch && unwatched(line) ? h("span", { className: "sb-text-bad" }, "no") : line.watch?.expected ? "not yet" : line.watch && line.desired ? "not needed" : "not known"),
      line.operation && h(Fact, { name: "Operation" }, line.operation.name, line.operation.by && ` by ${whoOf(line.operation.by)}`, line.operation.since && h(Fragment, null, ", ", h(Ago, { iso: line.operation.since }))),
      line.desired && h(Fact, { name: titled(DESIRED[line.desired.state] || "Decided") }, line.desired.by && `by ${whoOf(line.desired.by)}, `, "since ", h(At, { iso: line.desired.at }), line.desired.why && `: ${line.desired.why}`),
      status.data?.tracking && h(Fact, { name: "Spark" }, h(WebLink, { href: status.data.tracking }, "the driver's page"))),
    queries.length > 0 && h("details", { className: "sb-section" }, h("summary", null, counted(queries.length, "query").replace("querys", "queries")),
      queries.map(([name, one]) => h(Fragment, { key: name }, h("h3", null, name),
        h(Facts, null,
          h(Fact, { name: "Batch" }, count(one.batch), typeof one.planned_batch === "number" && one.planned_batch !== one.batch && `, planned ${count(one.planned_batch)}`),
          h(Fact, { name: "Generation" }, typeof one.generation === "number" ? one.generation : "–", one.from_savepoint && h(Fragment, null, ", from ", h(Go, { to: [...base, "savepoints", one.from_savepoint] }, shortId(one.from_savepoint)))),
          h(Fact, { name: "Spark" }, one.spark_version || "–"),
          h(Fact, { name: "Event time until" }, h(At, { iso: one.watermark })),
          h(Fact, { name: "Checkpoint", wide: true }, h("code", null, one.checkpoint || "–")),
          h(Fact, { name: "Sink", wide: true }, h("code", null, one.sink || "–")))))));
}

/** `orders.run` of `run manual__... of orders.run`. */
const watcherOf = (by) => / of (\S+)$/.exec(by || "")?.[1] || by || "a watcher";

/** A link that leaves Airflow: only to the web. */
function WebLink({ href, children }) {
  return /^https?:\/\//i.test(href) ? h("a", { href, rel: "noreferrer noopener", target: "_blank" }, children) : h("code", null, String(href));
}

export function Verdicts({ answer, line }) {
  const id = useId();
  const all = (answer.data?.verdicts || line?.verdicts || []).filter((one) => one.level !== "ok");
  const kept = (answer.data?.verdicts || []).filter((one) => one.level === "ok").length || line?.objectives?.ok || 0;
  if (!all.length && !kept) return null;
  const order = Object.keys(LEVELS);
  const bad = all.filter((one) => one.level !== "unknown").sort((a, b) => order.indexOf(a.level) - order.indexOf(b.level));
  const unknown = all.filter((one) => one.level === "unknown");
  return h(Card, { title: "Objectives", id, aside: h("span", { className: "sb-muted" }, [`${kept} kept`, unknown.length && `${unknown.length} without data`].filter(Boolean).join(", ")) },
    bad.length === 0 ? h(Empty, null, "None is broken.")
      : h("ul", { className: "sb-findings" }, bad.map((one, index) =>
        h("li", { key: index }, h(Pill, { tone: LEVEL_TONE[one.level] }, LEVELS[one.level]), " ",
          h("strong", null, titled(one.objective), ofSubject(one.subject), one.query && one.query !== "main" && ` (${one.query})`),
          typeof one.value === "number" && h("span", null, ` ${figure(one.value, one.unit)}`, typeof one.limit === "number" && h("span", { className: "sb-muted" }, `, limit ${figure(one.limit, one.unit)}`)),
          one.since && h("span", { className: "sb-muted" }, `, ${since(one.since)}`),
          one.mute && h(Pill, { tone: "off" }, "muted"),
          one.why && h("p", null, one.why),
          one.advice && h("p", { className: "sb-cure" }, h("strong", null, "What to do: "), h(Marked, { text: one.advice }))))),
    unknown.length > 0 && h("details", { className: "sb-section" }, h("summary", null, `${counted(unknown.length, "objective")} without data`),
      h("ul", { className: "sb-list" }, unknown.map((one, index) => h("li", { key: index }, titled(one.objective), ofSubject(one.subject), one.why && h("span", { className: "sb-muted" }, `: ${one.why}`))))));
}
