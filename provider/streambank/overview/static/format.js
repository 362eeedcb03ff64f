// @ts-check
// Figures and times as people read them. Sizes are in powers of 1000, as on Streambank's command line.

const NONE = "–";

export const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

const three = (number) =>
  Math.abs(number) >= 999.5 ? Math.round(number).toLocaleString("en") : String(Number(number.toPrecision(3)));

/** A size: 1.23 GB. */
export function bytes(size) {
  if (!isNumber(size)) return NONE;
  const units = ["B", "kB", "MB", "GB", "TB", "PB"];
  let power = 0;
  while (power < units.length - 1 && Math.abs(size) >= 999.5 * 1000 ** power) power += 1;
  return `${three(size / 1000 ** power)} ${units[power]}`;
}

/** A number of things: 12,345 below a million, then 1.23 M. */
export function count(number) {
  if (!isNumber(number)) return NONE;
  if (Math.abs(number) < 1e6) return (Number.isInteger(number) ? number : Number(number.toPrecision(3))).toLocaleString("en");
  return Math.abs(number) < 999.5e6 ? `${three(number / 1e6)} M` : `${three(number / 1e9)} G`;
}

/** A number and its noun: 1 job, 2 jobs, 3 batches. */
export function counted(number, noun) {
  const several = /(ch|s|x)$/.test(noun) ? `${noun}es` : `${noun}s`;
  return `${count(number)} ${number === 1 ? noun : several}`;
}

/** A duration, its two largest units: 3 d 4 h, 1 min 30 s, 0.25 s. */
export function duration(seconds) {
  if (!isNumber(seconds)) return NONE;
  if (Math.abs(seconds) < 60) return `${Number(seconds.toPrecision(seconds < 1 ? 2 : 3))} s`;
  const whole = Math.round(seconds);
  for (const [large, small, name, below] of /** @type {[number, number, string, string][]} */ ([[86400, 3600, "d", "h"], [3600, 60, "h", "min"], [60, 1, "min", "s"]])) {
    if (whole >= large) {
      const rest = Math.floor((whole % large) / small);
      return `${Math.floor(whole / large)} ${name}${rest ? ` ${rest} ${below}` : ""}`;
    }
  }
  return `${whole} s`;
}

/** How long ago, its largest unit, for lists: 4 min, 3 h, 2 d. */
export function age(seconds) {
  if (!isNumber(seconds)) return NONE;
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min`;
  if (whole < 172800) return `${Math.floor(whole / 3600)} h`;
  return `${Math.floor(whole / 86400)} d`;
}

/** A measurement in the unit of its objective. */
export function figure(value, unit) {
  if (!isNumber(value)) return NONE;
  switch (unit) {
    case "bytes": return bytes(value);
    case "bytes/h": return `${bytes(value)}/h`;
    case "s": return duration(value);
    case "ms": return `${three(value)} ms`;
    case "ratio": return `${three(value)} times`;
    case "count": return count(value);
    default: return unit ? `${count(value)} ${unit}` : count(value);
  }
}

/** A share of 1: 31 %. */
export const percent = (share) => (isNumber(share) ? `${Math.round(share * 100)} %` : NONE);

/** The zone that the user has chosen in Airflow, or else that of the browser. */
export function zone() {
  let chosen = null;
  try {
    chosen = globalThis.localStorage.getItem("timezone");
    chosen = chosen && chosen.startsWith('"') ? JSON.parse(chosen) : chosen;
    new Intl.DateTimeFormat("en", { timeZone: chosen || "UTC" });
  } catch {
    chosen = null;
  }
  return chosen || Intl.DateTimeFormat().resolvedOptions().timeZone;
}

const formats = new Map();

function formatted(moment, options) {
  const key = zone() + JSON.stringify(options);
  if (!formats.has(key)) formats.set(key, new Intl.DateTimeFormat("en-GB", { timeZone: zone(), hourCycle: "h23", ...options }));
  return formats.get(key).format(moment);
}

/** Seconds since 1970 of an ISO-8601 time; null for none. */
export function epoch(iso) {
  const moment = iso ? Date.parse(iso) : NaN;
  return Number.isNaN(moment) ? null : moment / 1000;
}

const DAY = { day: "numeric", month: "short" };
const CLOCK = { hour: "2-digit", minute: "2-digit" };

/** The day, with its year where that is another one than the present. */
export function day(iso) {
  const at = epoch(iso);
  if (at === null) return NONE;
  const recent = Math.abs(Date.now() / 1000 - at) < 180 * 86400;
  return formatted(at * 1000, recent ? { weekday: "short", ...DAY } : { ...DAY, year: "numeric" });
}

/** The time of day. */
export const clock = (iso) => (epoch(iso) === null ? NONE : formatted(epoch(iso) * 1000, { ...CLOCK, second: "2-digit" }));

/** Day and time, short: 27 Nov, 22:14. */
export function time(iso) {
  const at = epoch(iso);
  if (at === null) return NONE;
  const recent = Math.abs(Date.now() / 1000 - at) < 180 * 86400;
  return formatted(at * 1000, { ...DAY, ...CLOCK, ...(recent ? {} : { year: "numeric" }) });
}

/** Day, time and zone in full, for a tooltip. */
export function fullTime(iso) {
  const at = epoch(iso);
  if (at === null) return "";
  return formatted(at * 1000, { weekday: "long", day: "numeric", month: "long", year: "numeric", ...CLOCK, second: "2-digit",
    timeZoneName: "short" });
}

/** The first characters of a savepoint's id: b000004-c28c16 of b000004-c28c1611906f. */
export const shortId = (id) => (id && /^b\d+-[0-9a-f]{7,}$/.test(id) ? String(id).replace(/(-[0-9a-f]{6})[0-9a-f]*$/, "$1") : id || NONE);
