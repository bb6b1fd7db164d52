/** Numbers, times and names, for people. */

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

/** @param {number | null | undefined} value */
export function count(value) {
  if (value === null || value === undefined) return "–";
  return Math.abs(value) < 100_000 ? whole.format(value) : compact.format(value);
}

/**
 * A number with about three digits.
 * @param {number | null | undefined} value
 */
export function short(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  if (size >= 10_000) return compact.format(value);
  if (size >= 100 || Number.isInteger(value)) return whole.format(value);
  return String(Number(value.toFixed(size >= 1 ? 1 : 2)));
}

/** @param {number | null | undefined} ms */
export function millis(ms) {
  if (ms === null || ms === undefined) return "–";
  if (ms === 0) return "0 ms";
  if (ms >= 10_000) return `${(ms / 1000).toFixed(0)} s`;
  if (ms >= 1000) return `${(ms / 1000).toFixed(1)} s`;
  return `${Number(ms.toFixed(ms >= 100 ? 0 : ms >= 10 ? 1 : 2))} ms`;
}

/**
 * A part in per cent.
 * @param {number} part
 * @param {number} all
 */
export function percent(part, all) {
  if (!all) return "–";
  const value = part / all * 100;
  if (value === 0) return "0 %";
  return `${value >= 10 ? value.toFixed(0) : value >= 0.1 ? value.toFixed(1) : "< 0.1"} %`;
}

/** @param {number | null | undefined} bytes */
export function size(bytes) {
  if (bytes === null || bytes === undefined) return "–";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let at = 0;
  let value = bytes;
  while (value >= 1000 && at < units.length - 1) { value /= 1000; at += 1; }
  return `${at === 0 ? value : value.toFixed(1)} ${units[at]}`;
}

/** @param {number} seconds since 1970 */
export function clock(seconds) {
  return new Date(seconds * 1000).toLocaleTimeString("en-GB");
}

/** @param {number} seconds since 1970 */
export function day(seconds) {
  return new Date(seconds * 1000).toLocaleDateString("en-GB", { day: "numeric", month: "short", year: "numeric" });
}

/**
 * How long ago a time is.
 * @param {number} seconds since 1970
 * @param {number} [now]
 */
export function ago(seconds, now = Date.now() / 1000) {
  const past = Math.max(0, now - seconds);
  if (past < 5) return "just now";
  return `${duration(past)} ago`;
}

/** @param {number} seconds */
export function duration(seconds) {
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  if (seconds < 129_600) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86_400)} days`;
}

/**
 * "1 route", "2 routes".
 * @param {number} number
 * @param {string} one
 * @param {string} [many]
 */
export function plural(number, one, many = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : many}`;
}

/**
 * A date that is past or to come, such as "since 1 Mar 2026 (3 days ago)".
 * @param {number | null} time in seconds since 1970
 * @param {string} past
 * @param {string} future
 */
export function date(time, past, future) {
  const now = Date.now() / 1000;
  return time === null ? null : `${time <= now ? past : future} ${day(time)}${time <= now ? ` (${ago(time, now)})` : ""}`;
}

/** @typedef {{name: string, requests: number, per: string}} Limit */
/** @typedef {{name: string, requests?: number, bytes?: string | number, calendar?: string, period?: string, timeZone?: string}} Quota */

/**
 * A limit in all its digits.
 * @param {number} number
 */
function requests(number) {
  return `${whole.format(number)} ${number === 1 ? "request" : "requests"}`;
}

/** @param {Limit} of */
export function limitText(of) {
  return `${requests(of.requests)} in ${of.per}`;
}

/** @param {{calendar?: string | null, period?: string | null, timeZone?: string}} of */
export function windowText(of) {
  if (of.period) return `in ${of.period}`;
  const zone = of.timeZone ? ` (${of.timeZone})` : "";
  return `in each ${String(of.calendar).toLowerCase()}${zone}`;
}

/** @param {Quota} of */
export function quotaText(of) {
  const most = of.requests !== undefined ? requests(of.requests) : typeof of.bytes === "number" ? size(of.bytes) : `${of.bytes}B`;
  return `${most} ${windowText(of)}`;
}

/**
 * @param {string} state of a subscription
 * @returns {"good" | "warn" | "bad"}
 */
export function subscriptionTone(state) {
  return state === "Active" ? "good" : state === "Pending" ? "warn" : "bad";
}
