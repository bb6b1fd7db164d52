/** The frame of a site: pages by their paths, the menu, the theme, the login. */

import { byId, fill, h, link, notice, say } from "./dom.js";
import { icon } from "./icons.js";
import { login, logout } from "./data.js";
import { session } from "./change.js";

/**
 * What a page receives.
 * @typedef {object} Context
 * @property {URL} url
 * @property {AbortSignal} signal aborted when the user leaves the page
 * @property {(params: Record<string, string | string[] | null>) => void} remember writes parameters into the address
 */

/** @typedef {{show: (root: HTMLElement, context: Context) => void | Promise<void>}} Page */

/**
 * A page of the menu.
 * @typedef {object} Entry
 * @property {string} group
 * @property {string} path
 * @property {string} title
 * @property {import("./icons.js").IconName} icon
 * @property {() => Promise<Page>} load
 */

/**
 * @typedef {object} Frame
 * @property {() => Promise<void>} show shows the page of the address
 * @property {(hint: import("./dom.js").Child) => void} lock shows the login in place of the page
 */

/** @type {("system" | "light" | "dark")[]} */
const THEMES = ["system", "light", "dark"];

/**
 * @param {object} options
 * @param {string} options.site the name after the title of a page
 * @param {Entry[]} options.pages
 * @param {() => Promise<Page>} options.api the page of one API
 * @param {(entry: Entry) => import("./dom.js").Child} [options.beside] what the menu shows beside a title
 * @returns {Frame}
 */
export function frame({ site, pages, api, beside }) {
  const main = byId("main");
  const nav = byId("nav");
  const menu = byId("menu");
  /** @type {AbortController | null} */
  let leaving = null;

  function drawNav() {
    let group = "";
    const parts = [];
    for (const entry of pages) {
      if (entry.group !== group) parts.push(h("h2", null, entry.group));
      group = entry.group;
      parts.push(h("a", { href: entry.path, "data-link": true }, icon(entry.icon), entry.title, beside?.(entry)));
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
    document.querySelectorAll("dialog").forEach((dialog) => dialog.remove());
    const path = url.pathname.replace(/\/+$/, "") || "/";
    const isApi = /^\/apis\/[^/]+\/[^/]+$/.test(path);
    const page = isApi ? pages.find((entry) => entry.icon === "apis") : pages.find((entry) => entry.path === path);
    for (const each of nav.querySelectorAll("a")) {
      if (page && each.getAttribute("href") === page.path) each.setAttribute("aria-current", "page");
      else each.removeAttribute("aria-current");
    }
    const root = h("div", { class: "page" });
    main.scrollTop = 0;
    if (!page) {
      document.title = `No such page – ${site}`;
      fill(main, root);
      fill(root, h("h1", null, "There is no such page"), h("p", null, link("/", "Go to the first page")));
      return;
    }
    document.title = `${page.title} – ${site}`;
    try {
      const module = await (isApi ? api() : page.load());
      if (signal.aborted) return;
      fill(main, root);
      await module.show(root, { url, signal, remember });
    } catch (error) {
      if (signal.aborted) return;
      fill(main, root);
      fill(root, h("h1", null, page.title), notice("bad", error instanceof Error ? error.message : String(error)));
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

  /** @param {import("./dom.js").Child} hint */
  function lock(hint) {
    leaving?.abort();
    document.querySelectorAll("dialog").forEach((dialog) => dialog.remove());
    document.body.classList.add("locked");
    byId("logout").hidden = true;
    fill(byId("facts"));
    document.title = `Log in – ${site}`;
    const provider = byProvider();
    const token = session.tokens === false ? null : byToken(hint, provider !== null);
    fill(main, h("div", { class: "login" }, h("div", { class: "card" }, h("h1", null, "Log in"),
      session.refused ? h("div", { class: "stack" }, notice("warn", session.refused), h("button", { type: "button", class: "button", onclick: () => logout("/") }, "Log out")) : null,
      provider, token)));
    /** @type {HTMLElement | null} */ (main.querySelector("input, a"))?.focus();
  }

  /** The login at the OpenID provider, which returns to this page. */
  function byProvider() {
    if (!session.openid) return null;
    const { name, url } = session.openid;
    const to = location.pathname + location.search;
    return h("a", { class: "button primary", id: "provider", href: `${url}?to=${encodeURIComponent(to)}` }, `Log in with ${name}`);
  }

  /**
   * @param {import("./dom.js").Child} hint
   * @param {boolean} isSecond whether there is another login above
   */
  function byToken(hint, isSecond) {
    const message = h("div");
    const token = h("input", { class: "input", type: "password", id: "token", autocomplete: "current-password", required: true });
    const button = h("button", { class: isSecond ? "button" : "button primary", type: "submit" }, isSecond ? "Log in with the token" : "Log in");
    return h("form", {
      class: "stack",
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
    }, isSecond ? h("h2", null, "Or by a token") : null, h("p", { class: "muted" }, hint),
    h("div", { class: "field" }, h("label", { for: "token" }, "Token"), token), message, button);
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

  drawNav();
  setMenu(false);
  drawTheme();
  fill(byId("logout"), icon("logout"));
  return { show, lock };
}
