// @ts-check
// Small parts that several views share.

import { Fragment, React, h, cx, useEffect, useState } from "./h.js";
import { ageOf } from "./entry.js";
import { age, count, fullTime, time } from "./format.js";
import { endedOf, table } from "./words.js";

const SIGNS = table({ bad: "!", warn: "!", ok: "✓", info: "i", off: "–" });

/** A state as a coloured label; its sign says the same to who sees no colours. */
export const Pill = ({ tone, children, title }) =>
  h("span", { className: `sb-pill sb-${tone}`, title }, h("span", { className: "sb-sign", "aria-hidden": true }, SIGNS[tone]), children);

/** How the newest drill ended. */
export function Ended({ drill }) {
  const { tone, words } = endedOf(drill);
  return h("span", { className: tone === "ok" ? undefined : `sb-text-${tone}`, title: drill.not_run || undefined }, words);
}

/** A dot of a tone, where there is no room for words; the words are read aloud. */
export const Dot = ({ tone, label }) => h("span", { className: `sb-dot sb-${tone}`, role: "img", "aria-label": label, title: label }, SIGNS[tone]);

const UNCOUNTED = table({
  "checkpoint-lost": "The checkpoint is gone, and with it the number of the newest batch.",
  "repository-lost": "The records that say where the checkpoint is are lost.",
  unreadable: "The job's records cannot be read.",
});

/** The number of the newest committed batch. Where what counts batches is gone, that there was none is not known. */
export function Batch({ line }) {
  if (typeof line.batch === "number") return count(line.batch);
  const why = UNCOUNTED[line.state] || (line.error && "Not all of the job's storage can be read.");
  return h("span", { className: "sb-muted", title: why || undefined }, why ? "not known" : "none");
}

/** A time, in the user's zone; the tooltip has it in full. */
export const At = ({ iso, children }) =>
  iso ? h("time", { dateTime: iso, title: fullTime(iso) }, children || time(iso)) : h("span", { className: "sb-muted" }, "–");

/** How long ago something was. */
export function Ago({ iso, stale = null, suffix = " ago" }) {
  const seconds = ageOf(iso);
  if (seconds === null) return h("span", { className: "sb-muted" }, "–");
  return h("time", { dateTime: iso, title: fullTime(iso), className: stale !== null && seconds > stale ? "sb-text-bad" : undefined },
    age(seconds) + suffix);
}

/** Draw again every so often, so that ages are right. */
export function useTick(ms = 15_000) {
  const [, draw] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => document.visibilityState === "visible" && draw((n) => n + 1), ms);
    return () => clearInterval(timer);
  }, [ms]);
}

/** A part of a view with a heading. */
export function Card({ title, aside, id, children, className }) {
  return h("section", { className: cx("sb-card", className), "aria-labelledby": id },
    title && h("header", { className: "sb-card-head" }, h("h2", { id }, title), aside && h("div", { className: "sb-aside" }, aside)),
    children);
}

/** Name and value, side by side. */
export const Facts = ({ children }) => h("dl", { className: "sb-facts" }, children);
export const Fact = ({ name, children, wide }) =>
  h("div", { className: wide ? "sb-wide" : undefined }, h("dt", null, name), h("dd", null, children));

/** A text of our own whose `code`, **strong** and *emphasized* words are shown as such; the rest is text as it is. */
export function Marked({ text }) {
  const parts = String(text || "").split(/(`[^`]+`|\*\*[^*]+\*\*|\*[^*\s][^*]*\*)/);
  return h(Fragment, null, parts.map((part, index) => {
    if (index % 2 === 0) return part;
    if (part.startsWith("`")) return h("code", { key: index }, part.slice(1, -1));
    if (part.startsWith("**")) return h("strong", { key: index }, part.slice(2, -2));
    return h("em", { key: index }, part.slice(1, -1));
  }));
}

/** What is wrong with a part, or that it is not there yet; null where it can be drawn. */
export function notDrawn(answer, nothing = "Nothing is kept of this yet. Tasks that work on the job do so when they end, and its watcher within ten minutes.") {
  if (answer.loading) return h(Loading);
  if (answer.error && answer.data === undefined) {
    return answer.error.status === 404 ? h(Empty, null, answer.error.nothing || nothing) : h(Failed, { error: answer.error, again: answer.again });
  }
  if (answer.data?.error) return h(Failed, { error: answer.data.error });
  return null;
}

export const Loading = () =>
  h("div", { className: "sb-loading", role: "status", "aria-label": "Loading" }, h("span", null), h("span", null), h("span", null));

export const Empty = ({ children }) => h("p", { className: "sb-empty" }, children);

/** An error in words, what can be done, and its code to search for. */
export function Failed({ error, again }) {
  return h("div", { className: "sb-failed", role: "alert" },
    h("p", null, error.message || String(error)),
    error.hint && h("p", null, h(Marked, { text: error.hint })),
    error.code && h("p", { className: "sb-muted" }, "Code: ", h("code", null, error.code)),
    again && h("button", { type: "button", className: "sb-button", onClick: again }, "Try again"));
}

/** What cannot be drawn keeps its error to itself, and what is around it goes on. It is tried again when that is drawn anew. */
export class Contained extends React.Component {
  constructor(props) {
    super(props);
    this.state = { error: null };
  }

  static getDerivedStateFromError(error) {
    return { error };
  }

  componentDidUpdate(before) {
    if (this.state.error !== null && before.children !== this.props.children) this.setState({ error: null });
  }

  render() {
    if (this.state.error === null) return this.props.children;
    return this.props.otherwise || h(Failed, {
      error: { message: "This cannot be drawn.", hint: `Reload the page. If it stays, report this: \`${this.state.error.message}\`` },
      again: () => this.setState({ error: null }),
    });
  }
}

/** The last answers as a line: the newest request has failed, so what is shown is older. */
export const Behind = ({ answer }) =>
  answer.error && answer.data !== undefined
    ? h("p", { className: "sb-behind", role: "status" }, `${answer.error.message} What is shown is the last answer.`) : null;

/** A line of numbers, oldest first; gaps where there is none. */
export function Spark({ values, label, width = 96, height = 24 }) {
  const known = (values || []).filter((value) => typeof value === "number");
  if (known.length < 2) return null;
  const least = Math.min(...known);
  const span = Math.max(...known) - least || 1;
  let path = "";
  let drawing = false;
  values.forEach((value, index) => {
    if (typeof value !== "number") {
      drawing = false;
      return;
    }
    const x = (index / (values.length - 1)) * (width - 2) + 1;
    const y = height - 2 - ((value - least) / span) * (height - 4);
    path += `${drawing ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`;
    drawing = true;
  });
  return h("svg", { className: "sb-spark", width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label },
    h("path", { d: path, fill: "none", stroke: "currentColor", strokeWidth: 1.5, strokeLinejoin: "round" }));
}

/** A share as a bar. */
export const Bar = ({ share, tone = "info", label }) =>
  h("span", { className: "sb-bar", role: "img", "aria-label": label, title: label },
    h("span", { className: `sb-${tone}`, style: { width: `${Math.max(0, Math.min(1, share || 0)) * 100}%` } }));
