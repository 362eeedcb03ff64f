// @ts-check
// What Airflow loads. It imports this module, and then takes the component that has the name of the react app.

import { cx, h, useEffect, useRef } from "./h.js";
import { JobPage } from "./job.js";
import { useOnce } from "./api.js";
import { HomeCard, JobList } from "./list.js";
import { pageUrl, useRoute } from "./route.js";
import { Contained, Empty, Failed, Loading } from "./ui.js";

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

/** The tab on a DAG: the job that it works on, or links to several. */
function Tab({ dagId }) {
  const { parts } = useRoute();
  const [tab, item] = parts;
  const answer = useOnce("dags", dagId || "");
  useNewView(parts.join("/"));
  if (answer.loading) return root("sb-page", h(Loading));
  if (answer.data === undefined) return root("sb-page", h(Failed, { error: answer.error, again: answer.again }));
  const { jobs } = answer.data;
  if (jobs.length === 1) return root("sb-page", h(JobPage, { key: dagId, job: jobs[0], tab, item, alone: true }));
  return root("sb-page", jobs.length ? h("nav", { "aria-label": "Streaming jobs of this DAG" }, h("h1", { tabIndex: -1 }, "Streaming jobs of this DAG"),
    h("ul", null, jobs.map((job) => h("li", { key: job }, h("a", { href: pageUrl(job) }, job))))) : h(Empty, null, "This DAG belongs to no streaming job."));
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

