/** Rates, errors and percentiles of the last hour, with a mark for each change; and what needs attention. */

import { h, badge, empty, fill, link, notice, segmented } from "../lib/dom.js";
import { chart } from "../lib/chart.js";
import { query, read } from "../lib/data.js";
import { around, near, recent, sentence } from "../lib/trail.js";
import { ago, clock, count, millis, percent, plural, short } from "../lib/format.js";

/**
 * @typedef {object} Point
 * @property {number} time
 * @property {number} seconds
 * @property {number} requests
 * @property {number[]} responses
 * @property {number} aborted
 * @property {number} unrouted
 * @property {number} in_flight
 * @property {number | null} p50
 * @property {number | null} p95
 * @property {number | null} p99
 */

/** @typedef {{time: number, changes: number, objects: string[], others: number}} Mark */
/** @typedef {import("../lib/trail.js").Entry} Entry */

/** A mark without entries may still get some: the gateway records changes after it applied them. In seconds. */
const LATE = 60;

/** The entries that a mark shows at most. */
const SHOWN = 4;

/** The points of the tiles: the last half minute. */
const RECENT = 6;

/** @param {Mark} mark @param {Entry[] | null} trail */
function markText(mark, trail) {
  const entries = near(trail ?? [], mark.time);
  if (entries.length) return [...entries.slice(0, SHOWN).map(sentence), ...(entries.length > SHOWN ? [`and ${entries.length - SHOWN} more`] : [])];
  const names = mark.objects.length ? mark.objects : [mark.changes === 1 ? "settings, certificates or policies" : `${mark.changes} changes`];
  return mark.others ? [...names, `and ${mark.others} more`] : names;
}

/**
 * @param {string} what
 * @param {string} value
 * @param {string} unit
 * @param {string} note
 */
function tile(what, value, unit, note) {
  return h("div", { class: "tile" }, h("span", { class: "what" }, what), h("span", { class: "value" }, value, unit ? h("small", null, ` ${unit}`) : null), h("span", { class: "note" }, note));
}

/** @param {Point[]} points */
function tiles(points) {
  const recent = points.slice(-RECENT);
  const sum = (/** @type {(point: Point) => number} */ of) => recent.reduce((total, point) => total + of(point), 0);
  const seconds = sum((point) => point.seconds) || 1;
  const requests = sum((point) => point.requests);
  const server = sum((point) => point.responses[4]);
  const client = sum((point) => point.responses[3] + point.unrouted);
  const aborted = sum((point) => point.aborted);
  const last = recent.filter((point) => point.p50 !== null).at(-1);
  return h("div", { class: "tiles" },
    tile("Requests", short(requests / seconds), "/s", `${count(requests)} in ${Math.round(seconds)} s`),
    tile("Server errors", percent(server, requests), "", server ? `${count(server)} with 5xx` : "no 5xx"),
    tile("Client errors", percent(client, requests), "", "4xx, or no route"),
    tile("Median", millis(last?.p50).split(" ")[0], millis(last?.p50).split(" ")[1] ?? "", `p95 ${millis(last?.p95)}`),
    tile("p99", millis(last?.p99).split(" ")[0], millis(last?.p99).split(" ")[1] ?? "", "of the durations"),
    tile("In flight", count(recent.at(-1)?.in_flight ?? 0), "", aborted ? `${count(aborted)} ended early` : "requests now"));
}

/** @param {any} facts */
function attention(facts) {
  const served = facts.served;
  /** @type {[("bad" | "warn"), string, string, string][]} */
  const found = [];
  if (facts.phase === "starting") found.push(["warn", "The gateway waits for its first configuration", "/problems", ""]);
  if (facts.errors) found.push(["bad", plural(facts.errors, "error in the configuration", "errors in the configuration"), "/problems?search=error", "Some objects are not served as written."]);
  if (served?.upstreams_without_ready) found.push(["bad", plural(served.upstreams_without_ready, "upstream without a ready endpoint", "upstreams without a ready endpoint"), "/upstreams", "Requests for them receive 503."]);
  if (served?.certificates_expiring) found.push(["warn", plural(served.certificates_expiring, "certificate ends soon or has ended", "certificates end soon or have ended"), "/certificates", "Less than 21 days are left."]);
  if (facts.warnings) found.push(["warn", plural(facts.warnings, "warning"), "/problems?search=warning", ""]);
  if (!found.length) return h("div", { class: "row-flex" }, badge("All good", "good"), h("span", { class: "muted" }, "No errors, no warnings, every upstream has a ready endpoint."));
  return h("ul", { class: "list" }, found.map(([tone, text, href, note]) => h("li", null, h("span", { class: "when" }, badge(tone === "bad" ? "error" : "warning", tone)), h("div", { class: "grow" }, link(href, text), note ? h("div", { class: "muted small" }, note) : null))));
}

