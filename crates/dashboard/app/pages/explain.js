/** Explains what happens to a request, and why. The routing table and the policies of the gateway itself answer. */

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
  const [tone, title] = explained.outcome === "responds" && explained.reason ? /** @type {["bad", string]} */ (["bad", "The gateway refuses the request"]) : outcomes[explained.outcome];
  const status = explained.status ? ` with ${explained.status}` : "";
  const reason = explained.reason ? h("p", null, badge(explained.reason, "bad"), explained.policy ? h("span", { class: "muted break" }, ` by ${explained.policy}`) : null) : null;
  const unknown = explained.is_certain ? null : h("p", { class: "muted" }, "A step is unknown. The outcome holds if the step lets the request pass.");
  const cure = explained.cure ? h("p", { class: "break" }, explained.cure) : null;
  return h("div", { class: `verdict ${tone}` }, icon(tone, 24), h("div", null, h("h2", null, `${title}${status}`), h("p", { class: "break" }, explained.because), reason, cure, unknown));
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

/** @type {Record<string, ["" | "good" | "bad" | "warn" | "accent", "" | "good" | "bad"]>} */
const VERDICTS = {
  allows: ["good", ""],
  denies: ["bad", "bad"],
  responds: ["warn", ""],
  changes: ["accent", ""],
  counts: ["", ""],
  unknown: ["warn", ""],
};

/** @param {any} step */
function words(step) {
  const response = [step.status, step.reason].filter(Boolean).join(" ");
  if (!response) return step.effect;
  return step.verdict === "unknown" || step.verdict === "counts" ? `${step.effect}, or ${response}` : `${step.effect} [${response}]`;
}

/** @param {any} of */
function destination(of) {
  const percent = `${Math.round(of.percent * 10) / 10} %`;
  const sent = of.request && h("p", { class: "break" }, h("span", { class: "muted" }, "receives "), h("code", null, of.request.path + (of.request.query ? `?${of.request.query}` : "")), h("span", { class: "muted" }, " for the host "), h("code", null, of.request.host));
  const headers = of.request && of.request.headers.length ? h("details", null, h("summary", null, plural(of.request.headers.length, "header", "headers")), h("pre", { class: "break" }, of.request.headers.map((/** @type {[string, string]} */ [name, value]) => `${name}: ${value}`).join("\n"))) : null;
  const endpoint = (/** @type {any} */ member) => h("li", null, h("div", { class: "grow break" }, h("code", null, member.address)), member.is_eligible ? badge("eligible", "good") : h("span", { class: "muted" }, member.because));
  return h("li", null, h("div", { class: "grow stack tight" },
    h("p", { class: "break" }, of.upstream === "(invalid)" ? of.upstream : link(`/upstreams?${query({ search: of.upstream })}`, of.upstream), h("span", { class: "muted" }, ` ${percent}: ${of.because}`)),
    of.refusal ? h("p", null, badge(`${of.refusal.status} ${of.refusal.reason}`, "bad"), ` ${of.refusal.because}`) : null,
    sent, headers,
    of.balancing ? h("p", { class: "muted" }, of.balancing) : null,
    of.endpoints.length ? h("ul", { class: "list" }, of.endpoints.map(endpoint)) : null,
    of.more_endpoints ? h("p", { class: "muted" }, `and ${of.more_endpoints} more`) : null));
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
      explained.precedence ? h("p", { class: "muted break" }, `before ${explained.precedence.path_type} ${explained.precedence.path} of ${explained.precedence.over}: ${explained.precedence.because}`) : null,
      route.conditions.length ? h("p", { class: "muted" }, `where ${route.conditions.join(", ")}`) : null,
      route.api ? h("p", { class: "row-flex" }, badge(`version ${route.api.version}`), badge(route.api.environment), route.api.operation ? badge(route.api.operation, "accent") : badge("no operation")) : null));
  }
  for (const step of explained.steps) {
    const from = step.from && /Policy /.test(step.from) ? link(`/policies?${query({ search: step.from })}`, step.from) : step.from;
    const [tone, sign] = VERDICTS[step.verdict] ?? ["", ""];
    parts.push(node(sign, next(), h("span", null, step.phase, " ", badge(step.verdict, tone)), h("p", { class: "break" }, words(step), from ? h("span", { class: "muted" }, " by ") : null, from),
      step.remedy ? h("p", { class: "muted" }, step.remedy) : null));
  }
  if (explained.destinations.length) {
    const isServed = explained.destinations.some((/** @type {any} */ of) => !of.refusal);
    parts.push(node(isServed ? "good" : "bad", next(), explained.destinations.length === 1 ? "Upstream" : "Upstreams", h("ul", { class: "list" }, explained.destinations.map(destination))));
  }
  if (explained.status) {
    parts.push(node(explained.outcome === "responds" && !explained.reason ? "" : "bad", next(), `Response ${explained.status}`, explained.location ? h("p", { class: "break" }, h("code", null, explained.location)) : null));
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
  const from = h("input", { class: "input", type: "text", placeholder: "192.0.2.7", value: url.searchParams.get("from") ?? "", spellcheck: "false", autocomplete: "off" });
  const result = h("div", { class: "stack", "aria-live": "polite" });

  async function explain() {
    if (!target.value.trim()) return;
    if (!/^[a-z]+:\/\//i.test(target.value.trim())) target.value = `http://${target.value.trim()}`;
    const lines = headers.value.split("\n").map((line) => line.trim()).filter(Boolean);
    remember({ method: method.value, url: target.value.trim(), header: lines, ...(from.value.trim() ? { from: from.value.trim() } : {}) });
    try {
      const explained = await read("explain", { method: method.value, url: target.value.trim(), header: lines, ...(from.value.trim() ? { from: from.value.trim() } : {}) }, signal);
      if (!explained) fill(result, notice("warn", "The gateway has no configuration yet."));
      else fill(result, verdict(explained), explained.outcome === "rejected" ? null : h("div", { class: "card" }, h("h2", null, "The way of the request"), flow(explained)));
      say(explained?.because ?? "");
    } catch (error) {
      if (!signal.aborted) fill(result, notice("bad", /** @type {Error} */ (error).message));
    }
  }

  root.append(
    pageHead("Explain a request", "What happens to a request, and why? The routing table and the policies that serve requests answer. Nothing is sent and nothing is counted."),
    h("form", { class: "card", onsubmit: (/** @type {Event} */ event) => { event.preventDefault(); explain(); } },
      h("div", { class: "explain-form" }, field("Method", method), field("URL", target, "url"),
        h("button", { class: "button primary", type: "submit" }, icon("explain", 16), "Explain"),
        field("Client IP, if it matters", from, "from"),
        field("Headers, one in each line", headers, "headers"))),
    result,
  );
  if (target.value) explain();
  else {
    result.append(h("p", { class: "muted" }, "The same in a terminal: ", h("code", null, "sluicegate explain https://shop.example/cart")));
  }
}
