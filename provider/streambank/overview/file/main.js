// @ts-check
// The page as a file: what Airflow would show of a job, as of when it was written.

import "./react.production.min.js";
import "./react-dom.production.min.js";
import { Fragment, h } from "./h.js";
import { Charts, Partitions } from "./charts.js";
import { JobPage, Verdicts } from "./job.js";
import { held, usePart, useRoute } from "./source.js";
import { At, Contained, Pill } from "./ui.js";
import { LEVELS, LEVEL_TONE } from "./words.js";

/** What was judged and measured, where nothing else is held. */
function Judged() {
  const verdicts = usePart(held.name, "verdicts");
  const charts = usePart(held.name, "charts");
  const { level } = verdicts.data || {};
  return h(Fragment, null,
    h("header", { className: "sb-head" }, h("h1", null, held.name), level && h(Pill, { tone: LEVEL_TONE[level] }, LEVELS[level])),
    h("div", { className: "sb-view" },
      h(Contained, null, h(Charts, { answer: charts, events: [], line: null })),
      h(Contained, null, h(Verdicts, { answer: verdicts, line: null })),
      h(Contained, null, h(Partitions, { answer: charts }))));
}

function Page() {
  const [tab, item] = useRoute().parts;
  return h("div", { className: "sb-root sb-page" },
    h("p", { className: "sb-crumbs" }, "As it was at ", h(At, { iso: held.at }), ", to which all ages count."),
    h(Contained, null, held.line ? h(JobPage, { job: held.name, tab, item, alone: true }) : h(Judged)));
}

const dark = matchMedia("(prefers-color-scheme: dark)");
const follow = () => document.documentElement.classList.toggle("dark", dark.matches);
dark.addEventListener("change", follow);
follow();
globalThis.ReactDOM.createRoot(document.getElementById("sb-page")).render(h(Page));
