/** The dashboard. */

import { byId, fill, h, notice, badge } from "./lib/dom.js";
import { logout, read, whenLocked } from "./lib/data.js";
import { ago } from "./lib/format.js";
import { frame } from "./lib/frame.js";
import { session } from "./lib/change.js";

/** @typedef {import("./lib/frame.js").Page} Page */

/** @type {import("./lib/frame.js").Entry[]} */
const PAGES = [
  { group: "Traffic", path: "/", title: "Overview", icon: "overview", load: () => import("./pages/overview.js") },
  { group: "Traffic", path: "/analytics", title: "Analytics", icon: "analytics", load: () => import("./pages/analytics.js") },
  { group: "Gateway", path: "/routes", title: "Routes", icon: "routes", load: () => import("./pages/routes.js") },
  { group: "Gateway", path: "/explain", title: "Explain", icon: "explain", load: () => import("./pages/explain.js") },
  { group: "Gateway", path: "/upstreams", title: "Upstreams", icon: "upstreams", load: () => import("./pages/upstreams.js") },
  { group: "Gateway", path: "/certificates", title: "Certificates", icon: "certificates", load: () => import("./pages/certificates.js") },
  { group: "Gateway", path: "/policies", title: "Policies", icon: "policies", load: () => import("./pages/policies.js") },
  { group: "APIs", path: "/apis", title: "APIs", icon: "apis", load: () => import("./pages/apis.js") },
  { group: "APIs", path: "/plans", title: "Plans", icon: "plans", load: () => import("./pages/plans.js") },
  { group: "APIs", path: "/subscriptions", title: "Subscriptions", icon: "subscriptions", load: () => import("./pages/subscriptions.js") },
  { group: "APIs", path: "/consumers", title: "Consumers", icon: "consumers", load: () => import("./pages/consumers.js") },
  { group: "APIs", path: "/keys", title: "Keys", icon: "keys", load: () => import("./pages/keys.js") },
  { group: "Health", path: "/audit", title: "Audit", icon: "audit", load: () => import("./pages/audit.js") },
  { group: "Health", path: "/problems", title: "Problems", icon: "problems", load: () => import("./pages/problems.js") },
];

const { show, lock } = frame({
  site: "Sluicegate", pages: PAGES, api: () => import("./pages/api.js"),
  beside: ({ path }) => path === "/problems" ? h("span", { class: "count", id: "problem-count" }) : null,
});

/* The facts at the top. */

async function drawFacts() {
  if (document.hidden || document.body.classList.contains("locked")) return;
  try {
    const facts = await read("overview", { since: 99_999_999_999 });
    const tone = facts.phase === "ready" ? "good" : "warn";
    fill(byId("facts"), h("span", { class: "wide nowrap" }, facts.last_change ? `Changed ${ago(facts.last_change, facts.now)}` : ""),
      facts.pod ? h("span", { class: "wide badge" }, facts.pod) : null,
      badge(facts.phase === "ready" && !facts.serves ? "control plane" : facts.phase, tone),
      session.user && session.user !== "token" ? h("span", { class: "wide nowrap" }, `${session.user} (${session.role})`) : null);
    const found = document.getElementById("problem-count");
    const problems = facts.errors + facts.warnings;
    if (found) fill(found, problems ? badge(problems, facts.errors ? "bad" : "warn") : "");
    if (found && problems) found.setAttribute("aria-label", `${problems} problems`);
  } catch {
    fill(byId("facts"), badge("no connection", "bad"));
  }
}

const drawLogin = () => lock(h("span", null, "Use your token in the file that ", h("code", null, "--dashboard-token-file"), " names."));

byId("logout").addEventListener("click", () => logout("/"));

async function start() {
  whenLocked(drawLogin);
  try {
    Object.assign(session, await read("session"));
  } catch (error) {
    fill(byId("main"), h("div", { class: "page" }, notice("bad", /** @type {Error} */ (error).message)));
    return;
  }
  if (session.login) {
    drawLogin();
    return;
  }
  byId("logout").hidden = !session.protected;
  await Promise.all([show(), drawFacts()]);
  setInterval(drawFacts, 10_000);
}

start();
