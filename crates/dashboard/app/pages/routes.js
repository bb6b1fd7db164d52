/** The routes, with search. */

import { h, badge, drawer, empty, facts, link, pageHead, search } from "../lib/dom.js";
import { table } from "../lib/table.js";
import { query } from "../lib/data.js";

/**
 * @typedef {object} Route
 * @property {string} host
 * @property {string} [listener]
 * @property {string} path
 * @property {string} path_type
 * @property {string} upstream
 * @property {number} [weight]
 * @property {number} ready
 * @property {number} endpoints
 * @property {string} from
 * @property {string[]} [policies]
 */

/** @param {Route} route */
function ready(route) {
  if (route.upstream === "-") return badge("by the gateway");
  if (route.upstream === "(invalid)") return badge("invalid backend", "bad");
  const tone = route.ready === 0 ? "bad" : route.ready < route.endpoints ? "warn" : "good";
  return badge(`${route.ready}/${route.endpoints} ready`, tone);
}

/** @param {Route} route */
function policies(route) {
  const names = route.policies ?? [];
  if (!names.length) return h("span", { class: "sub" }, "–");
  const closed = names.some((name) => name.endsWith("(closed)"));
  return [closed ? badge("closed", "bad") : null, ` ${names.map((name) => name.replace(/^\S+ /, "")).join(", ")}`];
}

/** @param {Route} route */
function open(route) {
  const isPlain = !["*", ""].includes(route.host) && !/[*]/.test(route.host);
  const [method, path] = /^[A-Z]+ /.test(route.path) ? route.path.split(" ", 2) : ["GET", route.path];
  const canExplain = isPlain && path.startsWith("/") && !/[~^${}]/.test(path);
  drawer(`${route.host}${route.path.startsWith("/") ? "" : " "}${route.path}`, badge(route.path_type), [
    facts([
      ["Host", h("code", null, route.host)],
      ["Listener", route.listener],
      ["Path", h("code", null, route.path)],
      ["Path type", route.path_type],
      ["Defined by", route.from],
      ["Upstream", route.upstream.includes("/") ? link(`/upstreams?${query({ search: route.upstream })}`, route.upstream) : route.upstream],
      ["Weight", route.weight === undefined ? null : String(route.weight)],
      ["Endpoints", ready(route)],
    ]),
    h("div", null, h("h3", null, "Policies"),
      route.policies?.length
        ? h("ul", { class: "list" }, route.policies.map((name) => h("li", null, link(`/policies?${query({ search: name.replace(/ \(closed\)$/, "") })}`, name))))
        : h("p", { class: "muted" }, "No policy applies.")),
    h("div", { class: "row-flex" },
      canExplain ? link(`/explain?${query({ method, url: `http://${route.host}${path.split(" ")[0]}` })}`, "Explain a request for this route") : null),
  ]);
}

/** @type {import("../main.js").Page["show"]} */
export function show(root, { url, signal, remember }) {
  root.classList.add("full");
  const text = url.searchParams.get("search") ?? "";
  /** @type {ReturnType<typeof table<Route>>} */
  const rows = table({
    label: "Routes", source: "routes", search: text, of: ["route", "routes"], signal, open, refresh: 10_000, wideFirst: true,
    columns: [
      { title: "Host", width: "minmax(0, 1.3fr)", cell: (route) => [route.host, route.listener ? h("span", { class: "sub" }, ` at ${route.listener}`) : null], tip: (route) => route.host, phone: 3 },
      { title: "Path", width: "minmax(0, 1.7fr)", cell: (route) => h("code", null, route.path), tip: (route) => route.path, phone: 1 },
      { title: "Type", width: "118px", cell: (route) => h("span", { class: "sub" }, route.path_type) },
      { title: "Upstream", width: "minmax(0, 1.4fr)", cell: (route) => [route.upstream === "-" ? h("span", { class: "sub" }, "–") : route.upstream, route.weight === undefined ? null : h("span", { class: "sub" }, ` weight ${route.weight}`)], tip: (route) => route.upstream },
      { title: "Endpoints", width: "132px", cell: ready, phone: 4 },
      { title: "Policies", width: "minmax(0, 1.1fr)", cell: policies, tip: (route) => (route.policies ?? []).join(", ") },
      { title: "Defined by", width: "minmax(0, 1.2fr)", cell: (route) => route.from, tip: (route) => route.from },
    ],
    nothing: () => h("div", { class: "card" }, empty("routes", "No routes", "Create an Ingress, an HTTPRoute or an Api, and the gateway serves it at once.")),
  });
  root.append(
    pageHead("Routes", null, search("Search host, path, object, policy", text, (next) => {
      remember({ search: next });
      rows.search(next);
    })),
    rows.element,
  );
}
