/** The consumers. Credentials appear by kind and number only. */

import { h, badge, drawer, empty, facts, link, notice, pageHead, search } from "../lib/dom.js";
import { query } from "../lib/data.js";
import { table } from "../lib/table.js";
import { count, plural } from "../lib/format.js";

/**
 * @typedef {object} Consumer
 * @property {string} namespace
 * @property {string} name
 * @property {string} username
 * @property {string[]} groups
 * @property {number} api_keys
 * @property {number} revoked_keys
 * @property {number} expired_keys
 * @property {{issuer: string | null, claim: string, value: string}[]} tokens
 * @property {number} basic_users
 * @property {boolean} disabled
 * @property {{responses: number[], aborted: number} | null} requests
 */

/** @param {Consumer} of */
function credentials(of) {
  const kinds = [
    of.api_keys ? plural(of.api_keys, "API key") : "",
    of.revoked_keys ? `${of.revoked_keys} revoked` : "",
    of.expired_keys ? `${of.expired_keys} expired` : "",
    of.tokens.length ? plural(of.tokens.length, "token subject") : "",
    of.basic_users ? plural(of.basic_users, "password") : "",
  ].filter(Boolean);
  return kinds.join(", ") || "none";
}

/** @param {Consumer} of */
function total(of) {
  return of.requests ? of.requests.responses.reduce((sum, value) => sum + value, of.requests.aborted) : null;
}

/** @param {Consumer} of */
function open(of) {
  const [, success, redirect, client, server] = of.requests?.responses ?? [];
  drawer(`${of.namespace}/${of.name}`, of.disabled ? badge("disabled", "bad") : badge("in service", "good"), [
    of.disabled ? notice("bad", "A part of the object cannot be read, and might restrict access. So the consumer is disabled. Fix the object: the page Problems names the field.") : null,
    facts([
      ["User name", of.username],
      ["Groups", of.groups.length ? h("span", { class: "row-flex" }, of.groups.map((group) => badge(group))) : null],
      ["Credentials", credentials(of)],
      ["Token subjects", of.tokens.length ? h("ul", null, of.tokens.map((token) => h("li", { class: "mono" }, `${token.claim === "Subject" ? "sub" : "client_id"} = ${token.value}${token.issuer ? ` of ${token.issuer}` : ""}`))) : null],
      ["Keys", of.api_keys ? link(`/keys?${query({ search: `${of.namespace} ${of.name}` })}`, "Names, states and expiry") : null],
      ["Subscriptions", link(`/subscriptions?${query({ search: `${of.namespace} ${of.name}` })}`, "Subscriptions")],
      ["Requests", of.requests ? count(total(of)) : "not counted separately"],
      ["Responses", of.requests ? `2xx ${count(success)}, 3xx ${count(redirect)}, 4xx ${count(client)}, 5xx ${count(server)}` : null],
    ]),
  ]);
}

/** @type {import("../main.js").Page["show"]} */
export function show(root, { url, signal, remember }) {
  root.classList.add("full");
  const text = url.searchParams.get("search") ?? "";
  /** @type {ReturnType<typeof table<Consumer>>} */
  const rows = table({
    label: "Consumers", source: "consumers", search: text, of: ["consumer", "consumers"], signal, open, refresh: 10_000,
    columns: [
      { title: "Consumer", width: "minmax(0, 1.4fr)", cell: (of) => [h("span", { class: "sub" }, `${of.namespace}/`), of.name], tip: (of) => `${of.namespace}/${of.name}`, phone: 1 },
      { title: "User name", width: "minmax(0, 1fr)", cell: (of) => of.username },
      { title: "Groups", width: "minmax(0, 1.2fr)", cell: (of) => of.groups.join(", ") || h("span", { class: "sub" }, "–"), tip: (of) => of.groups.join(", ") },
      { title: "Credentials", width: "minmax(0, 1.4fr)", cell: credentials, tip: credentials, phone: 3 },
      { title: "State", width: "104px", cell: (of) => of.disabled ? badge("disabled", "bad") : badge("in service", "good"), phone: 2 },
      { title: "Requests", width: "96px", end: true, cell: (of) => count(total(of)), phone: 4 },
    ],
    nothing: () => h("div", { class: "card" }, empty("consumers", "No consumers", "A Consumer is a known caller with API keys, tokens or a password. A SecurityPolicy authenticates callers as Consumers.")),
  });
  root.append(
    pageHead("Consumers", null, search("Search name or group", text, (next) => {
      remember({ search: next });
      rows.search(next);
    })),
    rows.element,
  );
}
