// @ts-check
// What a person can do: each action is a run of one of the job's DAGs, begun through Airflow's API as that user, so that
// rights, approvals and the audit log are Airflow's.

import { Fragment, h, cx, createContext, useCallback, useContext, useEffect, useId, useMemo, useRef, useState } from "./h.js";
import { airflowUrl, dagDetails, newRunId, questionUrl, trigger, unpause } from "./api.js";
import { Form, answersOf, fieldsOf, initialOf, misfits } from "./form.js";
import { Failed, Loading } from "./ui.js";
import { ACTIONS, FIRST_ACTIONS, actionOf, answerWords, titled } from "./words.js";

const Acting = createContext(null);

/** DAGs that hand the job back to `run`, and refuse where that is paused. */
const HANDS_BACK = ["restore", "compact", "rescale", "transform", "bootstrap", "failover"];

/**
 * Paused DAGs that a run needs, by what its form says now.
 *
 * @param dags Of the job: verb -> {dag_id, paused, trigger}.
 * @param verb The DAG that is run.
 * @param inputs What its form holds: a fork, a dry run and a plan alone hand nothing back.
 */
export function pausedOnes(dags, verb, inputs) {
  const found = dags[verb].paused ? [dags[verb].dag_id] : [];
  const starts = inputs.start !== false && !inputs.dry_run && !inputs.plan_only && !String(inputs.into || "").trim();
  if (HANDS_BACK.includes(verb) && starts && dags.run?.paused && dags.run.trigger) found.push(dags.run.dag_id);
  return found;
}

/**
 * What is inside may begin actions on a job: `dags` says which DAGs there are, and which of them this user may trigger; `own` which
 * DAGs people have written for the job; `approvals` which questions wait.
 */
export function Actions({ job, dags, own, approvals, done, children }) {
  const [asked, setAsked] = useState(null);
  const act = useCallback((verb, fill = {}) => setAsked({ verb, fill }), []);
  const value = useMemo(() => ({ job, dags: dags || {}, own: own || [], act }), [job, dags, own, act]);
  return h(Acting.Provider, { value }, children,
    asked && value.dags[asked.verb] && h(ActionDialog, { key: JSON.stringify(asked), job, dags: value.dags, approvals, ...asked, close: () => setAsked(null), done }));
}

/** The DAGs that people have written which do this, of those that this user may trigger. */
const ownOnes = (acting, verb) => (acting?.own || []).filter((one) => one.trigger && one.verbs.includes(verb));

/** A link to a DAG that people have written: its form is theirs, so Airflow shows it, and nothing is filled in. */
function Own({ dag, words, primary, small }) {
  const does = dag.verbs.map((verb) => actionOf(verb).button).join(", ");
  return h("a", { className: cx("sb-button", primary && "sb-primary", small && "sb-small"), href: airflowUrl("dags", dag.dag_id),
    title: `Opens ${dag.dag_id} in Airflow, to trigger it there.${does && ` All that it does to this job: ${does}.`}${dag.paused ? " It is paused." : ""}` }, `${words}: ${dag.name}`);
}

/** A button that opens an action's form, or links to the DAGs of one's own that do it; nothing for who may not do it. */
export function Act({ verb, fill, primary, small, danger, children }) {
  const acting = useContext(Acting);
  if (!acting?.dags[verb]?.trigger) {
    // What would be filled in is not handed over.
    return fill ? null : ownOnes(acting, verb).map((dag) => h(Own, { key: dag.dag_id, dag, words: actionOf(verb).button, primary, small }));
  }
  return h("button", {
    type: "button", className: cx("sb-button", primary && "sb-primary", small && "sb-small", danger && "sb-danger"), title: actionOf(verb).what,
    "aria-haspopup": "dialog", onClick: () => acting.act(verb, fill),
  }, children || `${actionOf(verb).button}…`);
}

/** Whether this user may begin an action here. */
export function useMay() {
  const acting = useContext(Acting);
  return (verb) => Boolean(acting?.dags[verb]?.trigger) || ownOnes(acting, verb).length > 0;
}

