/** The policies, and the routes that each policy applies to. */

import { h, badge, drawer, empty, facts, link, notice, pageHead, search } from "../lib/dom.js";
import { table } from "../lib/table.js";
import { query } from "../lib/data.js";
import { count } from "../lib/format.js";

/**
 * @typedef {object} Policy
 * @property {string} policy
 * @property {string[]} parts
 * @property {string | null} closed
 * @property {number} routes
 * @property {string[]} objects
 * @property {number} other_objects
 * @property {number | null} admitted
 * @property {number | null} denied
 * @property {[string, number][]} limited
 */

/** @param {Policy} of */
function open(of) {
  drawer(of.policy, of.closed ? badge("closed", "bad") : badge("in service", "good"), [
    of.closed ? notice("bad", h("strong", null, "The policy is invalid, so its routes respond with 503. "), of.closed) : null,
    facts([
      ["Contains", of.parts.length ? h("ul", null, of.parts.map((part) => h("li", null, part))) : "nothing"],
      ["Allowed requests", of.admitted === null ? null : count(of.admitted)],
      ["Denied requests", of.denied === null ? null : count(of.denied)],
      ["Beyond limits", of.limited.length ? of.limited.map(([name, value]) => `${name}: ${count(value)}`).join(", ") : null],
    ]),
    h("div", null, h("h3", null, `Applies to ${count(of.routes)} ${of.routes === 1 ? "match" : "matches"}`),
      h("ul", { class: "list" }, of.objects.map((name) => h("li", null, link(`/routes?${query({ search: `${name} ${of.policy}` })}`, name)))),
      of.other_objects ? h("p", { class: "muted" }, `and ${count(of.other_objects)} other objects`) : null),
    link(`/routes?${query({ search: of.policy })}`, "All routes with this policy"),
  ]);
}

/** @type {import("../main.js").Page["show"]} */
export function show(root, { url, signal, remember }) {
  root.classList.add("full");
  const text = url.searchParams.get("search") ?? "";
  /** @type {ReturnType<typeof table<Policy>>} */
  const rows = table({
    label: "Policies", source: "policies", search: text, of: ["policy", "policies"], signal, open, refresh: 10_000, wideFirst: true,
    columns: [
      { title: "Policy", width: "minmax(0, 1.4fr)", cell: (of) => of.policy, tip: (of) => of.policy, phone: 1 },
      { title: "Contains", width: "minmax(0, 2fr)", cell: (of) => of.parts.join(", ") || "–", tip: (of) => of.parts.join(", "), phone: 3 },
      { title: "State", width: "104px", cell: (of) => of.closed ? badge("closed", "bad") : badge("in service", "good"), phone: 4 },
      { title: "Matches", width: "84px", end: true, cell: (of) => count(of.routes) },
      { title: "Allowed", width: "96px", end: true, cell: (of) => count(of.admitted) },
      { title: "Denied", width: "96px", end: true, cell: (of) => count(of.denied) },
    ],
    nothing: () => h("div", { class: "card" }, empty("policies", "No policy applies to a route", "SecurityPolicy, RateLimitPolicy and TrafficPolicy appear here with the routes that they apply to.")),
  });
  root.append(
    pageHead("Policies", null, search("Search policy, part or object", text, (next) => {
      remember({ search: next });
      rows.search(next);
    })),
    rows.element,
  );
}
