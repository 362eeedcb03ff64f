// @ts-check
// What states, events, objectives and DAGs are called on the page.

/** By a name that may come from records: what stands here, and nothing that every object has, such as `constructor`. */
export const table = (entries) => Object.assign(Object.create(null), entries);

/** A job's state: how it reads, and how bad it is by itself. */
export const STATES = table({
  running: { words: "running", tone: "ok" },
  starting: { words: "starting", tone: "info" },
  stopping: { words: "stopping", tone: "info" },
  stopped: { words: "stopped", tone: "off" },
  failed: { words: "failed", tone: "bad" },
  unknown: { words: "not known", tone: "warn" },
  "never-started": { words: "never started", tone: "off" },
  "repository-lost": { words: "records lost", tone: "bad" },
  "checkpoint-lost": { words: "checkpoint lost", tone: "bad" },
});

export const stateOf = (state) => STATES[state] || { words: state || "not known", tone: "warn" };

export const DESIRED = table({ running: "should run", stopped: "should be stopped" });

/** Levels of verdicts, worst first. */
export const LEVELS = table({ breach: "broken", warn: "warning", unknown: "no data", ok: "kept" });
export const LEVEL_TONE = table({ breach: "bad", warn: "warn", unknown: "off", ok: "ok", error: "bad", warning: "warn", info: "info" });

/** `state_bytes` -> `State bytes`: an objective as a heading. */
export const titled = (name) => {
  const words = String(name || "").replaceAll("_", " ").replaceAll("-", " ");
  return words.charAt(0).toUpperCase() + words.slice(1);
};

/** What an objective is measured of, where it has no name that people know. */
const SUBJECTS = table({ get_ms: "reads", put_ms: "writes" });

/** ` of reads`: what follows the name of an objective; nothing where it is of the whole job. */
export const ofSubject = (subject) => (subject ? ` of ${SUBJECTS[subject] || subject}` : "");

/** What happened, by the kind of its record: words, and whether it is bad, good, or a person's doing. */
export const EVENTS = table({
  launched: ["Driver launched", "info"],
  "driver-started": ["Driver started", "ok"],
  "driver-died": ["Driver died", "bad"],
  "driver-ended": ["Driver ended", "info"],
  "driver-refused": ["Driver refused to run", "bad"],
  "query-started": ["Query started", "info"],
  "query-ended": ["Query ended", "info"],
  "first-trigger": ["First batch triggered", "ok"],
  "restart-asked": ["Restart requested", "warn"],
  restarted: ["Restarted", "warn"],
  unhealthy: ["No progress", "bad"],
  "crash-loop": ["Restarts given up", "bad"],
  killed: ["Driver killed", "bad"],
  "stop-asked": ["Stop requested", "info"],
  "stop-forced": ["Batch abandoned to stop", "warn"],
  "drain-timed-out": ["Input not worked off in time", "warn"],
  "application-interrupted": ["Application interrupted", "warn"],
  stopped: ["Stopped", "info"],
  "desired-running": ["Meant to run", "info"],
  "desired-stopped": ["Meant to be stopped", "info"],
  "savepoint-taken": ["Savepoint taken", "ok"],
  "savepoint-imported": ["Savepoint imported", "ok"],
  restored: ["Restored", "warn"],
  reinstated: ["Earlier checkpoint reinstated", "warn"],
  "sink-rolled-back": ["Output set aside", "warn"],
  compacted: ["Checkpoint compacted", "info"],
  "compaction-undone": ["Compaction undone", "warn"],
  "quarantine-purged": ["Set-aside files deleted", "info"],
  drilled: ["Drill", "info"],
  upgrading: ["Upgrade began", "info"],
  upgraded: ["Upgraded", "ok"],
  "upgrade-refused": ["Upgrade refused", "warn"],
  "upgrade-undoing": ["Upgrade is undone", "warn"],
  "upgrade-undone": ["Upgrade undone", "warn"],
  "upgrade-not-undone": ["Upgrade could not be undone", "bad"],
  "failed-over": ["Failed over", "warn"],
  "site-fenced": ["Other site fenced", "info"],
  "fresh-start": ["Started without its records", "warn"],
  "records-moved": ["Records moved", "info"],
  "records-not-pruned": ["Old records could not be deleted", "warn"],
  "marker-not-written": ["Marker not written", "warn"],
  refreshed: ["Copy refreshed", "ok"],
  "refresh-failed": ["Refresh of a copy failed", "bad"],
  "code-not-kept": ["Copy of the program not kept", "warn"],
  "declared-code-chosen": ["Declared code chosen", "info"],
});