/** All actions of a job: the daily ones, and the others behind one button. */
export function Toolbar({ running }) {
  const { dags, own } = useContext(Acting);
  const [more, setMore] = useState(false);
  const id = useId();
  const verbs = Object.keys(dags);
  const may = verbs.filter((verb) => dags[verb].trigger);
  const theirs = own.filter((one) => one.trigger);
  if (!verbs.length && !own.length) return null;
  if (!may.length && !theirs.length) {
    return h("p", { className: "sb-muted sb-viewer" }, [...Object.values(dags), ...own].every((one) => one.broken)
      ? "Airflow runs none of the job's DAGs until it can import their file." : "You may see this job. Its actions need the right to trigger its DAGs.");
  }
  const first = FIRST_ACTIONS.filter((verb) => may.includes(verb));
  const order = Object.keys(ACTIONS);
  const others = may.filter((verb) => !first.includes(verb)).sort((a, b) => (order.indexOf(a) + 1 || 99) - (order.indexOf(b) + 1 || 99));
  const button = (verb) => h(Act, { key: verb, verb, danger: verb === "stop" && running });
  return h("div", { className: "sb-toolbar", role: "group", "aria-label": "Actions" },
    first.map(button),
    theirs.map((dag) => h(Own, { key: dag.dag_id, dag, words: dag.verbs.map((verb) => actionOf(verb).button).join(", ") || "Open" })),
    others.length > 0 && h("button", { type: "button", className: "sb-button", "aria-expanded": more, "aria-controls": id, onClick: () => setMore(!more) }, more ? "Fewer" : "More"),
    h("div", { id, className: "sb-more", hidden: !more }, others.map(button)));
}

function ActionDialog({ job, dags, approvals, verb, fill, close, done }) {
  const action = actionOf(verb);
  const { dag_id: dagId } = dags[verb];
  const [dag, setDag] = useState(null);
  const [failed, setFailed] = useState(null);
  const [inputs, setInputs] = useState({});
  const [wrong, setWrong] = useState({});
  const [waiting, setWaiting] = useState(false);
  const [run, setRun] = useState(null);
  const [paused, setPaused] = useState(null);
  // Ticked only for a run of the job itself: everything else leaves paused what a person has paused.
  const [wake, setWake] = useState({ [dagId]: verb === "run" });
  // One id for all tries: where the answer to the first one was lost, the second one begins no other run.
  const runId = useMemo(newRunId, []);
  const fields = useMemo(() => fieldsOf(dag?.params), [dag]);

  const load = useCallback(async () => {
    setFailed(null);
    try {
      const details = await dagDetails(dagId);
      setDag(details);
      setInputs(initialOf(fieldsOf(details.params), fill));
    } catch (error) {
      setFailed(error);
    }
  }, [dagId]);
  useEffect(() => {
    load();
  }, [load]);

  const unfit = dag === null ? [] : misfits(fields, fill);
  const asleep = dag === null ? [] : pausedOnes({ ...dags, [verb]: { ...dags[verb], paused: dag.is_paused } }, verb, inputs);
  const begin = async (event) => {
    event.preventDefault();
    const { conf, wrong: found } = answersOf(fields, inputs);
    setWrong(found);
    if (Object.keys(found).length) {
      event.target.querySelector(`[name="${CSS.escape(Object.keys(found)[0])}"]`)?.focus();
      return;
    }
    setWaiting(true);
    setFailed(null);
    try {
      const begun = await trigger(dagId, runId, conf, typeof conf.note === "string" ? conf.note : null);
      // Nothing is unpaused for a run that was refused.
      setPaused(await leftPaused(asleep, wake));
      setRun(begun);
      done?.();
    } catch (error) {
      setFailed(error);
    } finally {
      setWaiting(false);
    }
  };

  const title = `${action.title} ${job}`;
  if (run) return h(Modal, { title, close }, h(Begun, { run, dagId, verb, paused, approvals, questions: dags[verb].questions, close }));
  if (unfit.length) {
    return h(Modal, { title, close }, h("div", { className: "sb-form" },
      h(Failed, { error: {
        message: `\u201c${action.title}\u201d cannot be begun with ${unfit.map((name) => `${titled(name).toLowerCase()} ${fill[name]}`).join(" and ")}.`,
        hint: `The form of \`${dagId}\` does not take that, so it would do something else. Begin it from the job's page, and choose what it offers.` } }),
      h("footer", null, h("button", { type: "button", className: "sb-button sb-primary", onClick: close }, "Close"))));
  }
  return h(Modal, { title, close },
    h("form", { className: "sb-form", onSubmit: begin, noValidate: true },
      h("p", null, action.what, " ", h("span", { className: "sb-muted" }, "Begins a run of ", h("code", null, dagId), " as you.")),
      dag === null && !failed && h(Loading),
      dag && h("div", { className: "sb-fields" },
        h(Form, { fields, inputs, wrong, disabled: waiting, change: (name, value) => setInputs((before) => ({ ...before, [name]: value })) }),
        asleep.map((id) => h("label", { key: id, className: "sb-wake" },
          h("input", { type: "checkbox", checked: Boolean(wake[id]), disabled: waiting, onChange: (event) => setWake((before) => ({ ...before, [id]: event.target.checked })) }),
          h("span", null, "Unpause ", h("code", null, id), id === dagId ? ": a run of a paused DAG does not begin." : ": the job is handed back to it, which is refused while it is paused.",
            " Runs of it that are queued begin at once.")))),
      failed && h(Failed, { error: failed, again: dag ? null : load }),
      h("footer", null,
        h("button", { type: "submit", className: cx("sb-button", verb === "stop" || verb === "failover" ? "sb-danger" : "sb-primary"), disabled: waiting || dag === null },
          waiting ? "Begins…" : verb === "restore" ? "Show the plan" : action.button),
        h("button", { type: "button", className: "sb-button", onClick: close }, "Cancel"))));
}

