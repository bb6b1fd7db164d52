/** The subscriptions of the user, with what remains of their quotas. */

import { h, badge, empty, fill, link, notice, pageHead } from "../lib/dom.js";
import { ask } from "../lib/change.js";
import { read } from "../lib/data.js";
import { count, day, duration, size, subscriptionTone, windowText } from "../lib/format.js";
import { address } from "../pages/apis.js";

/**
 * @typedef {object} Subscription
 * @property {string} namespace
 * @property {string} name
 * @property {string} consumer
 * @property {string} plan
 * @property {string | null} plan_title
 * @property {{namespace: string, name: string, title: string | null, operation_sets: string[] | null}[]} apis
 * @property {string} state
 * @property {number | null} created
 * @property {boolean} is_managed whether the provider manages the subscription in a repository
 * @property {{name: string, unit: "requests" | "bytes", most: number, used: number | null, end: number | null, calendar: string | null, period: string | null}[]} quotas
 */

/** What each state means for the user. */
const MEANING = /** @type {Record<string, string>} */ ({
  Pending: "The owner of the API has not approved the subscription yet. Until then, requests receive 403.",
  Suspended: "The owner of the API has suspended the subscription. Requests receive 403.",
  Rejected: "The owner of the API has rejected the subscription. Requests receive 403.",
  Invalid: "The subscription has an error. Ask the owner of the API.",
});

/** @param {Subscription["quotas"][number]} of */
function quota(of) {
  const shown = of.unit === "bytes" ? size : count;
  if (of.used === null) return h("div", { class: "quota" }, h("span", null, `${of.name}: ${shown(of.most)} ${of.unit === "requests" ? "requests " : ""}${windowText(of)}`));
  const left = Math.max(0, of.most - of.used);
  const meter = h("meter", { min: 0, max: of.most, value: Math.min(of.used, of.most), high: of.most * 0.8, optimum: 0, "aria-label": `Used of the quota ${of.name}` });
  return h("div", { class: "quota" },
    h("div", { class: "row-flex" }, h("strong", null, of.name), h("span", { class: "muted small" }, windowText(of))),
    meter,
    h("div", { class: "row-flex small" }, h("span", null, `${shown(left)} of ${shown(of.most)}${of.unit === "requests" ? " requests" : ""} remain`), of.end === null ? null : h("span", { class: "muted" }, `until ${day(of.end)} (${duration(Math.max(0, of.end - Date.now() / 1000))})`)));
}

/** The states in which an operator has decided against the user. Others can be cancelled. */
const DECIDED = ["Suspended", "Rejected"];

/**
 * @param {Subscription} of
 * @param {() => void} done
 */
function cancelButton(of, done) {
  if (DECIDED.includes(of.state)) return null;
  if (of.is_managed) return h("p", { class: "muted small" }, "The provider of the API manages this subscription in a repository. Ask the provider if you want to cancel it.");
  const apis = of.apis.map((api) => api.title || api.name).join(", ");
  return h("div", null, h("button", {
    type: "button", class: "button danger", "aria-label": `Cancel the subscription to ${apis}`,
    onclick: () => ask({
      title: "Cancel the subscription",
      text: `The Consumer ${of.consumer} can no longer call ${apis} by the plan ${of.plan_title ?? of.plan}. You can request a new subscription, if the API still accepts subscribers. A new subscription has the same quotas, with the requests that you have made.`,
      button: "Cancel the subscription", isGrave: true, keep: "Keep the subscription", change: () => ({ change: "cancel", subscription: `${of.namespace}/${of.name}` }), done,
    }),
  }, "Cancel the subscription"));
}

/**
 * @param {Subscription} of
 * @param {() => void} changed
 */
function card(of, changed) {
  return h("li", { class: "card" },
    h("div", { class: "row-flex" }, h("h2", { class: "break" }, of.plan_title ?? of.plan), badge(of.state, subscriptionTone(of.state))),
    h("p", { class: "muted small break" }, `Consumer ${of.consumer}${of.created === null ? "" : ` · since ${day(of.created)}`}`),
    h("ul", { class: "grow" }, of.apis.map((api) => h("li", null, api.title === null ? api.name : h("a", { href: address(api) }, api.title || api.name), api.operation_sets ? `: ${api.operation_sets.join(", ")}` : null))),
    MEANING[of.state] ? notice(of.state === "Pending" ? "info" : "warn", MEANING[of.state]) : null,
    of.quotas.map(quota),
    cancelButton(of, changed));
}

/** @type {import("../lib/frame.js").Page["show"]} */
export async function show(root, { signal }) {
  const place = h("ul", { class: "cards" });
  root.append(pageHead("My subscriptions"), place);
  const draw = async () => {
    const { items } = await read("subscriptions", { limit: 500 }, signal);
    if (!items.length) fill(root, pageHead("My subscriptions"), h("div", { class: "card" }, empty("subscriptions", "You have no subscriptions", link("/", "Choose an API"))));
    else fill(place, items.map((/** @type {Subscription} */ of) => card(of, () => draw().catch(() => null))));
  };
  await draw();
  const timer = setInterval(() => {
    if (!document.hidden) draw().catch(() => null);
  }, 10_000);
  signal.addEventListener("abort", () => clearInterval(timer));
}