/** Who asked for something: `ann (orders.restore)` of `ann by orders.restore`. */
export function whoOf(by) {
  const said = typeof by === "string" ? by : by ? [by.triggered_by || by.user, by.dag_id].filter(Boolean).join(" by ") : "";
  return said.replace(/ by (\S+)$/, " ($1)");
}

/** What a link to a question says: not everyone who may read one may answer it. */
export const answerWords = (question) => (question.may_answer === false ? "Read the question" : "Read and answer");

/** Steps of drills and restores; docs/howto/drills.md has what each does. */
const STEPS = table({
  choose: "Choose a savepoint",
  restore: "Restore it",
  stage: "Copy the live query's plans",
  launch: "Start the application",
  state: "Read the state",
  batches: "Process batches",
  compare: "Compare with the live query",
  clean: "Remove the copy",
  wait: "Wait for the start",
  start: "Start, until the first batch",
});
export const stepOf = (name) => STEPS[name] || titled(name);

/** How a drill ended, or a restore, which is `well` where it has not failed. */
export function endedOf(run, well = "passed") {
  if (run.passed === false) return { words: "failed", tone: "bad" };
  return run.not_run ? { words: "savepoint proved, application not run", tone: "warn" } : { words: well, tone: "ok" };
}

export function eventOf(event) {
  const [words, tone] = EVENTS[event.kind] || [titled(event.kind), "info"];
  if (event.kind !== "drilled") return { words, tone };
  const ended = endedOf({ passed: false, ...event.facts });
  return { words: ended.tone === "warn" ? `Drill: ${ended.words}` : `Drill ${ended.words}`, tone: ended.tone };
}

/** Events that explain what a plot does, and so are marked in it. */
export const MARKED = new Set([
  "driver-died", "restarted", "crash-loop", "unhealthy", "stopped", "restored", "reinstated", "compacted", "upgraded",
  "upgrade-undone", "failed-over", "savepoint-taken", "fresh-start", "killed",
]);

/** The DAGs of a job: what their buttons say, in this order, and what they do. */
export const ACTIONS = table({
  run: { button: "Run", title: "Run", what: "Starts the job and keeps it running." },
  savepoint: { button: "Savepoint", title: "Take a savepoint of", what: "Saves the running job without stopping it, and verifies the savepoint." },
  restore: { button: "Restore", title: "Restore", what: "Shows a plan first. Nothing happens until a person approves it." },
  drill: { button: "Drill", title: "Drill", what: "Restores a savepoint into a copy and runs it there. The job itself is not touched." },
  verify: { button: "Verify", title: "Verify a savepoint of", what: "Reads a savepoint again and compares it with its manifest." },
  stop: { button: "Stop", title: "Stop", what: "Stops the job after its current batch. It stays stopped until someone runs it again." },
  sla: { button: "Check now", title: "Check", what: "Judges the objectives and searches for problems ahead." },
  upgrade: { button: "Upgrade", title: "Upgrade", what: "Rehearses the declared code, then changes to it, and goes back by itself if it fails." },
  compact: { button: "Compact", title: "Compact", what: "Moves aside the files of the checkpoint that nothing needs." },
  rescale: { button: "Rescale", title: "Rescale", what: "Changes the number of partitions of the state." },
  transform: { button: "Change state", title: "Change the state of", what: "Rewrites the state by the declared function." },
  bootstrap: { button: "Make state", title: "Make the first state of", what: "Makes the state of a new job from a table." },
  failover: { button: "Fail over", title: "Fail over", what: "Goes on with the job at its other site." },
});

export const FIRST_ACTIONS = ["run", "savepoint", "restore", "drill", "stop"];

/** What an action is called; copies have one each. */
export function actionOf(verb) {
  if (ACTIONS[verb]) return ACTIONS[verb];
  if (verb.startsWith("refresh.")) {
    const copy = verb.slice("refresh.".length);
    return { button: `Refresh ${copy}`, title: `Refresh the copy ${copy} of`, what: "Gives the copy the newest good savepoint of the job." };
  }
  return { button: titled(verb), title: titled(verb), what: "" };
}
