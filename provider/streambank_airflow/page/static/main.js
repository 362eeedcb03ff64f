// @ts-check
// What Airflow loads. It imports this module, and then takes the component that has the name of the react app.

import { cx, h, useEffect, useRef } from "./h.js";
import { JobPage } from "./job.js";
import { HomeCard, JobList } from "./list.js";
import { useRoute } from "./route.js";
import { Contained } from "./ui.js";
import { ACTIONS } from "./words.js";

const root = (name, children) => h("div", { className: cx("sb-root", name) }, h(Contained, null, children));

/** Another view begins at its top, and keys go on from its heading where what had the focus is gone. */
function useNewView(view) {
  const before = useRef(view);
  useEffect(() => {
    if (before.current === view) return;
    before.current = view;
    document.querySelector(".sb-page")?.scrollTo(0, 0);
    if (document.activeElement === document.body) /** @type {HTMLElement} */ (document.querySelector(".sb-page h1"))?.focus({ preventScroll: true });
  }, [view]);
}

/** The page in the navigation: all jobs, or one of them. */
function Page() {
  const { parts } = useRoute();
  const [job, tab, item] = parts;
  useNewView(parts.join("/"));
  return root("sb-page", job ? h(JobPage, { key: job, job, tab, item }) : h(JobList));
}

/** The card on Home. */
const Home = () => root("sb-home-root", h(HomeCard));

/** The tab on a DAG: the job that it belongs to. */
function Tab({ dagId }) {
  const { parts } = useRoute();
  const [tab, item] = parts;
  useNewView(parts.join("/"));
  return root("sb-page", h(JobPage, { key: dagId, job: jobOf(dagId || ""), tab, item, alone: true }));
}

/** `flights` of `flights.restore` and of `flights.refresh.staging`. */
export function jobOf(dagId) {
  const parts = dagId.split(".");
  const verb = parts.findIndex((part, index) => index > 0 && (part === "refresh" || (index === parts.length - 1 && part in ACTIONS)));
  return verb > 0 ? parts.slice(0, verb).join(".") : dagId;
}

/** Wait for the styles, so that the page is never seen without them. */
function load(name) {
  const href = new URL(name, import.meta.url).href;
  if ([...document.styleSheets].some((sheet) => sheet.href === href)) return Promise.resolve();
  return new Promise((resolve) => {
    const link = Object.assign(document.createElement("link"), { rel: "stylesheet", href, onload: resolve, onerror: resolve });
    document.head.append(link);
  });
}

await Promise.all([load("uPlot.min.css"), load("style.css")]);

globalThis["Streambank"] = Page;
globalThis["Streambank jobs"] = Home;
globalThis["Streambank job"] = Tab;