/** Unpause the DAGs that are ticked: those that are paused still, with the error of Airflow where it refused. */
async function leftPaused(asleep, wake) {
  const left = [];
  for (const id of asleep) {
    const error = wake[id] ? await unpause(id).then(() => null, (refused) => refused) : undefined;
    if (error !== null) left.push({ id, error });
  }
  return left;
}

function Begun({ run, dagId, verb, paused, approvals, questions, close }) {
  const id = run.dag_run_id;
  const question = (approvals || []).find((one) => one.dag_id === dagId && one.run_id === id);
  const waits = paused.some((one) => one.id === dagId);
  const asks = verb === "restore" || ["compact", "rescale", "transform", "bootstrap", "failover"].includes(verb);
  return h("div", { className: "sb-form", role: "status" },
    h("p", null, h("strong", null, waits ? "The run waits." : "The run has begun."), " ",
      waits ? h(Fragment, null, h("code", null, dagId), " is paused: unpause it, and the run begins.")
        : question ? `It waits for an answer: ${question.subject || question.task_id}`
          : asks ? h(Fragment, null, "It shows what it would do, and may ask for an approval before it changes anything", questions ? ": the question appears here."
            : h(Fragment, null, ". You may not read the questions of ", h("code", null, dagId), ", so none appears here: the run goes on when a person who may has answered.")) : "This page shows what it does within a minute."),
    paused.filter((one) => one.id !== dagId).map((one) =>
      h("p", { key: one.id, className: "sb-text-warn" }, h("code", null, one.id), " is paused, so the run stops at its task ", h("code", null, "check_run"),
        " before anything is changed. Unpause it and clear that task, and the run goes on.")),
    paused.filter((one) => one.error).map((one) => h(Failed, { key: one.id, error: { message: `${one.id} could not be unpaused. ${one.error.message}` } })),
    h("p", null, h("a", { href: airflowUrl("dags", dagId, "runs", id), autoFocus: true }, `Open the run ${id}`)),
    asks && questions && !question && h("p", null, h("a", { href: airflowUrl("dags", dagId, "runs", id, "required_actions") }, "Open its questions")),
    h("footer", null,
      question && h("a", { className: "sb-button sb-primary", href: questionUrl(question) }, answerWords(question)),
      h("button", { type: "button", className: cx("sb-button", !question && "sb-primary"), onClick: close }, "Close")));
}

/** A dialog of the browser's own: it keeps the focus inside, closes by Escape, and gives the focus back. */
function Modal({ title, close, children }) {
  const place = useRef(null);
  const outside = useRef(false);
  const id = useId();
  useEffect(() => {
    const before = /** @type {HTMLElement} */ (document.activeElement);
    if (!place.current.open) place.current.showModal();
    return () => before?.isConnected && before.focus();
  }, []);
  return h("dialog", {
    ref: place, className: "sb-dialog", "aria-labelledby": id,
    onCancel: (event) => {
      event.preventDefault();
      close();
    },
    // Text that is selected from inside to outside ends with a click there, too.
    onMouseDown: (event) => {
      outside.current = event.target === place.current;
    },
    onClick: (event) => event.target === place.current && outside.current && close(),
  }, h("div", { className: "sb-dialog-body" },
    h("header", null, h("h2", { id }, title), h("button", { type: "button", className: "sb-button sb-small", "aria-label": "Close", onClick: close }, "✕")),
    children));
}