/** @param {any} facts */
function inventory(facts) {
  const served = facts.served;
  if (!served) return h("p", { class: "muted" }, "There is no configuration yet.");
  const rows = [
    ["/routes", "Routes", count(served.routes), `${plural(served.hosts, "host")}`],
    ["/upstreams", "Endpoints", `${count(served.endpoints_ready)}/${count(served.endpoints)}`, `ready, in ${plural(served.upstreams, "upstream")}`],
    ["/apis", "APIs", count(facts.apis), "with OpenAPI documents"],
    ["/consumers", "Consumers", count(served.consumers), "known callers"],
  ];
  return h("div", { class: "tiles" }, rows.map(([href, what, value, note]) => h("a", { class: "tile", href, "data-link": true }, h("span", { class: "what" }, what), h("span", { class: "value" }, value), h("span", { class: "note" }, note))));
}

/** What a mark shows without an audit trail. @param {Mark} mark */
function changedObjects(mark) {
  const others = mark.others + Math.max(0, mark.objects.length - SHOWN);
  return [
    ...(mark.objects.length
      ? mark.objects.slice(0, SHOWN).flatMap((name, at) => [at ? ", " : "", link(`/routes?${query({ search: name })}`, name)])
      : [markText(mark, null).join(", ")]),
    others ? h("span", { class: "muted" }, ` and ${others} more`) : null,
  ];
}

/** What a mark shows with an audit trail. @param {Mark} mark @param {Entry[]} entries */
function recordedChanges(mark, entries) {
  const [from, to] = around(mark.time);
  const others = entries.length - SHOWN;
  return [
    ...entries.slice(0, SHOWN).map((of) => h("div", null, sentence(of))),
    link(`/audit?${query({ from, to })}`, others > 0 ? `${others} more, in Audit` : "Show in Audit"),
  ];
}

/** @param {Mark[]} marks @param {number} now @param {Entry[] | null} trail */
function changes(marks, now, trail) {
  if (!marks.length) return h("p", { class: "muted" }, "No change in the last hour.");
  return h("ul", { class: "list" }, marks.slice(-8).reverse().map((mark) => {
    const entries = near(trail ?? [], mark.time);
    return h("li", null,
      h("span", { class: "muted when", title: clock(mark.time) }, ago(mark.time, now)),
      h("div", { class: "grow break" }, entries.length ? recordedChanges(mark, entries) : changedObjects(mark)));
  }));
}

