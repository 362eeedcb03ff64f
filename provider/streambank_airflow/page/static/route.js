// @ts-check
// Which view the address shows. Airflow routes `plugin/<page>/*` to this page and leaves the rest to it.

import { h, useEffect, useState } from "./h.js";
import { airflowUrl } from "./api.js";

const PLACE = /^(.*\/plugin\/[^/]+)(?:\/(.*?))?\/?$/;
const MOVED = "streambank:moved";

/** The page's address without its views, such as /plugin/streambank. */
export function home() {
  const match = PLACE.exec(location.pathname);
  return match ? match[1] : new URL(airflowUrl("plugin", "streambank")).pathname;
}

function here() {
  const match = PLACE.exec(location.pathname);
  const rest = match && match[2] ? match[2].split("/") : [];
  return { parts: rest.map(decode), query: new URLSearchParams(location.search) };
}

function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** The address of a view: pathOf(["flights", "events"]). */
export const pathOf = (parts) => [home(), ...parts.map(encodeURIComponent)].join("/");

/** Show another view. Airflow's router counts the steps of the history, so its fields are continued. */
export function go(path, { replace = false } = {}) {
  if (replace) history.replaceState(history.state, "", path);
  else {
    const before = history.state || {};
    history.pushState({ ...before, idx: (before.idx || 0) + 1, key: Math.random().toString(36).slice(2, 10) }, "", path);
  }
  globalThis.dispatchEvent(new Event(MOVED));
}

/** Change some values behind the question mark, without a step in the history; null removes one. */
export function setQuery(values) {
  const query = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(values)) {
    if (value === null || value === "") query.delete(name);
    else query.set(name, value);
  }
  const said = query.toString();
  go(location.pathname + (said ? `?${said}` : ""), { replace: true });
}

/** The view of the present address, drawn again whenever that changes, by whomever. */
export function useRoute() {
  const [route, set] = useState(here);
  useEffect(() => {
    let last = location.href;
    const look = () => {
      if (location.href === last) return;
      last = location.href;
      set(here());
    };
    const events = /** @type {[EventTarget, string][]} */ ([[globalThis, MOVED], [globalThis, "popstate"]]);
    // Airflow's own links move without an event that every browser has.
    if (globalThis.navigation) events.push([globalThis.navigation, "currententrychange"]);
    const timer = globalThis.navigation ? null : setInterval(look, 400);
    events.forEach(([target, name]) => target.addEventListener(name, look));
    return () => {
      clearInterval(timer);
      events.forEach(([target, name]) => target.removeEventListener(name, look));
    };
  }, []);
  return route;
}

/** A link to a view. */
export function Go({ to, children, ...more }) {
  const path = Array.isArray(to) ? pathOf(to) : to;
  const click = (event) => {
    if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    go(path);
    more.onGo?.();
  };
  const { onGo, ...rest } = more;
  return h("a", { href: path, onClick: click, ...rest }, children);
}

/** The address of the page in the navigation, or of a job on it, from anywhere in Airflow. */
export const pageUrl = (...parts) => new URL(airflowUrl("plugin", "streambank", ...parts)).pathname;
