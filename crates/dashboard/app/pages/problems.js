/** The problems of the configuration, with their places and remedies. */

import { h, badge, drawer, empty, facts, pageHead, search } from "../lib/dom.js";
import { table } from "../lib/table.js";

/**
 * @typedef {object} Problem
 * @property {"error" | "warning" | "note"} severity
 * @property {string | null} place
 * @property {string | null} object
 * @property {string} field
 * @property {string} message
 */

/** @param {Problem} of */
function severity(of) {
  return badge(of.severity, of.severity === "error" ? "bad" : of.severity === "warning" ? "warn" : "info");
}

/** @param {Problem} of */
function open(of) {
  drawer(of.object ?? of.place ?? "Problem", severity(of), [
    h("p", { class: "break" }, of.field ? h("code", null, `${of.field} `) : null, of.message),
    facts([
      ["Object", of.object],
      ["Place", of.place ? h("code", null, of.place) : null],
      ["Field", of.field ? h("code", null, of.field) : null],
    ]),
    h("p", { class: "muted" }, of.severity === "error"
      ? "The gateway does not do all that the object asks for. The last valid version of an object stays in service where there is one."
      : "The gateway does all that it can. The result may differ from your intention."),
  ]);
}

/** @type {import("../main.js").Page["show"]} */
export function show(root, { url, signal, remember }) {
  root.classList.add("full");
  const text = url.searchParams.get("search") ?? "";
  /** @type {ReturnType<typeof table<Problem>>} */
  const rows = table({
    label: "Problems", source: "problems", search: text, of: ["problem", "problems"], signal, open, refresh: 5000,
    columns: [
      { title: "Severity", width: "92px", cell: severity, phone: 2 },
      { title: "Object", width: "minmax(0, 1.1fr)", cell: (of) => of.object ?? h("span", { class: "sub" }, "–"), tip: (of) => of.object ?? "", phone: 1 },
      { title: "Place", width: "minmax(0, 1fr)", cell: (of) => of.place ? h("code", null, of.place) : h("span", { class: "sub" }, "cluster"), tip: (of) => of.place ?? "" },
      { title: "Field", width: "minmax(0, 1.1fr)", cell: (of) => of.field ? h("code", null, of.field) : h("span", { class: "sub" }, "–"), tip: (of) => of.field },
      { title: "What is wrong, and what to do", width: "minmax(0, 2.4fr)", cell: (of) => [of.field ? h("code", { class: "phone-only" }, `${of.field} `) : null, of.message], tip: (of) => of.message, phone: 3 },
    ],
    nothing: () => h("div", { class: "card" }, empty("good", "No problems", "The gateway serves every object as it is written.")),
  });
  root.append(
    pageHead("Problems", null, search("Search object, field or text", text, (next) => {
      remember({ search: next });
      rows.search(next);
    })),
    rows.element,
  );
}
