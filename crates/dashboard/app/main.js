/** The frame of the application: pages by their paths, the menu, the theme, the login. */

import { byId, fill, h, link, notice, badge, say } from "./lib/dom.js";
import { icon } from "./lib/icons.js";
import { login, read, whenLocked } from "./lib/data.js";
import { ago } from "./lib/format.js";

/**
 * What a page receives.
 * @typedef {object} Context
 * @property {URL} url
 * @property {AbortSignal} signal aborted when the user leaves the page
 * @property {(params: Record<string, string | string[] | null>) => void} remember writes parameters into the address
 */

/** @typedef {{show: (root: HTMLElement, context: Context) => void | Promise<void>}} Page */

/**
 * The pages: group, path, title, icon, module.
 * @type {[string, string, string, import("./lib/icons.js").IconName, () => Promise<Page>][]}
 */
const PAGES = [
  ["Traffic", "/", "Overview", "overview", () => import("./pages/overview.js")],
  ["Traffic", "/analytics", "Analytics", "analytics", () => import("./pages/analytics.js")],
  ["Gateway", "/routes", "Routes", "routes", () => import("./pages/routes.js")],
  ["Gateway", "/explain", "Explain", "explain", () => import("./pages/explain.js")],
  ["Gateway", "/upstreams", "Upstreams", "upstreams", () => import("./pages/upstreams.js")],
  ["Gateway", "/certificates", "Certificates", "certificates", () => import("./pages/certificates.js")],
  ["Gateway", "/policies", "Policies", "policies", () => import("./pages/policies.js")],
  ["APIs", "/apis", "APIs", "apis", () => import("./pages/apis.js")],
  ["APIs", "/consumers", "Consumers", "consumers", () => import("./pages/consumers.js")],
  ["Health", "/audit", "Audit", "audit", () => import("./pages/audit.js")],
  ["Health", "/problems", "Problems", "problems", () => import("./pages/problems.js")],
];

const main = byId("main");
const nav = byId("nav");
const menu = byId("menu");
/** @type {AbortController | null} */
let leaving = null;

function drawNav() {
  let group = "";
  const parts = [];
  for (const [of, path, title, name] of PAGES) {
    if (of !== group) parts.push(h("h2", null, of));
    group = of;
    parts.push(h("a", { href: path, "data-link": true }, icon(name), title, path === "/problems" ? h("span", { class: "count", id: "problem-count" }) : null));
  }
  fill(nav, ...parts);
}

/** @param {boolean} isOpen */
function setMenu(isOpen) {
  nav.classList.toggle("open", isOpen);
  menu.setAttribute("aria-expanded", String(isOpen));
  fill(menu, icon(isOpen ? "close" : "menu", 20));
}

async function show() {
  leaving?.abort();
  leaving = new AbortController();
  const { signal } = leaving;
  const url = new URL(location.href);
  setMenu(false);
  document.querySelector("dialog.drawer")?.remove();
  const path = url.pathname.replace(/\/+$/, "") || "/";
  const isApi = /^\/apis\/[^/]+\/[^/]+$/.test(path);
  const page = PAGES.find(([, of]) => of === (isApi ? "/apis" : path));
  for (const each of nav.querySelectorAll("a")) {
    if (page && each.getAttribute("href") === page[1]) each.setAttribute("aria-current", "page");
    else each.removeAttribute("aria-current");
  }
  const root = h("div", { class: "page" });
  main.scrollTop = 0;
  if (!page) {
    document.title = "No such page – Sluicegate";
    fill(main, root);
    fill(root, h("h1", null, "There is no such page"), h("p", null, link("/", "Go to the overview")));
    return;
  }
  document.title = `${page[2]} – Sluicegate`;
  try {
    const module = await (isApi ? import("./pages/api.js") : page[4]());
    if (signal.aborted) return;
    fill(main, root);
    await module.show(root, { url, signal, remember });
  } catch (error) {
    if (signal.aborted) return;
    fill(main, root);
    fill(root, h("h1", null, page[2]), notice("bad", error instanceof Error ? error.message : String(error)));
  }
}

/** @param {Record<string, string | string[] | null>} params */
function remember(params) {
  const url = new URL(location.href);
  for (const [name, value] of Object.entries(params)) {
    url.searchParams.delete(name);
    if (Array.isArray(value)) value.forEach((each) => url.searchParams.append(name, each));
    else if (value) url.searchParams.set(name, value);
  }
  history.replaceState(null, "", url);
}

