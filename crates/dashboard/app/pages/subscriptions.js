/** The subscriptions of Consumers to APIs. */

import { h, badge, drawer, empty, facts, link, notice, pageHead, search } from "../lib/dom.js";
import { ask, session } from "../lib/change.js";
import { table } from "../lib/table.js";
import { query } from "../lib/data.js";
import { day, subscriptionTone } from "../lib/format.js";

/**
 * @typedef {object} Subscription
 * @property {string} namespace
 * @property {string} name
 * @property {string} consumer_namespace
 * @property {string} consumer
 * @property {string} plan
 * @property {{name: string, operation_sets: string[] | null}[]} apis
 * @property {string} state
 * @property {string} message
 * @property {number | null} created
 * @property {string | null} origin
 */

/** What each decision does: the title of the button, the effect, and whether callers lose access. */
const DECISIONS = {
  approve: /** @type {const} */ (["Approve", "The Consumer can call the APIs by the plan at once.", false]),
  reject: /** @type {const} */ (["Reject", "Requests under the subscription receive 403.", true]),
  suspend: /** @type {const} */ (["Suspend", "Requests under the subscription receive 403 until you resume the subscription.", true]),
  resume: /** @type {const} */ (["Resume", "The subscription is active again.", false]),
};

/** @type {Record<string, (keyof DECISIONS)[]>} */
const POSSIBLE = { Pending: ["approve", "reject"], Active: ["suspend", "reject"], Suspended: ["resume"], Rejected: ["approve"] };

/** @param {Subscription} of */
const apis = (of) => of.apis.map((api) => api.name).join(", ");

/** @type {import("../main.js").Page["show"]} */
export function show(root, { url, signal, remember }) {
  root.classList.add("full");
  const text = url.searchParams.get("search") ?? "";

  /** @param {Subscription} of */
  const open = (of) => {
    const name = `${of.namespace}/${of.name}`;
    const buttons = (POSSIBLE[of.state] ?? []).map((decision) => {
      const [title, effect, isGrave] = DECISIONS[decision];
      return h("button", {
        type: "button", class: `button ${isGrave ? "danger" : "primary"}`,
        onclick: () => ask({ title: `${title} ${name}`, text: effect, button: title, isGrave, change: () => ({ change: decision, subscription: name }), done: () => rows.refresh() }),
      }, title);
    });
    drawer(name, badge(of.state, subscriptionTone(of.state)), [
      of.message ? notice(of.state === "Invalid" ? "bad" : "warn", of.message) : null,
      facts([
        ["Consumer", link(`/consumers?${query({ search: `${of.consumer_namespace}/${of.consumer}` })}`, `${of.consumer_namespace}/${of.consumer}`)],
        ["Plan", link(`/plans?${query({ search: `${of.namespace} ${of.plan}` })}`, `${of.namespace}/${of.plan}`)],
        ["APIs", h("ul", null, of.apis.map((api) => h("li", null, h("a", { href: `/apis/${encodeURIComponent(of.namespace)}/${encodeURIComponent(api.name)}` }, api.name), api.operation_sets ? `: ${api.operation_sets.join(", ")}` : null)))],
        ["Created", of.created === null ? null : day(of.created)],
        ["Written in", of.origin ? h("code", null, of.origin) : null],
      ]),
      session.changes && buttons.length ? h("div", { class: "row-flex" }, buttons) : null,
    ]);
  };

  /** @type {ReturnType<typeof table<Subscription>>} */
  const rows = table({
    label: "Subscriptions", source: "subscriptions", search: text, of: ["subscription", "subscriptions"], signal, open, refresh: 10_000,
    columns: [
      { title: "Subscription", width: "minmax(0, 1.4fr)", cell: (of) => [h("span", { class: "sub" }, `${of.namespace}/`), of.name], tip: (of) => `${of.namespace}/${of.name}`, phone: 1 },
      { title: "Consumer", width: "minmax(0, 1.2fr)", cell: (of) => [h("span", { class: "sub" }, `${of.consumer_namespace}/`), of.consumer], tip: (of) => `${of.consumer_namespace}/${of.consumer}`, phone: 3 },
      { title: "APIs", width: "minmax(0, 1.2fr)", cell: apis, tip: apis },
      { title: "Plan", width: "minmax(0, 0.8fr)", cell: (of) => of.plan, tip: (of) => of.plan, phone: 4 },
      { title: "State", width: "112px", cell: (of) => badge(of.state, subscriptionTone(of.state)), phone: 2 },
    ],
    nothing: () => h("div", { class: "card" }, empty("subscriptions", "No subscriptions", "A Subscription allows a Consumer to call an Api by a Plan.")),
  });
  root.append(
    pageHead("Subscriptions", null, search("Search Consumer, API, plan or state", text, (next) => {
      remember({ search: next });
      rows.search(next);
    })),
    rows.element,
  );
}
