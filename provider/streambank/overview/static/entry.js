// @ts-check
// What is kept of a job, as the views read it, and how old it is.

/** Any value of an answer can be made a text, and any text an address: without what would be called for that, and halves of characters. */
const plain = (name, value) => (["__proto__", "toString", "valueOf"].includes(name) ? undefined
  : typeof value === "string" && value.toWellFormed ? value.toWellFormed() : value);
export const parsed = (text) => JSON.parse(text, plain);

let clock = () => Date.now() / 1000;

/** By which clock ages are told: a function that gives the seconds since 1970. */
export const setClock = (now) => {
  clock = now;
};

/** How many seconds ago something was; null for never. */
export function ageOf(iso) {
  const at = iso ? Date.parse(iso) / 1000 : NaN;
  return Number.isNaN(at) ? null : clock() - at;
}

/** The entries that have fields, of a list; none of what is no list. */
export const listOf = (value) => (Array.isArray(value) ? value.filter((one) => one !== null && typeof one === "object") : []);

/** A line whose lists are lists: every page goes through them, to say what is wrong. */
const shaped = (line) => line && { ...line, waits: listOf(line.waits), verdicts: listOf(line.verdicts), replicas: listOf(line.replicas) };

/** One job as the views read it, from an entry of the list or from its own answer. */
export function entryOf(answer) {
  const dags = {};
  // Airflow refuses a run of a DAG whose file it cannot import.
  const dagOf = (one) => ({ dag_id: one.dag_id, paused: one.paused, broken: Boolean(one.broken), trigger: Boolean(one.may?.trigger) && !one.broken, questions: one.may?.questions !== false });
  for (const one of answer.dags || []) dags[one.verb] = dagOf(one);
  // What people have written: each may do several things.
  const own = listOf(answer.own).map((one) => ({ ...dagOf(one), name: one.name || one.dag_id, verbs: one.verbs || [] }));
  const run = dags.run || (answer.built !== false && answer.dag?.endsWith(".run") ? { dag_id: answer.dag, paused: answer.paused } : null);
  // A line that could not be read has nothing but its error.
  const damaged = answer.line && answer.line.error && !answer.line.at;
  const mistake = answer.mistake || (answer.dags || []).find((one) => one.mistake)?.mistake || "";
  const broken = Boolean(answer.broken || (answer.dags || []).some((one) => one.broken) || (own.length && own.every((one) => one.broken)));
  return { job: answer.job, line: damaged ? null : shaped(answer.line), error: damaged ? answer.line.error : null, run, dags, own, broken, mistake, approvals: answer.approvals || [] };
}

/** The error itself, the last line of what Airflow keeps of an import error. */
export const causeOf = (error) => (error?.stack_trace || "").trim().split("\n").pop().trim();
