/** The stored analytics: requests by API, operation, consumer and others, over any window. */

import { h, empty, field, fill, notice, pageHead, segmented } from "../lib/dom.js";
import { icon } from "../lib/icons.js";
import { chart } from "../lib/chart.js";
import { query, read } from "../lib/data.js";
import { count, millis, percent, short, size } from "../lib/format.js";

const DIMENSIONS = ["api", "version", "environment", "operation", "consumer", "plan", "route", "status", "endpoint"];

/** @type {[string, string, number][]} */
const WINDOWS = [["15m", "15 min", 900], ["1h", "1 h", 3600], ["6h", "6 h", 21_600], ["24h", "1 day", 86_400], ["168h", "7 days", 604_800], ["720h", "30 days", 2_592_000]];

/** @type {["requests" | "errors" | "latency" | "gateway" | "bytes", string][]} */
const MEASURES = [["requests", "Requests"], ["errors", "Errors"], ["latency", "p95"], ["gateway", "Gateway p95"], ["bytes", "Bytes"]];

/**
 * @typedef {object} Latency
 * @property {number | null} mean
 * @property {number | null} p50
 * @property {number | null} p95
 * @property {number | null} p99
 */

/**
 * @typedef {object} Values
 * @property {number} requests
 * @property {number} request_bytes
 * @property {number} response_bytes
 * @property {Record<string, number>} status
 * @property {number} errors
 * @property {number} limited
 * @property {{hit: number, miss: number}} cache
 * @property {Latency} latency_ms
 * @property {Latency} upstream_ms
 * @property {Latency} gateway_ms
 */

/** @typedef {{of: Record<string, string>, total: Values, points?: (Values & {time: string})[]}} Group */

/**
 * @param {string} measure
 * @param {Values} values
 * @param {number} step
 */
function measured(measure, values, step) {
  switch (measure) {
    case "errors": return values.errors / step;
    case "latency": return values.latency_ms?.p95 ?? null;
    case "gateway": return values.gateway_ms?.p95 ?? null;
    case "bytes": return (values.request_bytes + values.response_bytes) / step;
    default: return values.requests / step;
  }
}

/** @param {Group} group */
function name(group) {
  const parts = Object.values(group.of).map((value) => value || "(none)");
  return parts.join(" · ") || "all requests";
}

/**
 * A step with at most about 120 points, in whole minutes.
 * @param {number} seconds
 */
function step(seconds) {
  const steps = [60, 300, 900, 3600, 21_600, 86_400];
  return steps.find((of) => seconds / of <= 120) ?? 86_400;
}

