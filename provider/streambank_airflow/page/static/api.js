// @ts-check
// What the page asks: its own routes below /streambank, and Airflow's public API as the user who is signed in.

import { parsed, setClock } from "./entry.js";
import { useCallback, useEffect, useRef, useState } from "./h.js";

const OWN = new URL("../", import.meta.url);
const AIRFLOW = new URL("../../", import.meta.url);

export const POLL_MS = 15_000;
/** How long an answer may take. */
const PATIENCE_MS = 60_000;

/** A page of Airflow: airflowUrl("dags", id, "runs", run). */
export const airflowUrl = (...parts) => new URL(parts.map(encodeURIComponent).join("/"), AIRFLOW).href;

/** Where Airflow asks a person. */
export const questionUrl = (one) => airflowUrl("dags", one.dag_id, "runs", one.run_id, "tasks", one.task_id,
  ...(one.map_index >= 0 ? ["mapped", String(one.map_index)] : []), "required_actions");

/** An answer that is a refusal, in words. */
export class Refusal extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

const GENERAL = {
  0: "Airflow cannot be reached. The page goes on trying.",
  408: `Airflow has not answered within ${PATIENCE_MS / 1000} seconds. The page goes on trying.`,
  401: "You are signed out. Reload this page to sign in again.",
  403: "Your Airflow user may not do this.",
  404: "There is nothing here that you may see.",
  409: "Such a run exists already.",
  413: "Airflow refuses this because it is too large.",
  429: "Airflow has too many requests at the moment. The page goes on trying.",
};

/** The words of an answer of FastAPI: a text, an object, or a list of what is wrong in which field. */
function wordsOf(body) {
  const detail = body && body.detail !== undefined ? body.detail : body;
  if (typeof detail === "string") return detail;
  if (Array.isArray(detail)) {
    return detail.map((one) => [(one.loc || []).slice(1).join("."), one.msg].filter(Boolean).join(": ")).join("; ");
  }
  if (detail && typeof detail === "object") return detail.reason || detail.message || detail.statement || "";
  return "";
}

function refusal(status, body) {
  const said = wordsOf(body);
  const general = GENERAL[status] || (status >= 500 ? `Airflow failed to answer (HTTP ${status}).` : `Airflow refuses this (HTTP ${status}).`);
  const repeats = !said || /^(forbidden|not found|unauthorized|not authenticated|internal server error)$/i.test(said);
  return new Refusal(status, status === 401 || repeats ? general : status === 403 ? `${general} ${said}` : said);
}

/** What Airflow 3.1 keeps of its session for scripts; later releases have a cookie that scripts cannot read. */
function session() {
  try {
    return globalThis.localStorage.getItem("token");
  } catch {
    return null;
  }
}

// Whether requests carry that: only where the cookie is not enough, since it may be left from an earlier release.
let byToken = false;

async function signed(url, options) {
  const token = session();
  const send = (bearer) => fetch(url, {
    credentials: "same-origin", cache: "no-store", ...options,
    headers: { Accept: "application/json", ...(bearer ? { Authorization: `Bearer ${token}` } : {}), ...options.headers },
  });
  const answer = await send(byToken && token);
  if (answer.status !== 401 || !token) return answer;
  const other = await send(!byToken);
  if (other.status !== 401) byToken = !byToken;
  return other;
}

