/** One API: its environments, and its document rendered for people, with requests from the browser. */

import { h, badge, empty, facts, link } from "../lib/dom.js";
import { icon } from "../lib/icons.js";
import { read } from "../lib/data.js";
import { date } from "../lib/format.js";
import { documentLinks, prose, showOperations, withDocumentOf } from "../lib/document.js";
import { text } from "../lib/openapi.js";
import { stateBadge } from "./apis.js";

/** @typedef {import("../lib/openapi.js").Json} Json */

/** @type {import("../main.js").Page["show"]} */
export async function show(root, { url, signal, remember }) {
  const [, , namespace, name] = url.pathname.split("/").map(decodeURIComponent);
  /** @type {{api: import("./apis.js").Api, environment: string | null, document: Json | null}} */
  const { api, environment, document } = await read("api", { namespace, name, environment: url.searchParams.get("environment") }, signal);
  const shown = api.environments.find((of) => of.name === environment);
  const title = api.title || api.name;
  window.document.title = `${title} – Sluicegate`;
  root.append(
    h("p", { class: "small" }, link("/apis", "APIs"), h("span", { class: "muted" }, ` / ${api.namespace}/${api.name}`)),
    h("div", { class: "page-head" }, h("h1", null, title), badge(api.version ? `version ${api.version}` : "no version"), stateBadge(api), h("span", { class: "grow" }), documentLinks(api, environment ?? ""),
      document ? h("a", { class: "button", href: URL.createObjectURL(new Blob([JSON.stringify(document, null, 2)], { type: "application/json" })), download: `${api.name}.json` }, icon("download", 16), "Document") : null),
    prose(text(document?.info?.description)) ?? "",
    h("div", { class: "grid" },
      h("section", { class: "card span-4" }, h("h2", null, "About"), facts([
        ["Owner", api.owner],
        ["Operations", String((shown ?? api).operations)],
        ["Versioning", api.versioning],
        ["Deprecation", date(api.deprecation, "since", "from")],
        ["End", date(api.sunset, "ended", "on")],
        ["Object", `Api ${api.namespace}/${api.name}`],
        ["Portal", api.visible_to ? `shown to ${api.visible_to}` : "hidden"],
        ["Written in", api.origin ? h("code", null, api.origin) : null],
        ["Contact", text(document?.info?.contact?.name) || text(document?.info?.contact?.email)],
        ["License", text(document?.info?.license?.name)],
      ])),
      h("section", { class: "card span-8" }, h("h2", null, "Environments"), h("div", { class: "scroll-x", tabindex: 0, role: "region", "aria-label": "Environments" }, h("table", { class: "plain" },
        h("thead", null, h("tr", null, ["Name", "Address", "Upstream", "Routes"].map((of) => h("th", { scope: "col" }, of)))),
        h("tbody", null, api.environments.map((of) => h("tr", null, h("td", null, badge(of.name, "accent")), h("td", null, of.hosts.map((host) => h("div", { class: "mono" }, `${of.https ? "https" : "http"}://${host}${of.base_path || "/"}`))),
          h("td", null, link(`/upstreams?search=${encodeURIComponent(of.upstream)}`, of.upstream)), h("td", null, link(`/routes?search=${encodeURIComponent(`${of.hosts[0]} api ${api.namespace}/${api.name}`)}`, "Routes")))))))),
    ),
  );
  if (!document) {
    root.append(h("div", { class: "card" }, empty("apis", "There is no readable document", "Requests for the API receive 503. The page Problems has the reason.")));
    return;
  }
  showOperations(root, document, withDocumentOf(api, environment), { url, signal, remember });
}
