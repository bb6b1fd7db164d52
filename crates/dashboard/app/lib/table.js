/** A table of any length: only the visible rows are in the document. */

import { h, fill, empty, notice, say } from "./dom.js";
import { List } from "./data.js";
import { count } from "./format.js";

/**
 * @template T
 * @typedef {object} Column
 * @property {string} title
 * @property {string} width for `grid-template-columns`
 * @property {(item: T) => (import("./dom.js").Child | import("./dom.js").Child[])} cell
 * @property {(item: T) => string} [tip] the whole text of a cell that may be cut
 * @property {boolean} [end] numbers are aligned at the end
 * @property {1 | 2 | 3 | 4} [phone] the place in a row on a phone: upper left, upper right, lower left, lower right
 */

/**
 * @template T
 * @typedef {object} Options
 * @property {string} label
 * @property {string} source the document with the list
 * @property {string} [search]
 * @property {[string, string]} of the name of one item, and of several
 * @property {Column<T>[]} columns
 * @property {(item: T) => void} [open]
 * @property {() => HTMLElement} nothing
 * @property {AbortSignal} signal
 * @property {number} [refresh] milliseconds
 * @property {boolean} [wideFirst] on a phone, the first column has the whole first line
 */

/** Rows above and below the visible rows. */
const AROUND = 8;

/**
 * @template T
 * @param {Options<T>} options
 * @returns {{element: HTMLElement, search: (text: string) => void, refresh: () => void}}
 */
