/** The upstreams with the live state of their endpoints. */

import { h, badge, dot, drawer, empty, facts, fill, link, notice, pageHead, search } from "../lib/dom.js";
import { table } from "../lib/table.js";
import { query, read } from "../lib/data.js";
import { count, duration, millis } from "../lib/format.js";

/**
 * @typedef {object} Endpoint
 * @property {string} address
 * @property {boolean} ready
 * @property {boolean} serving
 * @property {boolean} terminating
 * @property {"healthy" | "unhealthy" | "failing"} [health]
 * @property {number | null} [unhealthy_for]
 * @property {number} [share]
 * @property {number} [requests_in_flight]
 * @property {number[]} [ewma_ms]
 * @property {number} [attempts]
 * @property {number} [failures]
 */

/** @typedef {{state: any, endpoints: number, ready: number}} Upstream */

/** @param {Endpoint} endpoint @returns {[("good" | "warn" | "bad" | "muted"), string]} */
function condition(endpoint) {
  if (endpoint.terminating) return ["muted", endpoint.serving ? "terminating, still serves" : "terminating"];
  if (!endpoint.ready) return ["bad", "not ready"];
  if (endpoint.health === "failing") return ["bad", "fails its health checks"];
  if (endpoint.health === "unhealthy") return ["warn", `unhealthy${endpoint.unhealthy_for ? ` for ${duration(endpoint.unhealthy_for)}` : ""}`];
  if (endpoint.share !== undefined && endpoint.share < 1) return ["good", `ready, slow start at ${Math.round(endpoint.share * 100)} %`];
  return ["good", "ready"];
}

/** @param {Upstream} upstream */
function state(upstream) {
  const troubled = (upstream.state.endpoints ?? []).filter((/** @type {Endpoint} */ of) => of.ready && of.health && of.health !== "healthy").length;
  const tone = upstream.ready === 0 ? "bad" : troubled || upstream.ready < upstream.endpoints ? "warn" : "good";
  return badge(`${upstream.ready}/${upstream.endpoints} ready${troubled ? `, ${troubled} unhealthy` : ""}`, tone);
}

/** @param {Record<string, number> | undefined} reasons */
function sum(reasons) {
  return Object.values(reasons ?? {}).reduce((total, value) => total + value, 0);
}

/** @param {Record<string, number> | undefined} reasons */
function words(reasons) {
  const all = Object.entries(reasons ?? {});
  return all.length ? all.map(([reason, value]) => `${reason} ${count(value)}`).join(", ") : "none";
}

/** @param {Upstream} upstream @param {AbortSignal} signal */
function open(upstream, signal) {
  const body = h("div", { class: "stack" });
  /** @param {Upstream} of */
  const draw = (of) => {
    const live = of.state.attempts !== undefined;
    fill(body,
      of.ready === 0 ? notice("bad", "No endpoint is ready. Requests receive 503 until an endpoint is ready.") : null,
      live ? facts([
        ["Load balancing", of.state.balance],
        ["In flight", count(of.state.requests_in_flight)],
        ["Attempts", count(of.state.attempts)],
        ["Connections", `${count(of.state.connections_opened)} opened, ${count(of.state.connections_reused)} times reused`],
        ["Connect failures", words(of.state.connect_failures)],
        ["Retries", words(of.state.retries)],
        ["Failures", words(of.state.failures)],
        ["Hedged connects", count(of.state.hedges)],
        ["Ejections", `${count(of.state.ejections)}, readmissions ${count(of.state.readmissions)}`],
        ["Health checks", of.state.health_checks ? `${count(of.state.health_checks)}, failed ${count(of.state.health_checks_failed)}` : null],
        ["Limits", [of.state.max_requests ? `${of.state.max_requests} requests` : "", of.state.max_requests_per_endpoint ? `${of.state.max_requests_per_endpoint} per endpoint` : ""].filter(Boolean).join(", ")],
      ]) : notice("info", "A control plane knows the endpoints, and not their load. Data planes have the live state."),
      h("div", null, h("h3", null, `Endpoints (${of.endpoints})`),
        h("div", { class: "scroll-x", tabindex: 0, role: "region", "aria-label": "Endpoints" }, h("table", { class: "plain" },
          h("thead", null, h("tr", null, h("th", { scope: "col" }, "Address"), h("th", { scope: "col" }, "State"), live ? [
            h("th", { scope: "col", class: "end" }, "In flight"), h("th", { scope: "col", class: "end" }, "Response"), h("th", { scope: "col", class: "end" }, "Attempts"), h("th", { scope: "col", class: "end" }, "Failures")] : null)),
          h("tbody", null, of.state.endpoints.map((/** @type {Endpoint} */ endpoint) => {
            const [tone, text] = condition(endpoint);
            const times = endpoint.ewma_ms ?? [];
            return h("tr", null, h("td", { class: "mono nowrap" }, endpoint.address), h("td", null, dot(tone), " ", text), live ? [
              h("td", { class: "end" }, count(endpoint.requests_in_flight)),
              h("td", { class: "end" }, times.length ? millis(times.reduce((a, b) => a + b, 0) / times.length) : "–"),
              h("td", { class: "end" }, count(endpoint.attempts)), h("td", { class: "end" }, count(endpoint.failures))] : null);
          })))),
        of.endpoints > of.state.endpoints.length ? h("p", { class: "muted" }, `and ${of.endpoints - of.state.endpoints.length} more`) : null),
    );
  };
  draw(upstream);
  const name = upstream.state.upstream;
  const dialog = drawer(name, link(`/routes?${query({ search: name })}`, "Routes to this upstream"), [body]);
  const timer = setInterval(async () => {
    const found = await read("upstreams", { search: name, limit: 20 }, signal).catch(() => null);
    const same = found?.items.find((/** @type {Upstream} */ of) => of.state.upstream === name);
    if (same && dialog.open) draw(same);
  }, 2000);
  dialog.addEventListener("close", () => clearInterval(timer));
  signal.addEventListener("abort", () => clearInterval(timer));
}

/** @type {import("../main.js").Page["show"]} */
export function show(root, { url, signal, remember }) {
  root.classList.add("full");
  const text = url.searchParams.get("search") ?? "";
  /** @type {ReturnType<typeof table<Upstream>>} */
  const rows = table({
    label: "Upstreams", source: "upstreams", search: text, of: ["upstream", "upstreams"], signal, open: (of) => open(of, signal), refresh: 5000, wideFirst: true,
    columns: [
      { title: "Upstream", width: "minmax(0, 2.2fr)", cell: (of) => of.state.upstream, tip: (of) => of.state.upstream, phone: 1 },
      { title: "Endpoints", width: "minmax(150px, 1fr)", cell: state, phone: 3 },
      { title: "Load balancing", width: "minmax(0, 1fr)", cell: (of) => h("span", { class: "sub" }, of.state.balance ?? "–") },
      { title: "In flight", width: "88px", end: true, cell: (of) => count(of.state.requests_in_flight), phone: 4 },
      { title: "Attempts", width: "104px", end: true, cell: (of) => count(of.state.attempts) },
      { title: "Retries", width: "88px", end: true, cell: (of) => count(sum(of.state.retries)) },
      { title: "Failures", width: "88px", end: true, cell: (of) => count(sum(of.state.failures)) },
    ],
    nothing: () => h("div", { class: "card" }, empty("upstreams", "No upstreams", "An upstream is a set of endpoints, such as the ready pods of a Service. Each route names its upstreams.")),
  });
  root.append(
    pageHead("Upstreams", null, search("Search Service or address", text, (next) => {
      remember({ search: next });
      rows.search(next);
    })),
    rows.element,
  );
}
