/** The API keys of Consumers: names, states and expiry. A key itself is shown once, when it is issued. */

import { h, badge, drawer, empty, facts, link, pageHead, search } from "../lib/dom.js";
import { issueKey, keyButtons, keyTone, session } from "../lib/change.js";
import { icon } from "../lib/icons.js";
import { table } from "../lib/table.js";
import { query } from "../lib/data.js";
import { day, duration } from "../lib/format.js";

/**
 * @typedef {object} Key
 * @property {string} namespace
 * @property {string} consumer
 * @property {string} username
 * @property {string | null} name
 * @property {string} state
 * @property {number | null} expires
 * @property {string | null} secret
 * @property {string | null} origin
 */

/** @param {Key} of */
export function expiry(of) {
  if (of.expires === null) return "never";
  const left = of.expires - Date.now() / 1000;
  return left > 0 ? `${day(of.expires)} (in ${duration(left)})` : day(of.expires);
}

/** @type {import("../main.js").Page["show"]} */
export function show(root, { url, signal, remember }) {
  root.classList.add("full");
  const text = url.searchParams.get("search") ?? "";

  /** @param {Key} of */
  const open = (of) => {
    drawer(of.name ?? "Key without a name", badge(of.state, keyTone(of.state)), [
      facts([
        ["Consumer", link(`/consumers?${query({ search: `${of.namespace}/${of.consumer}` })}`, `${of.namespace}/${of.consumer}`)],
        ["User name", of.username],
        ["Expires", expiry(of)],
        ["Stored as", of.secret ? `Secret ${of.namespace}/${of.secret}` : "SHA-256"],
        ["Written in", of.origin ? h("code", null, of.origin) : null],
      ]),
      session.changes ? keyButtons(of, () => rows.refresh()) : null,
    ]);
  };

  /** @type {ReturnType<typeof table<Key>>} */
  const rows = table({
    label: "Keys", source: "keys", search: text, of: ["key", "keys"], signal, open, refresh: 10_000,
    columns: [
      { title: "Key", width: "minmax(0, 1.2fr)", cell: (of) => of.name ?? h("span", { class: "sub" }, "(no name)"), tip: (of) => of.name ?? "", phone: 1 },
      { title: "Consumer", width: "minmax(0, 1.4fr)", cell: (of) => [h("span", { class: "sub" }, `${of.namespace}/`), of.consumer], tip: (of) => `${of.namespace}/${of.consumer}`, phone: 3 },
      { title: "User name", width: "minmax(0, 1fr)", cell: (of) => of.username, tip: (of) => of.username },
      { title: "State", width: "104px", cell: (of) => badge(of.state, keyTone(of.state)), phone: 2 },
      { title: "Expires", width: "minmax(0, 1.2fr)", cell: expiry, tip: expiry, phone: 4 },
    ],
    nothing: () => h("div", { class: "card" }, empty("keys", "No keys", "The API keys of Consumers appear here.", h("span", null, "Issue one: ", h("code", null, "sluicegate key issue CONSUMER")))),
  });
  const issue = () => issueKey(h("input", { class: "input", required: true, pattern: "[^\\/]+\\/[^\\/]+", autocomplete: "off", spellcheck: "false", placeholder: "default/alice" }), () => rows.refresh());
  root.append(
    pageHead("Keys", null, search("Search key, Consumer or state", text, (next) => {
      remember({ search: next });
      rows.search(next);
    }), session.changes ? h("button", { type: "button", class: "button primary", onclick: issue }, icon("keys", 16), "Issue a key") : null),
    rows.element,
  );
}