export function table(options) {
  const { columns, open, signal } = options;
  /** @type {List<T>} */
  let list = new List(options.source, options.search ?? "");
  let active = 0;
  /** @type {Map<number, {row: HTMLElement, item: T | undefined}>} */
  const shown = new Map();

  const space = h("div", { class: "table-space", role: "rowgroup" });
  const head = h("div", { class: "tr head", role: "row", "aria-rowindex": 1 },
    columns.map((column) => h("div", { class: `th${column.end ? " end" : ""}`, role: "columnheader" }, column.title)));
  // The head is inside of the scrolled part, so that its columns have the widths of the rows.
  const scroll = h("div", { class: "table-scroll", role: "presentation", onscroll: () => schedule() }, h("div", { class: "table-head", role: "rowgroup" }, head), space);
  const foot = h("div", { class: "table-foot" }, h("span", null, "Loading …"));
  const grid = h("div", { class: "table-grid", role: "grid", "aria-label": options.label, "aria-colcount": columns.length, onkeydown: keys },
    scroll);
  const box = h("div", { class: "table" }, grid, foot);
  box.style.setProperty("--columns", columns.map((column) => column.width).join(" "));
  const holder = h("div", { class: "table-holder" }, box);
  /** The message in place of the table. */
  let other = /** @type {HTMLElement} */ (h("div"));

  let scheduled = false;
  function schedule() {
    if (scheduled) return;
    scheduled = true;
    requestAnimationFrame(() => {
      scheduled = false;
      if (!signal.aborted) draw();
    });
  }

  function height() {
    return Number.parseFloat(getComputedStyle(document.documentElement).getPropertyValue("--row")) || 44;
  }

  function draw() {
    const rowHeight = height();
    const total = list.total ?? 0;
    space.style.height = `${total * rowHeight}px`;
    const first = Math.max(0, Math.floor(scroll.scrollTop / rowHeight) - AROUND);
    const last = Math.min(total, Math.ceil((scroll.scrollTop + scroll.clientHeight) / rowHeight) + AROUND);
    for (const [index, { row }] of shown) {
      if (index < first || index >= last) {
        row.remove();
        shown.delete(index);
      }
    }
    for (let index = first; index < last; index += 1) {
      const item = list.at(index);
      const known = shown.get(index);
      if (known && known.item === item) {
        known.row.style.transform = `translateY(${index * rowHeight}px)`;
        continue;
      }
      const row = known?.row ?? makeRow(index);
      fillRow(row, item);
      row.style.transform = `translateY(${index * rowHeight}px)`;
      shown.set(index, { row, item });
      if (item === undefined) need(index);
    }
    if (last < total) need(Math.min(total - 1, last + AROUND));
  }

  /** @param {number} index */
  function makeRow(index) {
    const row = h("div", {
      class: `tr${open ? " opens" : ""}${options.wideFirst ? " wide-first" : ""}${columns.some((column) => column.phone === 4) ? "" : " low-wide"}`, role: "row", "aria-rowindex": index + 2, tabindex: index === active ? 0 : -1,
      onfocus: () => setActive(index),
      onclick: (/** @type {MouseEvent} */ event) => {
        const chosen = window.getSelection()?.toString();
        if (!chosen && !(/** @type {Element} */ (event.target)).closest("a")) act(index);
      },
    });
    // Rows are in the order of their indices, for screen readers.
    let before = null;
    for (const [other, { row: at }] of shown) if (other > index && (before === null || other < before.index)) before = { index: other, at };
    space.insertBefore(row, before?.at ?? null);
    return row;
  }

  /**
   * @param {HTMLElement} row
   * @param {T | undefined} item
   */
  function fillRow(row, item) {
    fill(row, columns.map((column) => h("div", {
      class: `td${column.end ? " end" : ""}${column.phone ? ` p${column.phone}` : ""}`, role: "gridcell", title: item && column.tip ? column.tip(item) : null,
    }, item === undefined ? h("span", { class: "skeleton" }) : column.cell(item))));
    for (const inner of row.querySelectorAll("a")) inner.tabIndex = -1;
  }

  /** @param {number} index */
  function setActive(index) {
    const before = shown.get(active);
    if (before) before.row.tabIndex = -1;
    active = index;
    const now = shown.get(index);
    if (now) now.row.tabIndex = 0;
  }

  /** @param {number} index */
  function act(index) {
    const item = list.at(index);
    if (item !== undefined) open?.(item);
  }

  /** @param {number} index */
  function focus(index) {
    const total = list.total ?? 0;
    if (!total) return;
    const at = Math.min(total - 1, Math.max(0, index));
    const rowHeight = height();
    const top = at * rowHeight;
    if (top < scroll.scrollTop) scroll.scrollTop = top;
    const visible = scroll.clientHeight - head.offsetHeight;
    if (top + rowHeight > scroll.scrollTop + visible) scroll.scrollTop = top + rowHeight - visible;
    draw();
    setActive(at);
    shown.get(at)?.row.focus({ preventScroll: true });
  }

  /** @param {KeyboardEvent} event */
  function keys(event) {
    if (!(event.target instanceof HTMLElement) || !event.target.classList.contains("tr")) return;
    const page = Math.max(1, Math.floor(scroll.clientHeight / height()) - 1);
    /** @type {Record<string, number>} */
    const moves = { ArrowDown: active + 1, ArrowUp: active - 1, PageDown: active + page, PageUp: active - page, Home: 0, End: (list.total ?? 1) - 1 };
    if (event.key in moves) {
      event.preventDefault();
      focus(moves[event.key]);
    } else if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      const inner = event.target.querySelector("a");
      if (open) act(active);
      else inner?.click();
    }
  }

  /** @param {number} index @param {boolean} [again] */
  async function need(index, again = false) {
    const of = list;
    try {
      const isNew = await of.need(index, signal, again);
      if (isNew && of === list && !signal.aborted) settle();
    } catch (error) {
      if (signal.aborted || of !== list || again) return;
      other = notice("bad", /** @type {Error} */ (error).message);
      fill(holder, other);
    }
  }

  function settle() {
    const total = list.total ?? 0;
    if (total === 0) {
      other = list.search
        ? h("div", { class: "card" }, empty("search", `No ${options.of[1]} match “${list.search}”`, "A search finds items that contain all its words."))
        : options.nothing();
      if (holder.firstChild !== other) fill(holder, other);
      return;
    }
    if (holder.firstChild !== box) fill(holder, box);
    grid.setAttribute("aria-rowcount", String(total + 1));
    const name = total === 1 ? options.of[0] : options.of[1];
    const text = `${count(total)} ${name}${list.search ? " found" : ""}`;
    if (foot.firstElementChild?.textContent !== text) {
      fill(foot, h("span", null, text), open ? h("span", null, "↑ ↓ Enter") : null);
      if (list.search) say(text);
    }
    if (active >= total) active = total - 1;
    draw();
  }

  /** Reads the visible rows again. */
  function refresh() {
    const rowHeight = height();
    need(Math.floor(scroll.scrollTop / rowHeight), true);
    const below = Math.floor((scroll.scrollTop + scroll.clientHeight) / rowHeight);
    if (Math.floor(below / List.PART) !== Math.floor(scroll.scrollTop / rowHeight / List.PART)) need(below, true);
  }

  const sizes = new ResizeObserver(() => schedule());
  sizes.observe(scroll);
  signal.addEventListener("abort", () => sizes.disconnect());
  if (options.refresh) {
    const timer = setInterval(() => {
      if (!document.hidden) refresh();
    }, options.refresh);
    signal.addEventListener("abort", () => clearInterval(timer));
  }
  need(0);

  return {
    element: holder,
    refresh,
    search: (text) => {
      list = new List(options.source, text);
      active = 0;
      for (const { row } of shown.values()) row.remove();
      shown.clear();
      scroll.scrollTop = 0;
      need(0);
    },
  };
}
