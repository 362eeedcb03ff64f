// @ts-check
// What is wrong with a job, since when, and what to do first: the one thing that is read at night.

import { ageOf } from "./entry.js";
import { age, duration, figure } from "./format.js";
import { ofSubject, stateOf, stepOf, table, titled, whoOf } from "./words.js";

/** Tones by how much they matter. */
export const RANK = { bad: 0, warn: 1, info: 2, off: 3, ok: 4 };

/** The DAG that helps first where an objective is broken. */
const HELPS = table({
  alive: "run",
  savepoint_age: "savepoint",
  replayable_for: "savepoint",
  replica_age: "savepoint",
  drill_age: "drill",
  checkpoint_bytes: "compact",
});

const LOST = table({
  "repository-lost": {
    what: "The job's records are lost",
    do: "Bring the repository and the records back, or restore: that begins new records from a savepoint of the repository, or of a replica. The job is not started from nothing meanwhile.",
    action: "restore",
  },
  "checkpoint-lost": {
    what: "The job's checkpoint is gone",
    do: "Restore the newest verified savepoint. The plan shows what will be processed again.",
    action: "restore",
  },
});

/** What no DAG does. */
const OUTSIDE = "Bring the disk or the service back, or the rights to it: that is done outside of Airflow, and no button here does it.";

const WAITS = table({
  "give-up": { what: "Restarts were given up", tone: "bad", urgent: true, action: "restore", reads: true,
    do: "Read the error in the driver's log. If the state is damaged, restore; if the cause is gone, run the job again." },
  lock: { what: "An operation has not ended", tone: "warn", tab: "events",
    do: "If its process is gone, trigger the operation again: it takes over what the last one left. If it may still work, on a host that does not answer for example, let it end first." },
  unfenced: { what: "The other site was not fenced", tone: "warn", tab: "events",
    do: "Make sure that no driver of the job runs at the other site." },
});

/** What is on the storage itself: where that cannot be read, it is away. */
const STORED = ["status", "repository", "savepoints"];

/** What the other parts are called, and where they are shown. */
const PART = table({ verdicts: "Objectives", charts: "Measurements", events: "Events", recoveries: "Drills and restores", log: "The driver's log", findings: "Problems ahead" });
const TAB_OF = table({ line: "events", events: "events", recoveries: "recovery", log: "log" });

/** Since when a job is in its state, null where that is not known: `since` of a line is when its newest driver took the lease. */
export const inStateSince = (line) => (line?.state === "running" ? line.since
  : line?.down_since || (["stopped", "stopping"].includes(line?.state) && line.desired?.state === "stopped" ? line.desired.at : null));

/** A line that is older than this says little about the present: a watcher keeps one each minute, tasks of a job without one each 10 minutes or so. */
const LATE_S = { watched: 300, unwatched: 1500 };
/** How often a watcher keeps a line that does not say when the next one is due. */
const EVERY_S = 60;

/** How old the newest line of a job may become. One watcher of very many jobs keeps them less often, and each line says after how many seconds the next one comes. */
function lateAfter(line) {
  if (!line.watch?.watched && !line.watch?.expected) return LATE_S.unwatched;
  const every = line.watch?.watched && typeof line.next_s === "number" ? Math.max(line.next_s, EVERY_S) : EVERY_S;
  return LATE_S.watched + 1.5 * (every - EVERY_S);
}

/** Whether the newest line of a job that should run is older than it should be. */
export function isLate(line) {
  return line.desired?.state === "running" && ageOf(line.at) > lateAfter(line);
}

/** Whether the newest line says how the job was, not how it is: nothing keeps it while the job's DAG file or declaration is broken. */
export const isPast = ({ line, broken, mistake }) => Boolean(line && (broken || mistake || isLate(line)));

/** The state of a job in words, with a tone: what was so once is not shown as if it were so. */
export function shownState(entry) {
  const state = stateOf(entry.line?.state);
  return isPast(entry) && ["ok", "info"].includes(state.tone) ? { words: `was ${state.words}`, tone: "off" } : state;
}

/** Whether the job is known to be as it was decided, and to make progress where it runs. */
export function isWell(entry) {
  const { line } = entry, meant = line?.desired?.state;
  return Boolean(meant) && !isPast(entry) && (meant === line.state || (meant === "running" && line.state === "starting"));
}

