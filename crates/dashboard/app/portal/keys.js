/** The keys of the user's Consumers. A key itself is shown once, when it is issued. */

import { h, badge, drawer, empty, facts, pageHead, search } from "../lib/dom.js";
import { issueKey, keyButtons, keyTone, session } from "../lib/change.js";
import { icon } from "../lib/icons.js";
import { table } from "../lib/table.js";
import { expiry } from "../pages/keys.js";

/** @typedef {import("../pages/keys.js").Key} Key */

/** @type {import("../lib/frame.js").Page["show"]} */
export function show(root, { url, signal, remember }) {
  root.classList.add("full");
  const text = url.searchParams.get("search") ?? "";

  /** @param {Key} of */
  const open = (of) => {
    drawer(of.name ?? "Key without a name", badge(of.state, keyTone(of.state)), [
      facts([["Consumer", `${of.namespace}/${of.consumer}`], ["Expires", expiry(of)]]),
      keyButtons(of, () => rows.refresh()),
    ]);
  };

  /** @type {ReturnType<typeof table<Key>>} */
  const rows = table({
    label: "Keys", source: "keys", search: text, of: ["key", "keys"], signal, open, refresh: 10_000,
    columns: [
      { title: "Key", width: "minmax(0, 1.2fr)", cell: (of) => of.name ?? h("span", { class: "sub" }, "(no name)"), tip: (of) => of.name ?? "", phone: 1 },
      { title: "Consumer", width: "minmax(0, 1.4fr)", cell: (of) => `${of.namespace}/${of.consumer}`, tip: (of) => `${of.namespace}/${of.consumer}`, phone: 3 },
      { title: "State", width: "104px", cell: (of) => badge(of.state, keyTone(of.state)), phone: 2 },
      { title: "Expires", width: "minmax(0, 1.2fr)", cell: expiry, tip: expiry, phone: 4 },
    ],
    nothing: () => h("div", { class: "card" }, empty("keys", "You have no keys", session.consumers?.length ? "Issue a key to call the APIs of your subscriptions." : "You have no Consumer yet. Ask the operator of the APIs.")),
  });
  const issue = () => issueKey(h("select", null, (session.consumers ?? []).map((name) => h("option", { value: name }, name))), () => rows.refresh());
  root.append(
    pageHead("My keys", null, search("Search key or state", text, (next) => {
      remember({ search: next });
      rows.search(next);
    }), session.consumers?.length ? h("button", { type: "button", class: "button primary", onclick: issue }, icon("keys", 16), "Issue a key") : null),
    rows.element,
  );
}
