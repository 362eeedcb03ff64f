// React as Airflow's own page has loaded it: the same instance, so that hooks work inside its tree.

export const React = globalThis.React;

export const h = React.createElement;
export const {
  Fragment, createContext, memo, useCallback, useContext, useDeferredValue, useEffect, useId, useMemo, useRef, useState,
} = React;

/** Class names from what is true: cx("a", wide && "b") -> "a b". */
export const cx = (...names) => names.filter(Boolean).join(" ");
