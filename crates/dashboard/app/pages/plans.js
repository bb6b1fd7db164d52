/** The plans: rate limits, concurrency limits and quotas. */

import { h, badge, drawer, empty, facts, link, pageHead, search } from "../lib/dom.js";
import { table } from "../lib/table.js";
import { query } from "../lib/data.js";
import { count, limitText, quotaText } from "../lib/format.js";

/**
 * @typedef {object} Plan
 * @property {string} namespace
 * @property {string} name
 * @property {string} title
 * @property {string | null} description
 * @property {import("../lib/format.js").Limit[]} limits
 * @property {{name: string, requests: number}[]} concurrency
 * @property {import("../lib/format.js").Quota[]} quotas
 * @property {boolean} needs_approval
 * @property {number} subscriptions
 * @property {string | null} origin
 * @property {string | null} visible_to
 */

/** @param {Plan} of */
const terms = (of) => [...of.limits.map(limitText), ...of.concurrency.map((limit) => `${count(limit.requests)} at once`), ...of.quotas.map(quotaText)].join(", ") || "no limits";

/** @param {string} title @param {string[]} lines */
const named = (title, lines) => lines.length ? h("div", null, h("h3", null, title), h("ul", { class: "list" }, lines.map((line) => h("li", null, line)))) : null;

/** @param {Plan} of */
function open(of) {
  drawer(of.title, badge(of.needs_approval ? "approval: Manual" : "approval: Automatic", "info"), [
    of.description ? h("p", null, of.description) : null,
    facts([
      ["Object", `Plan ${of.namespace}/${of.name}`],
      ["Subscriptions", link(`/subscriptions?${query({ search: `${of.namespace} ${of.name}` })}`, count(of.subscriptions))],
      ["Portal", of.visible_to ? `shown to ${of.visible_to}` : "hidden"],
      ["Written in", of.origin ? h("code", null, of.origin) : null],
    ]),
    named("Rate limits", of.limits.map((limit) => `${limit.name}: ${limitText(limit)}`)),
    named("Concurrency limits", of.concurrency.map((limit) => `${limit.name}: ${count(limit.requests)} requests at once`)),
    named("Quotas", of.quotas.map((quota) => `${quota.name}: ${quotaText(quota)}`)),
  ]);
}

/** @type {import("../main.js").Page["show"]} */
export function show(root, { url, signal, remember }) {
  root.classList.add("full");
  const text = url.searchParams.get("search") ?? "";
  /** @type {ReturnType<typeof table<Plan>>} */
  const rows = table({
    label: "Plans", source: "plans", search: text, of: ["plan", "plans"], signal, open, refresh: 15_000,
    columns: [
      { title: "Plan", width: "minmax(0, 1fr)", cell: (of) => of.title, tip: (of) => of.title, phone: 1 },
      { title: "Object", width: "minmax(0, 1.1fr)", cell: (of) => h("span", { class: "sub" }, `${of.namespace}/${of.name}`), tip: (of) => `${of.namespace}/${of.name}` },
      { title: "Limits and quotas", width: "minmax(0, 2fr)", cell: terms, tip: terms, phone: 3 },
      { title: "Approval", width: "104px", cell: (of) => badge(of.needs_approval ? "Manual" : "Automatic", of.needs_approval ? "info" : ""), phone: 2 },
      { title: "Portal", width: "92px", cell: (of) => of.visible_to ? badge("shown", "good") : badge("hidden"), tip: (of) => of.visible_to ?? "" },
      { title: "Subscriptions", width: "112px", end: true, cell: (of) => count(of.subscriptions), phone: 4 },
    ],
    nothing: () => h("div", { class: "card" }, empty("plans", "No plans", "A Plan sets rate limits, concurrency limits and quotas. A Subscription allows a Consumer to call an Api by a Plan.")),
  });
  root.append(
    pageHead("Plans", null, search("Search title or name", text, (next) => {
      remember({ search: next });
      rows.search(next);
    })),
    rows.element,
  );
}