async function ask(url, options = {}) {
  let answer;
  try {
    answer = await signed(url, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw refusal(0, null);
  }
  const body = await answer.text().then((text) => parsed(text)).catch((error) => {
    if (error.name === "AbortError") throw error;
    return null;
  });
  if (!answer.ok) throw refusal(answer.status, body);
  if (body === null) throw new Refusal(answer.status, "The answer is not JSON: a proxy may stand between this page and Airflow.");
  return body;
}

const send = (method, url, body) =>
  ask(url, { method, body: JSON.stringify(body), headers: { "Content-Type": "application/json" } });

/** One of the page's own routes: own("jobs", "flights", "events"). */
const own = (...parts) => new URL(parts.map(encodeURIComponent).join("/"), OWN).href;

/** A DAG with its form. */
export const dagDetails = (dagId) => ask(airflowUrl("api", "v2", "dags", dagId, "details"));

/** Let the scheduler start runs of a DAG. */
export const unpause = (dagId) =>
  send("PATCH", `${airflowUrl("api", "v2", "dags", dagId)}?update_mask=is_paused`, { is_paused: false });

/** An id for a run that is begun by hand, as Airflow makes them. */
export const newRunId = () => `manual__${new Date().toISOString().replace("Z", "+00:00")}_${Math.random().toString(36).slice(2, 10)}`;

/** Begin a run of a DAG, as the user; if there is one of this id, an earlier try has begun it. */
export async function trigger(dagId, runId, conf, note) {
  const runs = ["api", "v2", "dags", dagId, "dagRuns"];
  try {
    return await send("POST", airflowUrl(...runs), { dag_run_id: runId, logical_date: null, conf, ...(note ? { note } : {}) });
  } catch (error) {
    if (error.status !== 409) throw error;
    return ask(airflowUrl(...runs, runId)).catch(() => {
      throw error;
    });
  }
}

// The newest answers: Airflow mounts the page again on each step through its own history, and an empty
// page for half a second each time would be tiring.
const kept = new Map();

/** The list of jobs, or one of them: asked again every 15 seconds while the page is visible. */
export const useAnswer = (...parts) => useAsked(own(...parts), POLL_MS);

/** What does not change while the page is open. */
export const useOnce = (...parts) => useAsked(own(...parts), null);

/** A part of a job: asked again when the job's line says that another one has been kept. */
export const usePart = (job, part, line) => useAsked(own("jobs", job, part), null, line?.parts?.[part]?.digest);

/** So many import errors are asked for; before Airflow 3.3 a file counts once for each of its DAGs. */
const IMPORT_ERRORS = 100;

/**
 * DAG files that Airflow cannot import, of those whose errors this user may read.
 *
 * @param there Whether the page's route says that there are any.
 * @param dag Only the file of this DAG: {file, bundle}; null for all files.
 * @returns [{import_error_id, filename, bundle_name, stack_trace}]; `more` says whether there are more than that.
 */
export function useImportErrors(there, dag = null) {
  const url = `${airflowUrl("api", "v2", "importErrors")}?limit=${IMPORT_ERRORS}${dag ? `&filename_pattern=${encodeURIComponent(dag.file)}` : ""}`;
  const { data } = useAsked(there && (!dag || dag.file) ? url : null, POLL_MS);
  // Before 3.3 it names a file once for each of its DAGs.
  const found = new Map((data?.import_errors || []).map((one) => [one.import_error_id, one]));
  const of = [...found.values()].filter((one) => !dag || (one.filename === dag.file && one.bundle_name === dag.bundle));
  return Object.assign(of, { more: Boolean(data) && data.total_entries > IMPORT_ERRORS });
}

/**
 * What a route answers.
 *
 * @param url The route; null for none.
 * @param every After how many milliseconds it is asked again; null for not by time.
 * @param version It is asked again when this changes.
 * @returns {{data: any, error: any, loading: boolean, again: () => Promise<void>}} The newest answer even where a later request failed.
 */
function useAsked(url, every, version = null) {
  const [, draw] = useState(0);
  const running = useRef(null);

  const again = useCallback(async () => {
    running.current?.abort();
    const abort = new AbortController();
    running.current = abort;
    let late = false;
    const timer = setTimeout(() => {
      late = true;
      abort.abort();
    }, PATIENCE_MS);
    const before = kept.get(url) || {};
    try {
      const data = await ask(url, { signal: abort.signal });
      if (data.now) {
        // The server's clock decides how old something is: that of a laptop may be wrong.
        const ahead = Date.parse(data.now) / 1000 - Date.now() / 1000;
        setClock(() => Date.now() / 1000 + ahead);
      }
      // A part that is the same keeps its identity, so that nothing that depends on it is drawn again.
      const same = !data.now && data.at && before.data?.at === data.at;
      kept.set(url, { data: same ? before.data : data, error: null });
    } catch (failed) {
      if (failed.name === "AbortError" && !late) return;
      const error = late ? refusal(408, null) : failed;
      const gone = error.status === 404 || error.status === 401 || error.status === 403;
      kept.set(url, { data: gone ? undefined : before.data, error });
    } finally {
      clearTimeout(timer);
      if (running.current === abort) running.current = null;
    }
    draw((n) => n + 1);
  }, [url]);

  useEffect(() => {
    const visible = () => document.visibilityState === "visible";
    // One request at a time: an answer that takes longer than this is waited for.
    const look = () => url !== null && visible() && running.current === null && again();
    look();
    // A part that could not be had is tried again, too.
    const timer = setInterval(() => (every !== null || kept.get(url)?.error) && look(), POLL_MS);
    document.addEventListener("visibilitychange", look);
    return () => {
      clearInterval(timer);
      document.removeEventListener("visibilitychange", look);
      running.current?.abort();
      running.current = null;
    };
  }, [url, again, every, version]);

  const { data, error = null } = kept.get(url) || {};
  return { data, error, loading: url !== null && data === undefined && error === null, again };
}
