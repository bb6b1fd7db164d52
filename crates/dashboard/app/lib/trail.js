/** Entries of the audit trail. */

import { lines } from "./data.js";

/**
 * @typedef {object} Change
 * @property {string} field
 * @property {any} [old]
 * @property {any} [new]
 * @property {"added" | "changed" | "removed"} [secret]
 */

/**
 * @typedef {object} Entry
 * @property {number} number
 * @property {string} time
 * @property {"created" | "found" | "changed" | "deleted" | "started" | "pruned"} operation
 * @property {string} kind
 * @property {string} [namespace]
 * @property {string} [name]
 * @property {{type: "user" | "manager" | "owner" | "unknown", name?: string, groups?: string[]}} [actor]
 * @property {Change[]} [changes]
 * @property {number} [more_changes]
 * @property {string} [summary]
 * @property {boolean} [applied]
 * @property {string} [fault]
 * @property {{file: string, line?: number}} [manifest]
 * @property {string} [uid]
 * @property {number} [resource_version]
 * @property {string} hash
 * @property {string} previous
 */

/** @param {Entry} of */
export function object(of) {
  return [of.kind, of.name ? [of.namespace, of.name].filter(Boolean).join("/") : ""].filter(Boolean).join(" ");
}

/** @param {Entry} of */
export function actor(of) {
  const { type, name } = of.actor ?? {};
  return type === "user" ? name ?? "" : name ? `${type}: ${name}` : "";
}

/** The entries that the overview reads at most. */
const RECENT = 200;

/** A mark of the overview stands for the changes of these seconds before and after its time. */
const AROUND = [8, 4];

/**
 * The entries of the last hour; `null` without an audit trail.
 * @param {AbortSignal} signal
 * @returns {Promise<Entry[] | null>}
 */
export async function recent(signal) {
  const entries = await lines("audit", { since: "1h", limit: RECENT }, signal);
  return entries && entries.filter((of) => of.kind !== "AuditTrail");
}

/**
 * The window of a mark, in seconds since 1970.
 * @param {number} time
 * @returns {[number, number]}
 */
export function around(time) {
  return [time - AROUND[0], time + AROUND[1]];
}

/**
 * The entries of a mark.
 * @param {Entry[]} entries
 * @param {number} time
 */
export function near(entries, time) {
  const [from, to] = around(time);
  return entries.filter((of) => {
    const at = Date.parse(of.time) / 1000;
    return at >= from && at < to;
  });
}

/**
 * An entry as a sentence without a period.
 * @param {Entry} of
 */
export function sentence(of) {
  return `${actor(of) || "unknown"} ${of.operation} ${object(of)}`;
}
