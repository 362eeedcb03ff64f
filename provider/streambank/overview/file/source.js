// @ts-check
// Stands for api.js, actions.js and route.js where the page is a file: it has what the file holds, asks nobody and changes nothing.

import { h, useEffect, useState } from "./h.js";
import { parsed, setClock } from "./entry.js";

/** {name, at, line, parts}: the line and the parts of docs/formats/page.md; `line` is null where only verdicts and charts are held. */
export const held = parsed(document.getElementById("sb-held").textContent);

// Whenever it is read, a file says how old things were when it was written.
setClock(() => Date.parse(held.at) / 1000);

export const POLL_MS = 3_600_000;
const answer = (data) => ({ data, error: data ? null : { status: 404, nothing: "This was left out of the file." }, loading: false, again: null });
export const useAnswer = () => answer({ job: held.name, line: held.line, dags: [], approvals: [] });
export const usePart = (_, part) => answer(held.parts[part]);
export const useImportErrors = () => [];
export const airflowUrl = () => "";
export const questionUrl = airflowUrl;

export const Actions = ({ children }) => children;
export const Act = () => null;
export const Toolbar = () => null;
export const useMay = () => () => false;

const decoded = (part) => {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
};
const here = () => location.hash.slice(1).split("/").filter(Boolean).map(decoded);

/** The view that stands behind the `#` of the address. */
export function useRoute() {
  const [parts, set] = useState(here);
  useEffect(() => {
    const look = () => {
      set(here());
      scrollTo(0, 0);
    };
    addEventListener("hashchange", look);
    return () => removeEventListener("hashchange", look);
  }, []);
  return { parts };
}

export const Go = ({ to, children, ...more }) => h("a", { href: `#${to.map(encodeURIComponent).join("/")}`, ...more }, children);
