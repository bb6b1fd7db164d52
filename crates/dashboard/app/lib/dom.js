/** Elements, made by functions. Text is always set as text, so no value can become HTML. */

import { icon } from "./icons.js";

/** @typedef {Node | string | number | null | undefined | false} Child */
/** @typedef {Record<string, any>} Props */

/**
 * An element. A property that starts with `on` is a listener, `class` and others are attributes; `false` and `null` set none.
 * @template {keyof HTMLElementTagNameMap} T
 * @param {T} tag
 * @param {Props | null} [props]
 * @param {...(Child | Child[])} children
 * @returns {HTMLElementTagNameMap[T]}
 */
export function h(tag, props, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  add(element, children);
  return element;
}

/**
 * An element of SVG.
 * @param {string} tag
 * @param {Props | null} [props]
 * @param {...Child} children
 * @returns {SVGElement}
 */
export function s(tag, props, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    element.setAttribute(name, String(value));
  }
  add(element, children);
  return element;
}

/**
 * @param {Element} element
 * @param {(Child | Child[])[]} children
 */
function add(element, children) {
  for (const child of children.flat()) {
    if (child === null || child === undefined || child === false) continue;
    element.append(typeof child === "number" ? String(child) : child);
  }
}

/**
 * Replaces the children of an element.
 * @param {Element} element
 * @param {...(Child | Child[])} children
 */
export function fill(element, ...children) {
  element.replaceChildren();
  add(element, children);
}

/**
 * The element with this id. Only for ids of page.html.
 * @param {string} id
 * @returns {HTMLElement}
 */
export function byId(id) {
  const found = document.getElementById(id);
  if (!found) throw new Error(`page.html has no element ${id}`);
  return found;
}

/**
 * A badge.
 * @param {Child} text
 * @param {"good" | "warn" | "bad" | "info" | "accent" | ""} [tone]
 */
export function badge(text, tone = "") {
  return h("span", { class: `badge ${tone}` }, text);
}

/**
 * The badge of a method.
 * @param {string} method
 */
export function methodBadge(method) {
  /** @type {Record<string, "good" | "warn" | "bad" | "info" | "accent">} */
  const tones = { GET: "info", POST: "good", PUT: "warn", PATCH: "warn", DELETE: "bad" };
  return h("span", { class: `badge method ${tones[method] ?? ""}` }, method);
}

/**
 * A dot for a state. The text beside it must tell the state too.
 * @param {"good" | "warn" | "bad" | "muted"} tone
 */
export function dot(tone) {
  return h("span", { class: `dot ${tone}`, "aria-hidden": "true" });
}

/**
 * A note about a whole page.
 * @param {"good" | "warn" | "bad" | "info"} tone
 * @param {...Child} children
 */
export function notice(tone, ...children) {
  return h("div", { class: `notice ${tone}`, role: tone === "bad" ? "alert" : null }, icon(tone), h("div", { class: "break" }, ...children));
}

/**
 * A place without content, with the reason.
 * @param {import("./icons.js").IconName} name
 * @param {string} title
 * @param {...Child} children
 */
export function empty(name, title, ...children) {
  return h("div", { class: "empty" }, icon(name, 34), h("strong", null, title), ...children.map((child) => h("p", null, child)));
}

/**
 * The head of a page.
 * @param {string} title
 * @param {Child} [text]
 * @param {...Child} others
 */
export function pageHead(title, text, ...others) {
  return h("div", { class: "page-head" }, h("h1", null, title), h("span", { class: "grow" }), ...others, text ? h("p", null, text) : null);
}

/**
 * A list of names with values.
 * @param {[string, Child | Child[]][]} rows
 */
export function facts(rows) {
  const shown = rows.filter(([, value]) => value !== null && value !== undefined && value !== false && value !== "");
  return h("dl", { class: "facts" }, shown.flatMap(([name, value]) => [h("dt", null, name), h("dd", null, value)]));
}

/**
 * A link inside of the application.
 * @param {string} href
 * @param {...Child} children
 */
export function link(href, ...children) {
  return h("a", { href, "data-link": true }, ...children);
}

/**
 * A labelled control.
 * @param {string} text
 * @param {HTMLElement} control
 * @param {string} [className]
 */
export function field(text, control, className = "") {
  control.id ||= `field-${++fields}`;
  return h("div", { class: `field ${className}` }, h("label", { for: control.id }, text), control);
}

let fields = 0;

/**
 * The search of a page. The key `/` moves the focus here.
 * @param {string} label
 * @param {string} value
 * @param {(text: string) => void} changed
 */
export function search(label, value, changed) {
  let timer = 0;
  const input = h("input", {
    class: "input", type: "search", placeholder: label, "aria-label": label, value, autocomplete: "off", spellcheck: "false", maxlength: 200, "data-search": true,
    oninput: () => {
      clearTimeout(timer);
      timer = window.setTimeout(() => changed(input.value.trim()), 150);
    },
  });
  return h("div", { class: "search" }, icon("search", 16), input, h("kbd", { "aria-hidden": "true" }, "/"));
}

/**
 * A group of buttons of which one is pressed.
 * @template {string} T
 * @param {string} label
 * @param {[T, string][]} options
 * @param {T} chosen
 * @param {(value: T) => void} changed
 */
export function segmented(label, options, chosen, changed) {
  const buttons = options.map(([value, text]) => h("button", {
    type: "button", "aria-pressed": String(value === chosen),
    onclick: () => {
      buttons.forEach((button, at) => button.setAttribute("aria-pressed", String(options[at][0] === value)));
      changed(value);
    },
  }, text));
  return h("div", { class: "segmented", role: "group", "aria-label": label }, buttons);
}

/**
 * A button that copies a text.
 * @param {() => string} text
 */
export function copyButton(text) {
  const button = h("button", {
    type: "button", class: "button",
    onclick: async () => {
      await navigator.clipboard?.writeText(text());
      say("Copied");
      fill(button, icon("good", 16), "Copied");
      setTimeout(() => fill(button, icon("copy", 16), "Copy"), 1500);
    },
  }, icon("copy", 16), "Copy");
  return button;
}

/**
 * Tells screen readers a text.
 * @param {string} text
 */
export function say(text) {
  byId("live").textContent = text;
}

/**
 * Shows details at the side, until the user closes them. The focus then returns to where it was.
 * @param {string} title
 * @param {Child} sub
 * @param {Child[]} children
 */
export function drawer(title, sub, children) {
  document.querySelector("dialog.drawer")?.remove();
  const dialog = h("dialog", { class: "drawer", "aria-label": title, onclose: () => dialog.remove() },
    h("div", { class: "drawer-head" },
      h("div", { class: "stack tight" }, h("h2", { class: "break" }, title), sub),
      h("button", { type: "button", class: "icon-button", "aria-label": "Close the details", onclick: () => dialog.close() }, icon("close"))),
    h("div", { class: "drawer-body" }, children));
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}