/**
 * What is wrong, worst first.
 *
 * @param entry Of the list or of the job: {job, line, error, run, broken, mistake, file, cause, approvals}; `cause` is why its DAG file cannot be imported.
 * @param verdicts In full, with advice, where they are known.
 * @returns [{tone, urgent, old, what, why, since, do, action, tab, home, approval}]: `old` says that the line is, `action` is a verb, `tab` a view of the job, `reads` that it comes first, `home` that Airflow's Home says more.
 */
export function troubles(entry, verdicts = []) {
  const found = [];
  const add = (tone, what, more = {}) => found.push({ tone, what, why: "", since: null, do: "", action: null, tab: null, urgent: false, old: false, ...more });
  const line = entry.line;
  if (entry.error) add("bad", "What was kept of this job cannot be read", { why: said(entry.error), do: entry.error.hint || "" });
  if (entry.broken) {
    add("bad", "The DAG file of the job cannot be imported", {
      why: `${entry.cause ? `${entry.file}: ${sentence(entry.cause)} ` : ""}Airflow runs nothing of the job's DAGs meanwhile, and a driver that lives goes on.`,
      do: "Correct the DAG file or the jobs file.", home: true,
    });
  }
  if (entry.mistake) {
    add("bad", "The declaration of the job has a mistake", {
      why: `${sentence(entry.mistake)} Nothing can be done to the job meanwhile, and a driver that lives goes on.`, do: "Correct the jobs file.",
    });
  }
  if (!line) {
    if (!entry.error && !entry.broken && !entry.mistake) {
      add("info", "Nothing is known of this job yet", {
        why: "The page shows what the job's tasks have seen. None has ended yet.", do: "Run the job, or check it now.", action: "run",
      });
    }
    return found.concat(approvals(entry));
  }
  const meant = line.desired?.state === "running";
  const paused = Boolean(meant && entry.run?.paused);
  const restarted = Boolean(line.watch?.watched) && !paused;
  const runDag = entry.run?.dag_id || `${line.job}.run`;
  const gaveUp = (line.waits || []).some((one) => one.kind === "give-up");
  const away = line.state === "repository-lost" && STORED.includes(line.error?.part);
  if (away) {
    add("bad", LOST[line.state].what, { urgent: true, why: said(line.error), since: line.down_since, tab: "repository",
      do: `${OUTSIDE} If they are gone for good, *Restore* begins new records from a savepoint of a replica.` });
  } else if (line.error) {
    // No DAG brings a disk or a service back, so none is offered first.
    const { part } = line.error;
    const stored = !inLine(line) && !PART[part];
    add(["log", "findings"].includes(part) ? "warn" : "bad", stored ? "The job's storage cannot be read" : `${PART[part] || "Some of the job's records"} cannot be read`, {
      urgent: stored || inLine(line), why: said(line.error), tab: stored ? "repository" : TAB_OF[part] || null,
      do: [line.error.hint && sentence(line.error.hint), stored && OUTSIDE, "*Check now* shows whether it can be read again."].filter(Boolean).join(" ") });
  }
  if (LOST[line.state] && !away) add("bad", LOST[line.state].what, { urgent: true, ...LOST[line.state], why: line.state_why, since: line.down_since });
  for (const wait of line.waits || []) {
    const known = WAITS[wait.kind];
    if (known) add(known.tone, known.what, { ...known, why: wait.what, since: wait.since, tab: wait.kind === "give-up" ? "log" : known.tab });
    else if (wait.kind !== "approval") add("warn", titled(wait.kind), { why: wait.what, since: wait.since });
  }
  if (!LOST[line.state] && !gaveUp && (line.down_since || (meant && line.state === "failed"))) {
    add("bad", "The job is down", {
      urgent: true,
      why: line.down_why || line.state_why, since: line.down_since, action: restarted ? null : "run", tab: "log",
      do: restarted ? "It is restarted by itself. If that goes on failing, read its log." : "Nothing restarts it by itself. Run it.",
    });
  }
  if (paused) {
    add("bad", "Nothing watches the job", {
      why: `${runDag} is paused, so nothing restarts the job if it fails.`, since: line.watch?.seen_at, action: "run",
      do: `Unpause ${runDag} and run it.`,
    });
  } else if (unwatched(line) && !LOST[line.state]) { // nothing could run what is lost: its watcher has ended by that
    add("bad", "Nothing watches the job", {
      why: line.watch.why, since: line.watch.seen_at, action: "run", do: "Run the job: a running job is not disturbed, and is watched again.",
    });
  }
  if (line.health?.state === "unhealthy") {
    add("bad", "The job makes no progress", { urgent: true, why: line.health.why, since: line.batch_at, tab: "log",
      do: restarted ? "It is restarted by itself. Read what its driver says." : "Nothing restarts it by itself. Read what its driver says, then run it again." });
  }
  if (!paused && isLate(line)) {
    const watched = line.watch?.watched || line.watch?.expected;
    add("bad", `What is shown is ${age(ageOf(line.at))} old`, { old: true,
      why: `${watched ? "The job's watcher has not reported since." : "No task of the job has ended since."} What is below may no longer be so.`,
      action: "sla",
      do: watched ? "See whether Airflow's triggerer and scheduler run, then check the job now." : "Check the job now, and see whether Airflow runs its scheduled tasks.",
    });
  }
  mismatched(line, gaveUp, add);
  broken(line, verdicts, add);
  if (line.drill && line.drill.passed === false) {
    add("warn", "The last drill failed", { why: line.drill.step ? `At the step “${stepOf(line.drill.step)}”.` : "", since: line.drill.at, action: "drill",
      tab: "recovery", do: "See at which step, and drill again when its cause is gone." });
  }
  for (const replica of line.replicas || []) {
    if (replica.error) {
      add("warn", `Replica ${replica.name} cannot be read`, { why: said(replica.error), tab: "repository", do: replica.error.hint || "" });
    }
  }
  if (meant && line.savepoint === null && line.parts?.savepoints && !unread(line)) {
    add("warn", "There is no verified savepoint", { why: "If the checkpoint is lost now, the state is lost.", action: "savepoint", tab: "savepoints",
      do: "Take one now." });
  }
  const all = found.concat(approvals(entry));
  const order = new Map(all.map((one, index) => [one, index]));
  return all.sort((a, b) => RANK[a.tone] - RANK[b.tone] || Number(Boolean(b.urgent)) - Number(Boolean(a.urgent)) || order.get(a) - order.get(b));
}

