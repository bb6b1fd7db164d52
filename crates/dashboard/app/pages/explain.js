/** Explains which route serves a request, and why. The routing table of the gateway itself answers. */

import { h, badge, fill, field, link, notice, pageHead, say } from "../lib/dom.js";
import { icon } from "../lib/icons.js";
import { query, read } from "../lib/data.js";
import { plural } from "../lib/format.js";

const METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];

/** @param {any} explained */
function verdict(explained) {
  /** @type {Record<string, ["good" | "warn" | "bad", string]>} */
  const outcomes = {
    forwards: ["good", "Forwarded to an endpoint"],
    responds: ["warn", "The gateway responds itself"],
    no_route: ["bad", "No route"],
    rejected: ["bad", "Rejected"],
  };
  const noEndpoint = explained.outcome === "forwards" && !explained.route?.upstreams.some((/** @type {any} */ of) => of.ready > 0);
  const [tone, title] = noEndpoint ? /** @type {["bad", string]} */ (["bad", "No endpoint is ready"]) : outcomes[explained.outcome];
  const status = explained.status ? ` with ${explained.status}` : "";
  return h("div", { class: `verdict ${tone}` }, icon(tone, 24), h("div", null, h("h2", null, `${title}${status}`), h("p", { class: "break" }, explained.because)));
}

/**
 * @param {"" | "good" | "bad"} tone
 * @param {string} sign
 * @param {import("../lib/dom.js").Child} title
 * @param {...(import("../lib/dom.js").Child | import("../lib/dom.js").Child[])} children
 */
function node(tone, sign, title, ...children) {
  return h("li", null, h("span", { class: `node ${tone}`, "aria-hidden": "true" }, sign), h("div", { class: "stack tight" }, h("h3", { class: "break" }, title), ...children));
}

/** @param {any} near */
function candidate(near) {
  const why = near.selected ? badge("selected", "good")
    : near.unmet.length ? h("span", { class: "muted" }, `not met: ${near.unmet.join(", ")}`)
    : h("span", { class: "muted" }, "another match has precedence");
  return h("li", null, h("div", { class: "grow break" }, h("code", null, near.path), " ", h("span", { class: "muted" }, `${near.path_type} of ${near.from}`)), h("div", null, why));
}

/** @param {any} explained */
function flow(explained) {
  const parts = [];
  let number = 1;
  const next = () => String(number++);
  parts.push(node("", next(), "Listener", h("p", { class: "break" }, h("code", null, explained.listener), h("span", { class: "muted" }, "  path in normal form: "), h("code", null, explained.path))));
  if (!explained.hosts.length) parts.push(node("bad", next(), "No host matches"));
  for (const host of explained.hosts) {
    const result = host.selected ? "has the route" : host.continues ? "has no match, so the next less specific host is asked" : "has no match";
    parts.push(node(host.selected ? "" : "bad", next(), h("span", null, "Host ", h("code", null, host.host)), h("p", { class: "muted" }, `${plural(host.matches, "match", "matches")}: ${result}`),
      host.near.length ? h("ul", { class: "list" }, host.near.map(candidate)) : null));
  }
  const { route } = explained;
  if (route) {
    parts.push(node("", next(), h("span", null, "Route ", h("code", null, route.path)), h("p", { class: "break" }, `${route.path_type} of `, link(`/routes?${query({ search: route.from })}`, route.from)),
      route.conditions.length ? h("p", { class: "muted" }, `where ${route.conditions.join(", ")}`) : null,
      route.api ? h("p", { class: "row-flex" }, badge(`version ${route.api.version}`), badge(route.api.environment), route.api.operation ? badge(route.api.operation, "accent") : badge("no operation")) : null));
  }
  for (const step of explained.steps) {
    const from = step.from && /Policy /.test(step.from) ? link(`/policies?${query({ search: step.from })}`, step.from) : step.from;
    parts.push(node("", next(), step.phase, h("p", { class: "break" }, step.effect, from ? h("span", { class: "muted" }, " by ") : null, from)));
  }
  if (route && explained.outcome === "forwards") {
    const isReady = route.upstreams.some((/** @type {any} */ of) => of.ready > 0);
    parts.push(node(isReady ? "good" : "bad", next(), route.upstreams.length === 1 ? "Upstream" : "Upstreams, by weight",
      h("ul", { class: "list" }, route.upstreams.map((/** @type {any} */ of) => h("li", null, h("div", { class: "grow break" }, link(`/upstreams?${query({ search: of.upstream })}`, of.upstream)),
        route.upstreams.length > 1 ? h("span", { class: "muted nowrap" }, `weight ${of.weight}`) : null, badge(`${of.ready}/${of.endpoints} ready`, of.ready ? "good" : "bad"))))));
  } else if (explained.status) {
    parts.push(node(explained.outcome === "responds" ? "" : "bad", next(), `Response ${explained.status}`));
  }
  return h("ol", { class: "flow" }, parts);
}

/** @type {import("../main.js").Page["show"]} */
export function show(root, { url, signal, remember }) {
  const method = h("select", null, METHODS.map((name) => h("option", null, name)));
  method.value = url.searchParams.get("method") ?? "GET";
  if (!method.value) method.value = "GET";
  const target = h("input", { class: "input", type: "text", inputmode: "url", required: true, placeholder: "https://shop.example/cart?id=1", value: url.searchParams.get("url") ?? "", spellcheck: "false", autocomplete: "off", "data-search": true });
  const headers = h("textarea", { rows: 2, placeholder: "Authorization: Bearer …\nX-Version: 2", spellcheck: "false" });
  headers.value = url.searchParams.getAll("header").join("\n");
  const result = h("div", { class: "stack", "aria-live": "polite" });

  async function explain() {
    if (!target.value.trim()) return;
    if (!/^[a-z]+:\/\//i.test(target.value.trim())) target.value = `http://${target.value.trim()}`;
    const lines = headers.value.split("\n").map((line) => line.trim()).filter(Boolean);
    remember({ method: method.value, url: target.value.trim(), header: lines });
    try {
      const explained = await read("explain", { method: method.value, url: target.value.trim(), header: lines }, signal);
      if (!explained) fill(result, notice("warn", "The gateway has no configuration yet."));
      else fill(result, verdict(explained), explained.outcome === "rejected" ? null : h("div", { class: "card" }, h("h2", null, "The way of the request"), flow(explained)));
      say(explained?.because ?? "");
    } catch (error) {
      if (!signal.aborted) fill(result, notice("bad", /** @type {Error} */ (error).message));
    }
  }

  root.append(
    pageHead("Explain a request", "Which route serves a request, and why? The routing table that serves requests answers. Nothing is sent to an endpoint."),
    h("form", { class: "card", onsubmit: (/** @type {Event} */ event) => { event.preventDefault(); explain(); } },
      h("div", { class: "explain-form" }, field("Method", method), field("URL", target, "url"),
        h("button", { class: "button primary", type: "submit" }, icon("explain", 16), "Explain"),
        field("Headers, one in each line", headers, "headers"))),
    result,
  );
  if (target.value) explain();
  else {
    result.append(h("p", { class: "muted" }, "The same in a terminal: ", h("code", null, "sluicegate explain https://shop.example/cart")));
  }
}
