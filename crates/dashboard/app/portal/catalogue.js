/** The APIs that the visitor may see. */

import { h, badge, empty, fill, notice, pageHead, say, search } from "../lib/dom.js";
import { read } from "../lib/data.js";
import { date, plural } from "../lib/format.js";
import { address, stateBadge } from "../pages/apis.js";
import { session } from "../lib/change.js";

/**
 * @typedef {object} Api
 * @property {string} namespace
 * @property {string} name
 * @property {string} title
 * @property {string} version
 * @property {string | null} owner
 * @property {string} state
 * @property {number | null} deprecation
 * @property {number | null} sunset
 * @property {string | null} versioning
 * @property {number} operations
 * @property {{name: string, hosts: string[], base_path: string, https: boolean, has_own_document: boolean}[]} environments
 * @property {boolean} accepts_subscribers
 */

/** The cards of one part of the list. */
const PART = 60;

/**
 * The dates of the end of an API.
 * @param {Api} api
 */
export function endOf(api) {
  const dates = [date(api.deprecation, "Deprecated since", "Deprecated from"), date(api.sunset, "Ended on", "Ends on")].filter(Boolean);
  return dates.length ? dates.join(". ") : null;
}

/** @param {Api} api */
function card(api) {
  return h("li", { class: "card" },
    h("div", { class: "row-flex" }, h("h2", { class: "break" }, h("a", { href: address(api) }, api.title || api.name)), api.version ? badge(`version ${api.version}`) : null, stateBadge(api)),
    h("p", { class: "muted grow" }, [api.owner, plural(api.operations, "operation")].filter(Boolean).join(" · ")),
    endOf(api) ? h("p", { class: "small" }, endOf(api)) : null);
}

/** @type {import("../lib/frame.js").Page["show"]} */
export async function show(root, { url, signal, remember }) {
  const place = h("ul", { class: "cards" });
  const more = h("div", { class: "row-flex" });
  let words = url.searchParams.get("search") ?? "";

  /** @param {number} after */
  async function load(after) {
    const asked = words;
    try {
      const { items, total, next } = await read("apis", { search: words, after, limit: PART }, signal);
      if (asked !== words) return;
      if (after === 0) fill(place);
      place.append(...items.map(card));
      fill(more, next === null ? null : h("button", { type: "button", class: "button", onclick: () => load(next) }, `Show more of ${plural(total, "API")}`));
      if (total === 0) {
        fill(more, h("div", { class: "card" }, words ? empty("search", "No API matches", "A search finds the APIs that contain all its words.")
          : empty("apis", "There are no APIs for you yet", session.user ? "Ask the owner of an API to show the API to one of your groups." : session.can_log_in ? "Log in to see the APIs of your groups." : null)));
      }
      if (words) say(plural(total, "API"));
    } catch (error) {
      if (!signal.aborted) fill(more, notice("bad", /** @type {Error} */ (error).message));
    }
  }

  root.append(pageHead("APIs", null, search("Search title, owner, host", words, (next) => {
    words = next;
    remember({ search: next });
    load(0);
  })), place, more);
  await load(0);
}