/** @type {import("../main.js").Page["show"]} */
export async function show(root, { url, signal, remember }) {
  let since = WINDOWS.some(([value]) => value === url.searchParams.get("since")) ? url.searchParams.get("since") ?? "1h" : "1h";
  let by = (url.searchParams.get("by") ?? "api").split(",").filter((of) => DIMENSIONS.includes(of)).slice(0, 3);
  let where = url.searchParams.getAll("where");
  /** @type {"requests" | "errors" | "latency" | "gateway" | "bytes"} */
  let measure = "requests";
  /** @type {{groups: Group[], step: number, from: string, to: string, truncated: boolean} | null} */
  let found = null;

  const drawing = chart("Analytics");
  const result = h("div", { class: "stack" });
  const filters = h("div", { class: "row-flex" });
  const csv = h("a", { class: "button", download: "analytics.csv" }, icon("download", 16), "CSV");

  const params = () => ({ since, step: step(WINDOWS.find(([of]) => of === since)?.[2] ?? 3600), by: by.join(","), where, limit: 100 });

  async function load() {
    remember({ since: since === "1h" ? null : since, by: by.join(",") === "api" ? null : by.join(","), where });
    csv.href = `/api/analytics?${query({ ...params(), format: "csv" })}`;
    drawFilters();
    try {
      const document = await read("analytics", params(), signal);
      if (document?.off) {
        fill(root, pageHead("Analytics"), h("div", { class: "card" }, empty("analytics", "Analytics is off",
          "This gateway stores no analytics. The overview shows the rates of the last hour without them, and /metrics has the counters for Prometheus.")));
        return;
      }
      found = document;
      draw();
    } catch (error) {
      if (!signal.aborted) fill(result, notice("bad", /** @type {Error} */ (error).message));
    }
  }

  function draw() {
    if (!found) return;
    const { groups } = found;
    if (!groups.length) {
      fill(result, h("div", { class: "card" }, empty("analytics", "No requests in this window", where.length ? "Remove a filter, or choose a longer window." : "Choose a longer window.")));
      return;
    }
    const seconds = found.step || 60;
    const top = groups.slice(0, 6);
    const times = [...new Set(top.flatMap((group) => (group.points ?? []).map((point) => Date.parse(point.time) / 1000)))].sort((a, b) => a - b);
    const isTime = measure === "latency" || measure === "gateway";
    drawing.draw({
      times, span: [Date.parse(found.from) / 1000, Date.parse(found.to) / 1000],
      format: isTime ? millis : measure === "bytes" ? (value) => `${size(value)}/s` : (value) => `${short(value)}/s`,
      series: top.map((group, at) => {
        const values = new Map((group.points ?? []).map((point) => [Date.parse(point.time) / 1000, measured(measure, point, seconds)]));
        return { name: name(group), style: at + 1, area: top.length === 1, values: times.map((time) => values.get(time) ?? (isTime ? null : 0)) };
      }),
    });
    const all = groups.reduce((sum, group) => sum + group.total.requests, 0);
    fill(result,
      h("section", { class: "card" }, h("div", { class: "card-head" }, h("h2", null, groups.length > 6 ? "The six groups with the most requests" : "Over time"),
        segmented("Measure", MEASURES, measure, (value) => { measure = value; draw(); })), drawing.element),
      found.truncated ? notice("info", "There are more groups. The table has the groups with the most requests.") : null,
      h("section", { class: "card" }, h("div", { class: "scroll-x", tabindex: 0, role: "region", "aria-label": "Groups" }, h("table", { class: "plain" },
        h("thead", null, h("tr", null, by.map((of) => h("th", { scope: "col" }, of)),
          ["Requests", "Share", "Errors", "Limited", "p50", "p95", "p99", "Upstream p95", "Gateway p95", "Sent"].map((text) => h("th", { scope: "col", class: "end" }, text)))),
        h("tbody", null, groups.map((group) => {
          const { total } = group;
          return h("tr", null,
            by.map((of) => h("td", null, filterButton(of, group.of[of]))),
            [count(total.requests), percent(total.requests, all), percent(total.errors, total.requests), count(total.limited), millis(total.latency_ms?.p50), millis(total.latency_ms?.p95), millis(total.latency_ms?.p99),
              millis(total.upstream_ms?.p95), millis(total.gateway_ms?.p95), size(total.response_bytes)].map((text) => h("td", { class: "end" }, text)));
        }))))),
    );
  }

  /** @param {string} dimension @param {string} value */
  function filterButton(dimension, value) {
    if (!value) return h("span", { class: "muted" }, "(none)");
    return h("button", { type: "button", class: "as-link", title: `Only ${dimension} ${value}`, onclick: () => { where = [...where.filter((of) => !of.startsWith(`${dimension}:`)), `${dimension}:${value}`]; load(); } }, value);
  }

  function drawFilters() {
    fill(filters, where.map((of) => h("button", { type: "button", class: "badge accent removable", "aria-label": `Remove the filter ${of}`, onclick: () => { where = where.filter((other) => other !== of); load(); } }, of, icon("close", 12))));
  }

  const window = h("select", { onchange: () => { since = window.value; load(); } }, WINDOWS.map(([value, text]) => h("option", { value }, text)));
  window.value = since;
  const grouping = [0, 1].map((at) => {
    const select = h("select", {
      onchange: () => {
        by = grouping.map((of) => of.value).filter((of, index, of_all) => of && of_all.indexOf(of) === index);
        load();
      },
    }, h("option", { value: "" }, at ? "–" : "all together"), DIMENSIONS.map((of) => h("option", { value: of }, of)));
    select.value = by[at] ?? "";
    return select;
  });
  const filter = h("input", { class: "input", placeholder: "status:5xx", spellcheck: "false", autocomplete: "off", "data-search": true });
  const form = h("form", {
    class: "card row-flex analytics-form",
    onsubmit: (/** @type {Event} */ event) => {
      event.preventDefault();
      const text = filter.value.trim();
      if (!text) return;
      const [dimension] = text.split(":");
      if (!DIMENSIONS.includes(dimension) || !text.includes(":")) {
        fill(result, notice("warn", `Write a filter as DIMENSION:VALUE. The dimensions are ${DIMENSIONS.join(", ")}.`));
        return;
      }
      if (!where.includes(text)) where = [...where, text];
      filter.value = "";
      load();
    },
  }, field("Window", window), field("Group by", grouping[0]), field("and by", grouping[1]), field("Filter", filter, "grow"), h("button", { class: "button", type: "submit" }, "Add the filter"), csv);

  root.append(pageHead("Analytics"), form, filters, result);
  await load();
}
