// @ts-check
// React as Airflow's own page has loaded it: the same instance, so that hooks work inside its tree.

export const React = globalThis.React;

/** What an element holds: an object, which React refuses, is shown as its JSON. */
const held = (child) => (Array.isArray(child) ? child.map(held)
  : typeof child === "object" && child !== null && !React.isValidElement(child) ? JSON.stringify(child) : child);

export const h = (type, props, ...children) => React.createElement(type, props, ...children.map(held));
export const {
  Fragment, createContext, memo, useCallback, useContext, useDeferredValue, useEffect, useId, useMemo, useRef, useState,
} = React;

/** Class names from what is true: cx("a", wide && "b") -> "a b". */
export const cx = (...names) => names.filter(Boolean).join(" ");