/** @param {string} href */
function go(href) {
  history.pushState(null, "", href);
  show().then(() => main.focus({ preventScroll: true }));
  const title = document.title.split(" – ")[0];
  say(title);
}

document.addEventListener("click", (event) => {
  if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  const anchor = event.target instanceof Element ? event.target.closest("a[data-link]") : null;
  const href = anchor?.getAttribute("href");
  if (!href) return;
  // The page of an API may connect to the hosts of this API alone, which the server states with the page.
  if (/^\/apis\/./.test(href) || /^\/apis\/./.test(location.pathname)) return;
  event.preventDefault();
  go(href);
});

window.addEventListener("popstate", () => show());

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && nav.classList.contains("open")) {
    setMenu(false);
    menu.focus();
  }
  const isTyping = event.target instanceof HTMLElement && event.target.matches("input, textarea, select");
  if (event.key !== "/" || isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
  const search = main.querySelector("[data-search]");
  if (search instanceof HTMLInputElement) {
    event.preventDefault();
    search.focus();
    search.select();
  }
});

menu.addEventListener("click", () => setMenu(!nav.classList.contains("open")));

/* The theme. */

/** @type {("system" | "light" | "dark")[]} */
const THEMES = ["system", "light", "dark"];

function theme() {
  const stored = localStorage.getItem("theme");
  return stored === "light" || stored === "dark" ? stored : "system";
}

function drawTheme() {
  const button = byId("theme");
  const name = theme();
  if (name === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  fill(button, icon(name));
  button.setAttribute("aria-label", `Theme: ${name}`);
  button.title = `Theme: ${name}`;
}

byId("theme").addEventListener("click", () => {
  const next = THEMES[(THEMES.indexOf(theme()) + 1) % THEMES.length];
  if (next === "system") localStorage.removeItem("theme");
  else localStorage.setItem("theme", next);
  drawTheme();
  say(`Theme: ${next}`);
});

/* The facts at the top. */

async function drawFacts() {
  if (document.hidden || document.body.classList.contains("locked")) return;
  try {
    const facts = await read("overview", { since: 99_999_999_999 });
    const tone = facts.phase === "ready" ? "good" : "warn";
    fill(byId("facts"), h("span", { class: "wide nowrap" }, facts.last_change ? `Changed ${ago(facts.last_change, facts.now)}` : ""),
      facts.pod ? h("span", { class: "wide badge" }, facts.pod) : null,
      badge(facts.phase === "ready" && !facts.serves ? "control plane" : facts.phase, tone));
    const found = document.getElementById("problem-count");
    const problems = facts.errors + facts.warnings;
    if (found) fill(found, problems ? badge(problems, facts.errors ? "bad" : "warn") : "");
    if (found && problems) found.setAttribute("aria-label", `${problems} problems`);
  } catch {
    fill(byId("facts"), badge("no connection", "bad"));
  }
}

/* The login. */

function drawLogin() {
  leaving?.abort();
  document.body.classList.add("locked");
  byId("logout").hidden = true;
  fill(byId("facts"));
  document.title = "Log in – Sluicegate";
  const message = h("div");
  const token = h("input", { class: "input", type: "password", id: "token", autocomplete: "current-password", required: true });
  const button = h("button", { class: "button primary", type: "submit" }, "Log in");
  const form = h("form", {
    class: "card",
    onsubmit: async (/** @type {Event} */ event) => {
      event.preventDefault();
      button.disabled = true;
      try {
        await login(token.value.trim());
        document.body.classList.remove("locked");
        // A new page has the policy for its own connections.
        location.reload();
      } catch (error) {
        fill(message, notice("bad", /** @type {Error} */ (error).message));
        token.select();
      }
      button.disabled = false;
    },
  }, h("h1", null, "Log in"), h("p", { class: "muted" }, "Use the token in the file that ", h("code", null, "--dashboard-token-file"), " names."),
  h("div", { class: "field" }, h("label", { for: "token" }, "Token"), token), message, button);
  fill(main, h("div", { class: "login" }, form));
  token.focus();
}

byId("logout").addEventListener("click", async () => {
  await fetch("/api/logout");
  drawLogin();
});

async function start() {
  drawNav();
  setMenu(false);
  drawTheme();
  fill(byId("logout"), icon("logout"));
  whenLocked(drawLogin);
  let session;
  try {
    session = await read("session");
  } catch (error) {
    fill(main, h("div", { class: "page" }, notice("bad", /** @type {Error} */ (error).message)));
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