/** @type {import("../main.js").Page["show"]} */
export async function show(root, { signal, url, remember }) {
  const first = await read("overview", {}, signal);
  /** @type {Point[]} */
  let points = first.points;
  /** @type {Mark[]} */
  let marks = first.marks;
  /** The audit trail of the last hour; `null` if there is none, or it is unavailable. @type {Entry[] | null} */
  let trail = marks.length ? await recent(signal).catch(() => null) : null;
  let minutes = Number(url.searchParams.get("minutes")) || 60;

  const top = h("div");
  const rates = chart("Requests per second");
  const latency = chart("Duration of requests");
  const attentionPlace = h("div");
  const inventoryPlace = h("div");
  const changesPlace = h("div");
  const planes = h("div");

  /** @param {any} facts */
  function draw(facts) {
    const begin = facts.now - minutes * 60;
    const visible = points.filter((point) => point.time >= begin);
    // A gateway that started a moment ago has no points before.
    const span = /** @type {[number, number]} */ ([Math.max(begin, Math.min(visible[0]?.time ?? begin, facts.now - 120)), facts.now]);
    const times = visible.map((point) => point.time);
    const shownMarks = marks.map((mark) => ({ time: mark.time, text: markText(mark, trail) }));
    const gap = facts.interval * 3;
    if (facts.serves) {
      fill(top, tiles(points));
      rates.draw({
        times, span, gap, marks: shownMarks, format: short,
        series: [
          { name: "all requests", style: 1, area: true, values: visible.map((point) => point.requests / point.seconds) },
          { name: "4xx and no route", style: 2, values: visible.map((point) => (point.responses[3] + point.unrouted) / point.seconds) },
          { name: "5xx and ended early", style: 3, values: visible.map((point) => (point.responses[4] + point.aborted) / point.seconds) },
        ],
      });
      latency.draw({
        times, span, gap, marks: shownMarks, format: millis,
        series: [
          { name: "p50", style: 5, values: visible.map((point) => point.p50) },
          { name: "p95", style: 2, values: visible.map((point) => point.p95) },
          { name: "p99", style: 4, values: visible.map((point) => point.p99) },
        ],
      });
    } else {
      fill(top, notice("info", "This process is a control plane: data planes serve the requests, and count them. ", link("/analytics", "Analytics"), " has the requests of all data planes."));
    }
    fill(attentionPlace, attention(facts));
    fill(inventoryPlace, inventory(facts));
    fill(changesPlace, changes(marks, facts.now, trail));
    const connected = facts.planes?.planes;
    fill(planes, Array.isArray(connected) ? h("div", { class: "card" }, h("h2", null, `Data planes (${connected.length})`),
      connected.length ? h("div", { class: "scroll-x", tabindex: 0, role: "region", "aria-label": "Data planes" }, h("table", { class: "plain" },
        h("thead", null, h("tr", null, ["Node", "Address", "Build", "Version", "Behind"].map((text) => h("th", { scope: "col" }, text)))),
        h("tbody", null, connected.slice(0, 200).map((plane) => h("tr", null, h("td", null, plane.node), h("td", { class: "mono" }, plane.address), h("td", null, plane.build), h("td", null, count(plane.version)),
          h("td", null, plane.behind_seconds > 1 ? badge(`${short(plane.behind_seconds)} s`, "warn") : badge("current", "good")))))))
        : empty("upstreams", "No data plane is connected")) : null);
  }

  root.append(
    h("div", { class: "page-head" }, h("h1", null, "Overview"), h("span", { class: "grow" }),
      segmented("Time", [["5", "5 min"], ["15", "15 min"], ["60", "1 h"]], String(minutes), (value) => {
        minutes = Number(value);
        remember({ minutes: value === "60" ? null : value });
        draw(last);
      })),
    top,
    first.serves ? h("div", { class: "grid" },
      h("section", { class: "card span-6" }, h("div", { class: "card-head" }, h("h2", null, "Requests per second"), h("span", { class: "muted small" }, h("span", { class: "mark-sign", "aria-hidden": "true" }, "▼"), " a change of the configuration")), rates.element),
      h("section", { class: "card span-6" }, h("div", { class: "card-head" }, h("h2", null, "Duration"), h("span", { class: "muted small" }, "percentiles of all requests")), latency.element)) : "",
    h("div", { class: "grid" },
      h("section", { class: "card span-6" }, h("h2", null, "Needs attention"), attentionPlace),
      h("section", { class: "card span-6" }, h("h2", null, "Recent changes"), changesPlace)),
    inventoryPlace,
    planes,
  );
  let last = first;
  draw(first);

  const timer = setInterval(async () => {
    if (document.hidden) return;
    try {
      const since = Math.max(points.at(-1)?.time ?? 0, 0);
      const next = await read("overview", { since }, signal);
      points = [...points, ...next.points].filter((point) => point.time > next.now - 3600);
      const known = new Set(marks.map((mark) => mark.time));
      marks = [...marks, ...next.marks.filter((/** @type {Mark} */ mark) => !known.has(mark.time))].filter((mark) => mark.time > next.now - 3600);
      const isNamed = (/** @type {Mark} */ mark) => near(trail ?? [], mark.time).length > 0;
      if (marks.some((mark) => mark.time > next.now - LATE && !isNamed(mark))) trail = await recent(signal).catch(() => trail);
      last = next;
      draw(next);
    } catch {
      // The state at the top tells that the gateway does not respond.
    }
  }, 5000);
  signal.addEventListener("abort", () => clearInterval(timer));
}