/** For so long a restart after a failure is shown. */
const NEWS_S = 1800;

/** What has happened to a job and is over: it needs no person. */
export function newsOf(line) {
  const restarted = line?.restarted;
  return restarted && ageOf(restarted.at) < NEWS_S ? { what: "Restarted", at: restarted.at, why: sentence(`Reason: ${restarted.why}`) } : null;
}

/** Whether the error is of what the line reads by itself: the parts may all be known. */
const inLine = (line) => line.error?.part === "line";

/** Whether what the line has of its parts may be missing since they could not be read. */
export const unread = (line, part) => Boolean(line.error) && [...STORED, part].includes(line.error.part);

const sentence = (text) => (/[.!?]$/.test(text) ? text : `${text}.`);

/** Whether nothing would restart the job: while its next watcher is due, after a start or a restore, there is no reason. */
export const unwatched = (line) => Boolean(line.watch?.expected && !line.watch.watched && line.watch.why);

/** Where the state is not known, or not what was decided; and who changes that at present. */
function mismatched(line, gaveUp, add) {
  const { desired, state, operation } = line;
  const busy = operation && !(line.waits || []).some((one) => one.kind === "lock");
  if (busy) {
    const who = operation.by ? ` by ${whoOf(operation.by)}` : "";
    const name = `${titled(operation.name || "an operation")}${who}`;
    if (ageOf(line.at) > LATE_S.watched) { // of a job that is stopped, nothing reports until its next task
      add("info", `${name} was at work ${age(ageOf(line.at))} ago`, { tab: "events", action: "sla",
        why: "Nothing has reported of the job since, so it may have ended.", do: "Check the job now." });
    } else {
      add("info", `${name} is at work`, { since: operation.since, tab: "events",
        why: "It holds the job's operation lock. What it changes is shown when it has ended.", do: "Let it end before you begin another operation." });
    }
  }
  if (LOST[state] || gaveUp || line.down_since) return;
  const known = !["unknown", "unreadable"].includes(state) && Boolean(state);
  if (!known) {
    // What cannot be read is said above, with its error.
    if (!line.error || inLine(line)) {
      add("warn", "It is not known whether the job runs", { why: line.state_why, action: "sla", tab: "log",
        do: "See whether its host and its cluster can be reached, then check the job now." });
    }
  } else if (desired?.state === "stopped" && (state === "running" || state === "starting")) {
    if (!busy) add("warn", "The job runs, and should be stopped", { why: line.state_why, since: desired.at, action: "stop", do: "Stop it, or run it to keep it." });
  } else if (desired?.state === "stopped" && state === "failed") {
    add("info", "The job is not running, as it should be, but its driver failed", { why: line.state_why, tab: "log", do: "Read the log before you run it again." });
  } else if (desired?.state === "running" && !["running", "starting", "failed"].includes(state)) {
    if (!busy) add("warn", `The job should run, but is ${stateOf(state).words}`, { why: line.state_why, action: "run", do: "Run it." });
  } else if (!desired) {
    add("info", state === "never-started" ? "The job has never been started" : `The job is ${stateOf(state).words}; nothing says whether it should be`, {
      why: state === "never-started" ? "" : line.state_why, action: "run", do: "Run it to start it and to keep it running.",
    });
  } else if (state === "running" && typeof line.batch !== "number" && !line.health) {
    add("info", "The job runs, but nothing is known of its progress", { why: "No batch has been committed yet.", since: line.since, tab: "log",
      do: "If that stays so, read what its driver says." });
  }
}

