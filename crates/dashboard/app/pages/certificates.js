/** The certificates, the earliest expiry first. */

import { h, badge, drawer, empty, facts, pageHead, search } from "../lib/dom.js";
import { table } from "../lib/table.js";
import { count, day, duration } from "../lib/format.js";

/**
 * @typedef {object} Certificate
 * @property {string} source
 * @property {string[]} names
 * @property {string[]} hosts
 * @property {number} host_count
 * @property {string} key
 * @property {number} not_before
 * @property {number} not_after
 * @property {"expired" | "early" | "soon" | "ok"} state
 * @property {boolean} is_default
 */

/** @param {Certificate} of */
function left(of) {
  const seconds = of.not_after - Date.now() / 1000;
  switch (of.state) {
    case "expired": return badge(`expired ${duration(-seconds)} ago`, "bad");
    case "early": return badge(`valid from ${day(of.not_before)}`, "bad");
    case "soon": return badge(`${duration(seconds)} left`, "warn");
    default: return badge(`${duration(seconds)} left`, "good");
  }
}

/** @param {Certificate} of */
function open(of) {
  drawer(of.source, left(of), [
    facts([
      ["Valid from", day(of.not_before)],
      ["Valid until", day(of.not_after)],
      ["Key", of.key],
      ["Default", of.is_default ? "Clients without a known server name receive this certificate." : null],
      ["Names", h("ul", null, of.names.map((name) => h("li", { class: "mono" }, name)))],
      ["Serves hosts", of.hosts.length ? h("ul", null, of.hosts.map((name) => h("li", { class: "mono" }, name)), of.host_count > of.hosts.length ? h("li", { class: "muted" }, `and ${of.host_count - of.hosts.length} more`) : null) : null],
    ]),
  ]);
}

/** @type {import("../main.js").Page["show"]} */
export function show(root, { url, signal, remember }) {
  root.classList.add("full");
  const text = url.searchParams.get("search") ?? "";
  /** @type {ReturnType<typeof table<Certificate>>} */
  const rows = table({
    label: "Certificates", source: "certificates", search: text, of: ["certificate", "certificates"], signal, open, refresh: 30_000, wideFirst: true,
    columns: [
      { title: "Certificate", width: "minmax(0, 1.5fr)", cell: (of) => [of.source, of.is_default ? [" ", badge("default", "info")] : null].flat(), tip: (of) => of.source, phone: 1 },
      { title: "Names", width: "minmax(0, 2fr)", cell: (of) => of.names.join(", ") || "–", tip: (of) => of.names.join(", "), phone: 3 },
      { title: "Hosts", width: "72px", end: true, cell: (of) => count(of.host_count) },
      { title: "Key", width: "84px", cell: (of) => h("span", { class: "sub" }, of.key) },
      { title: "Valid until", width: "120px", cell: (of) => day(of.not_after) },
      { title: "Left", width: "150px", cell: left, phone: 4 },
    ],
    nothing: () => h("div", { class: "card" }, empty("certificates", "No certificates", "Name a Secret of type kubernetes.io/tls in an Ingress, a Gateway or an Api. Until then, listeners for HTTPS use a self-signed certificate.")),
  });
  root.append(
    pageHead("Certificates", null, search("Search Secret, name or host", text, (next) => {
      remember({ search: next });
      rows.search(next);
    })),
    rows.element,
  );
}
