/** One API of the catalogue: its document, requests from the browser, and the request for a subscription. */

import { h, badge, empty, facts, link, notice } from "../lib/dom.js";
import { icon } from "../lib/icons.js";
import { read } from "../lib/data.js";
import { limitText, quotaText, count } from "../lib/format.js";
import { documentLinks, prose, showOperations, withDocumentOf } from "../lib/document.js";
import { text } from "../lib/openapi.js";
import { ask, session } from "../lib/change.js";
import { stateBadge } from "../pages/apis.js";
import { endOf } from "./catalogue.js";

/** @typedef {import("./catalogue.js").Api} Api */

/**
 * @typedef {object} Plan
 * @property {string} name
 * @property {string} title
 * @property {string | null} description
 * @property {boolean} needs_approval
 * @property {import("../lib/format.js").Limit[]} limits
 * @property {{name: string, requests: number}[]} concurrency
 * @property {import("../lib/format.js").Quota[]} quotas
 */

/** @param {Api} api @param {Plan} plan @param {string[]} consumers without a subscription */
function subscribe(api, plan, consumers) {
  const consumer = h("select", null, consumers.map((name) => h("option", { value: name }, name)));
  ask({
    title: `Subscribe to ${api.title || api.name}`,
    text: plan.needs_approval ? `Plan ${plan.title}. The owner of the API approves or rejects the request.` : `Plan ${plan.title}. The subscription is active at once.`,
    button: plan.needs_approval ? "Request the subscription" : "Subscribe",
    fields: [["Consumer", consumer]],
    change: () => ({ change: "subscribe", consumer: consumer.value, api: `${api.namespace}/${api.name}`, plan: plan.name }),
    done: () => location.assign("/subscriptions"),
  });
}

/** @param {Api} api @param {Plan} plan @param {string[]} consumers without a subscription */
function planCard(api, plan, consumers) {
  const terms = [...plan.limits.map(limitText), ...plan.concurrency.map((of) => `${count(of.requests)} requests at once`), ...plan.quotas.map(quotaText)];
  const can = api.accepts_subscribers && consumers.length > 0;
  return h("li", { class: "card" },
    h("div", { class: "row-flex" }, h("h3", null, plan.title), plan.needs_approval ? badge("needs approval", "info") : null),
    plan.description ? h("p", { class: "muted" }, plan.description) : null,
    h("ul", { class: "prose grow" }, terms.map((term) => h("li", null, term)), terms.length ? null : h("li", null, "no limits")),
    can ? h("div", null, h("button", { type: "button", class: "button primary", onclick: () => subscribe(api, plan, consumers), "aria-label": `Subscribe by the plan ${plan.title}` }, "Subscribe")) : null);
}

/** @type {import("../lib/frame.js").Page["show"]} */
export async function show(root, context) {
  const { url, signal } = context;
  const [, , namespace, name] = url.pathname.split("/").map(decodeURIComponent);
  /** @type {[{api: Api, environment: string | null, document: any}, {items: Plan[]}]} */
  const [{ api, environment, document }, { items: plans }] = await Promise.all([read("api", { namespace, name, environment: url.searchParams.get("environment") }, signal), read("plans", { namespace }, signal)]);
  const title = api.title || api.name;
  window.document.title = `${title} – Developer portal`;
  const end = endOf(api);
  /** @type {import("./subscriptions.js").Subscription[]} */
  const own = session.user ? (await read("subscriptions", { limit: 500 }, signal)).items : [];
  const subscribed = own.filter((of) => of.apis.some((each) => each.namespace === namespace && each.name === name));
  const free = (session.consumers ?? []).filter((consumer) => !subscribed.some((of) => of.consumer === consumer));
  root.append(
    h("p", { class: "small" }, link("/", "APIs"), h("span", { class: "muted" }, ` / ${title}`)),
    h("div", { class: "page-head" }, h("h1", null, title), badge(api.version ? `version ${api.version}` : "no version"), stateBadge(api), h("span", { class: "grow" }), documentLinks(api, environment ?? ""),
      document ? h("a", { class: "button", href: URL.createObjectURL(new Blob([JSON.stringify(document, null, 2)], { type: "application/json" })), download: `${api.name}.json` }, icon("download", 16), "Document") : null),
    end ? notice("warn", `${end}.`, api.accepts_subscribers ? "" : " The API accepts no new subscribers.") : "",
    subscribed.length ? notice("info", ...subscribed.map((of) => h("div", null, `${of.consumer} has a subscription by the plan ${of.plan_title ?? of.plan}: ${of.state}.`)), link("/subscriptions", "My subscriptions")) : "",
    prose(text(document?.info?.description)) ?? "",
    h("section", { class: "card" }, h("h2", null, "About"), facts([
      ["Owner", api.owner],
      ["Addresses", h("ul", null, api.environments.map((of) => of.hosts.map((host) => h("li", null, badge(of.name, "accent"), " ", h("span", { class: "mono break" }, `${of.https ? "https" : "http"}://${host}${of.base_path || "/"}`)))).flat())],
      ["Version in requests", api.versioning],
      ["Contact", text(document?.info?.contact?.name) || text(document?.info?.contact?.email)],
      ["License", text(document?.info?.license?.name)],
    ])),
  );
  if (plans.length) {
    root.append(h("section", { class: "stack" }, h("h2", null, "Plans"),
      session.user ? session.consumers?.length ? null : h("p", { class: "muted" }, "You have no Consumer yet, which a subscription needs. Ask the operator of the APIs.") : h("p", { class: "muted" }, "Log in to subscribe."),
      h("ul", { class: "cards" }, plans.map((plan) => planCard(api, plan, free)))));
  }
  if (!document) {
    root.append(h("div", { class: "card" }, empty("apis", "There is no readable document", "Ask the owner of the API.")));
    return;
  }
  showOperations(root, document, withDocumentOf(api, environment), context);
}