const said = (error) => (typeof error === "string" ? error : error.message || error.code || "");

/** Titles of objectives of which a limit does not say what is wrong. */
const NO_LIMIT = table({
  alive: "The job has been down, or not watched",
  free_space: "A disk has too little free space",
  history: "Not all of the job's history could be read",
});

function broken(line, known, add) {
  for (const one of line.verdicts || []) {
    const same = known.find((each) => each.objective === one.objective && each.query === one.query && each.subject === one.subject);
    // That the job is down is said above, better.
    if (one.objective === "alive" && (line.down_since || unwatched(line))) continue;
    if (one.level !== "breach" && one.level !== "warn") continue;
    if (one.mute || same?.mute) continue;
    const what = titled(one.objective) + ofSubject(one.subject);
    const [are, its] = /s$/.test(one.objective) ? ["are", "their"] : ["is", "its"];
    const is = one.level === "breach" ? `${are} beyond ${its} limit` : `${are} near ${its} limit`;
    const limit = typeof one.value === "number" && typeof one.limit === "number"
      ? `${figure(one.value, one.unit)}, limit ${figure(one.limit, one.unit)}` : "";
    add(one.level === "breach" ? "bad" : "warn", NO_LIMIT[one.objective] || `${what} ${is}`, {
      why: one.why || limit, since: one.since, action: HELPS[one.objective] || null, tab: "overview", do: same?.advice || one.advice || "",
    });
  }
}

/** Questions of the job's DAGs that wait for an answer. */
const approvals = (entry) =>
  entry.approvals.map((one) => ({
    tone: "warn", what: "A person must answer", why: one.subject || `${one.dag_id} waits.`, since: one.since, action: null, tab: null, approval: one,
    do: one.may_answer === false ? "You may read the question, and not answer it: ask a person who may." : one.assignees?.length ? `Read the plan and answer. It waits for ${one.assignees.join(", ")}.` : "Read the plan and answer.",
  }));

/** The worst tone of a job, for its place in the list. */
export function toneOf(entry, found = troubles(entry)) {
  const line = entry.line;
  if (found.length && (RANK[found[0].tone] < RANK.info || line)) return found[0].tone;
  if (!line) return "off";
  if (line.state === "running" || line.state === "starting") return "ok";
  return "off";
}

/** How long something has been so: "for 4 min". */
export function since(iso) {
  const seconds = ageOf(iso);
  if (seconds === null) return "";
  return `for ${duration(seconds < 60 ? Math.max(0, Math.round(seconds)) : Math.floor(seconds / 60) * 60)}`;
}
