/** Charts over time, as SVG. */

import { h, s, fill, say } from "./dom.js";
import { clock } from "./format.js";

/**
 * @typedef {object} Series
 * @property {string} name
 * @property {number} style from 1 to 6
 * @property {(number | null)[]} values
 * @property {boolean} [area]
 */

/**
 * @typedef {object} Drawing
 * @property {number[]} times in seconds since 1970
 * @property {Series[]} series
 * @property {{time: number, text: string[]}[]} [marks]
 * @property {(value: number) => string} format
 * @property {[number, number]} [span] the first and the last time of the axis
 * @property {number} [gap] a longer time between two points, in seconds, is a gap
 */

const LEFT = 54;
const RIGHT = 8;
const TOP = 12;
const BOTTOM = 24;

/**
 * Ticks at round values, from zero.
 * @param {number} max
 * @returns {number[]}
 */
function ticks(max) {
  if (!(max > 0)) return [0, 1];
  const rough = max / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((of) => of * power).find((of) => of >= rough) ?? rough;
  const found = [];
  for (let value = 0; value < max + step * 0.999; value += step) found.push(value);
  return found;
}

/**
 * @param {string} label what the chart shows
 * @returns {{element: HTMLElement, draw: (drawing: Drawing) => void}}
 */
export function chart(label) {
  const svg = s("svg", { role: "img", tabindex: 0, "aria-label": label });
  const tip = h("div", { class: "chart-tip", hidden: true });
  const plot = h("div", { class: "chart" }, svg, tip);
  const legend = h("div", { class: "legend" });
  const element = h("div", { class: "stack tight" }, plot, legend);
  /** @type {Drawing | null} */
  let drawing = null;
  /** @type {number | null} */
  let cursor = null;
  const cursorLayer = s("g", null);

  function place() {
    const width = plot.clientWidth;
    const height = plot.clientHeight;
    const [first, last] = drawing?.span ?? [drawing?.times[0] ?? 0, drawing?.times.at(-1) ?? 1];
    const max = Math.max(0, ...(drawing?.series.flatMap((of) => of.values.map((value) => value ?? 0)) ?? []));
    const marks = ticks(max);
    const top = marks.at(-1) ?? 1;
    /** @param {number} time */
    const x = (time) => LEFT + (time - first) / Math.max(1, last - first) * (width - LEFT - RIGHT);
    /** @param {number} value */
    const y = (value) => height - BOTTOM - value / top * (height - TOP - BOTTOM);
    return { width, height, first, last, marks, x, y };
  }

  function redraw() {
    if (!drawing || !plot.clientWidth) return;
    const { times, series, format } = drawing;
    const at = place();
    svg.setAttribute("viewBox", `0 0 ${at.width} ${at.height}`);
    const parts = [];
    for (const value of at.marks) {
      parts.push(s("line", { class: "grid-line", x1: LEFT, x2: at.width - RIGHT, y1: at.y(value), y2: at.y(value) }));
      parts.push(s("text", { x: LEFT - 8, y: at.y(value) + 4, "text-anchor": "end" }, format(value)));
    }
    const count = Math.max(2, Math.min(6, Math.floor((at.width - LEFT) / 110)));
    const isLong = at.last - at.first > 2 * 86_400;
    for (let index = 0; index <= count; index += 1) {
      const time = at.first + (at.last - at.first) * index / count;
      const anchor = index === 0 ? "start" : index === count ? "end" : "middle";
      const text = isLong ? new Date(time * 1000).toLocaleDateString("en-GB", { day: "numeric", month: "short" }) : clock(time).slice(0, at.last - at.first < 600 ? 8 : 5);
      parts.push(s("text", { x: at.x(time), y: at.height - 6, "text-anchor": anchor }, text));
    }
    for (const mark of drawing.marks ?? []) {
      if (mark.time < at.first || mark.time > at.last) continue;
      const x = at.x(mark.time);
      parts.push(s("line", { class: "mark", x1: x, x2: x, y1: TOP - 4, y2: at.height - BOTTOM }));
      parts.push(s("path", { class: "mark-head", d: `M${x - 4} ${TOP - 8}h8l-4 6z` }));
    }
    const gap = drawing.gap ?? Infinity;
    for (const of of series) {
      let line = "";
      let area = "";
      /** @type {number | null} */
      let start = null;
      /** @type {number | null} */
      let before = null;
      const close = () => {
        if (start !== null && before !== null) area += `L${before.toFixed(1)} ${at.y(0)}L${start.toFixed(1)} ${at.y(0)}Z`;
        start = null;
      };
      of.values.forEach((value, index) => {
        if (value === null || index > 0 && times[index] - times[index - 1] > gap) close();
        if (value === null) return;
        const x = at.x(times[index]);
        const step = `${start === null ? "M" : "L"}${x.toFixed(1)} ${at.y(value).toFixed(1)}`;
        line += step;
        area += step;
        start ??= x;
        before = x;
      });
      close();
      if (of.area) parts.push(s("path", { class: `area s${of.style}`, d: area }));
      parts.push(s("path", { class: `line s${of.style}`, d: line }));
    }
    fill(svg, ...parts, cursorLayer);
    drawCursor();
  }

  function drawCursor() {
    const index = cursor;
    if (!drawing || index === null || index >= drawing.times.length) {
      cursorLayer.replaceChildren();
      tip.hidden = true;
      return;
    }
    const at = place();
    const time = drawing.times[index];
    const x = at.x(time);
    const points = drawing.series.flatMap((of) => {
      const value = of.values[index];
      return value === null || value === undefined ? [] : [s("circle", { class: `point s${of.style}`, cx: x, cy: at.y(value), r: 3.5 })];
    });
    cursorLayer.replaceChildren(s("line", { class: "cursor", x1: x, x2: x, y1: TOP, y2: at.height - BOTTOM }), ...points);
    const { format } = drawing;
    const rows = drawing.series.map((of) => {
      const value = of.values[index];
      return [of.name, value === null || value === undefined ? "–" : format(value)];
    });
    const reach = Math.max(8, (at.last - at.first) / at.width * 6);
    const near = (drawing.marks ?? []).filter((mark) => Math.abs(mark.time - time) <= reach);
    const changes = near.flatMap((mark) => mark.text).slice(0, 6);
    fill(tip, h("strong", null, clock(time)), h("dl", null, rows.flatMap(([name, value]) => [h("dt", null, name), h("dd", null, value)])),
      changes.length ? h("div", { class: "changes" }, h("strong", null, "Changed"), ...changes.map((text) => h("div", { class: "break" }, text))) : null);
    tip.hidden = false;
    const left = x + 14 + tip.offsetWidth > at.width ? x - tip.offsetWidth - 14 : x + 14;
    tip.style.left = `${Math.max(0, left)}px`;
    tip.style.top = `${TOP}px`;
  }

  /** @param {MouseEvent | PointerEvent} event */
  function point(event) {
    if (!drawing?.times.length) return;
    const at = place();
    const time = at.first + (event.clientX - plot.getBoundingClientRect().left - LEFT) / Math.max(1, at.width - LEFT - RIGHT) * (at.last - at.first);
    let best = 0;
    drawing.times.forEach((of, index) => {
      if (Math.abs(of - time) < Math.abs(/** @type {Drawing} */ (drawing).times[best] - time)) best = index;
    });
    cursor = best;
    drawCursor();
  }

  plot.addEventListener("pointermove", point);
  plot.addEventListener("pointerdown", point);
  plot.addEventListener("pointerleave", () => { cursor = null; drawCursor(); });
  svg.addEventListener("blur", () => { cursor = null; drawCursor(); });
  svg.addEventListener("keydown", (event) => {
    const last = (drawing?.times.length ?? 0) - 1;
    if (last < 0 || !["ArrowLeft", "ArrowRight", "Home", "End", "Escape"].includes(event.key)) return;
    event.preventDefault();
    if (event.key === "Escape") cursor = null;
    else if (event.key === "Home") cursor = 0;
    else if (event.key === "End" || cursor === null) cursor = last;
    else cursor = Math.min(last, Math.max(0, cursor + (event.key === "ArrowLeft" ? -1 : 1)));
    drawCursor();
    if (cursor !== null) say(tip.textContent ?? "");
  });
  new ResizeObserver(() => redraw()).observe(plot);

  return {
    element,
    draw: (next) => {
      drawing = next;
      const latest = next.series.map((of) => `${of.name} ${of.values.length ? next.format(of.values.at(-1) ?? 0) : "none"}`).join(", ");
      svg.setAttribute("aria-label", `${label}. Latest: ${latest}. Arrow keys read the values.`);
      fill(legend, next.series.map((of) => h("span", { class: `s${of.style}` }, h("i"), of.name)));
      redraw();
    },
  };
}
