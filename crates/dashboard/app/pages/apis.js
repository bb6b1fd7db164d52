/** The APIs. */

import { h, badge, empty, pageHead, search } from "../lib/dom.js";
import { table } from "../lib/table.js";
import { count } from "../lib/format.js";

/**
 * @typedef {object} Environment
 * @property {string} name
 * @property {string[]} hosts
 * @property {string} base_path
 * @property {string} upstream
 * @property {boolean} https
 * @property {boolean} has_own_document
 * @property {number} operations
 */

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
 * @property {Environment[]} environments
 * @property {string | null} origin
 * @property {string | null} visible_to
 */

/** @param {{state: string, sunset: number | null}} api */
export function stateBadge(api) {
  const ended = api.sunset !== null && api.sunset * 1000 <= Date.now();
  if (ended) return badge("Ended", "bad");
  /** @type {Record<string, "good" | "warn" | "bad" | "info">} */
  const tones = { Published: "good", PreReleased: "info", Deprecated: "warn", Blocked: "bad", Retired: "bad" };
  return badge(api.state, tones[api.state] ?? "");
}

/** @param {{namespace: string, name: string}} api */
export function address(api) {
  return `/apis/${encodeURIComponent(api.namespace)}/${encodeURIComponent(api.name)}`;
}

/** @param {Api} api */
function environments(api) {
  return api.environments.map((of) => of.name).join(", ");
}

/** @type {import("../main.js").Page["show"]} */
export function show(root, { url, signal, remember }) {
  root.classList.add("full");
  const text = url.searchParams.get("search") ?? "";
  /** @type {ReturnType<typeof table<Api>>} */
  const rows = table({
    label: "APIs", source: "apis", search: text, of: ["API", "APIs"], signal, open: (api) => location.assign(address(api)), refresh: 15_000,
    columns: [
      { title: "Title", width: "minmax(0, 1.6fr)", cell: (api) => h("a", { href: address(api) }, api.title || api.name), tip: (api) => api.title || api.name, phone: 1 },
      { title: "Version", width: "100px", cell: (api) => api.version || "–", tip: (api) => api.version },
      { title: "State", width: "116px", cell: (api) => stateBadge(api), phone: 2 },
      { title: "Owner", width: "minmax(0, 1fr)", cell: (api) => api.owner ?? h("span", { class: "sub" }, "–"), tip: (api) => api.owner ?? "", phone: 3 },
      { title: "Operations", width: "96px", end: true, cell: (api) => count(api.operations), phone: 4 },
      { title: "Environments", width: "minmax(0, 1.2fr)", cell: (api) => environments(api) || "–", tip: environments },
      { title: "Object", width: "minmax(0, 1.2fr)", cell: (api) => h("span", { class: "sub" }, `${api.namespace}/${api.name}`), tip: (api) => `${api.namespace}/${api.name}` },
    ],
    nothing: () => h("div", { class: "card" }, empty("apis", "No APIs", "An Api serves the operations of an OpenAPI document.", h("span", null, "Make one from a document: ", h("code", null, "sluicegate api import openapi.yaml")))),
  });
  root.append(
    pageHead("APIs", null, search("Search title, owner, host", text, (next) => {
      remember({ search: next });
      rows.search(next);
    })),
    rows.element,
  );
}
