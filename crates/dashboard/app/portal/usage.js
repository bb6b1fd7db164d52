/** The usage of the user's Consumers. */

import { h, empty, field, fill, notice, pageHead, segmented } from "../lib/dom.js";
import { chart } from "../lib/chart.js";
import { read } from "../lib/data.js";
import { count, millis, percent, short } from "../lib/format.js";
import { session } from "../lib/change.js";

/** @typedef {{requests: number, errors: number, limited: number, status: Record<string, number>, latency_ms: {p50: number | null, p95: number | null}}} Values */
/** @typedef {{of: {api: string}, total: Values, points?: (Values & {time: string})[]}} Group */

/** @type {["1h" | "24h" | "7d" | "30d", string][]} */
const WINDOWS = [["1h", "1 hour"], ["24h", "1 day"], ["7d", "7 days"], ["30d", "30 days"]];

/** @type {import("../lib/frame.js").Page["show"]} */
export async function show(root, { url, signal, remember }) {
  const consumers = session.consumers ?? [];
  if (!consumers.length) {
    root.append(pageHead("My usage"), h("div", { class: "card" }, empty("analytics", "You have no Consumer yet", "Ask the operator of the APIs.")));
    return;
  }
  const result = h("div", { class: "stack" });
  const drawing = chart("Requests by API");
  let since = WINDOWS.find(([value]) => value === url.searchParams.get("since"))?.[0] ?? "24h";
  const consumer = h("select", { onchange: () => load() }, consumers.map((name) => h("option", { value: name }, name)));
  const asked = url.searchParams.get("consumer");
  if (asked && consumers.includes(asked)) consumer.value = asked;

  async function load() {
    remember({ since, consumer: consumer.value });
    try {
      const found = await read("usage", { consumer: consumer.value, since }, signal);
      if (found?.off) fill(result, h("div", { class: "card" }, empty("analytics", "The gateway stores no analytics", "The page of your subscriptions has the quotas.")));
      else draw(found);
    } catch (error) {
      if (!signal.aborted) fill(result, notice("bad", /** @type {Error} */ (error).message));
    }
  }

  /** @param {{groups: Group[], from: string, to: string, step?: number}} found */
  function draw({ groups, from, to, step }) {
    if (!groups.length) {
      fill(result, h("div", { class: "card" }, empty("analytics", "No requests in this window")));
      return;
    }
    const top = groups.slice(0, 6);
    const times = [...new Set(top.flatMap((group) => (group.points ?? []).map((point) => Date.parse(point.time) / 1000)))].sort((a, b) => a - b);
    drawing.draw({
      times, span: [Date.parse(from) / 1000, Date.parse(to) / 1000], format: (value) => `${short(value)}/s`,
      series: top.map((group, at) => {
        const values = new Map((group.points ?? []).map((point) => [Date.parse(point.time) / 1000, point.requests / (step || 60)]));
        return { name: group.of.api || "other routes", style: at + 1, area: top.length === 1, values: times.map((time) => values.get(time) ?? 0) };
      }),
    });
    const sum = (/** @type {(values: Values) => number} */ of) => groups.reduce((all, { total }) => all + of(total), 0);
    const requests = sum((of) => of.requests);
    const tiles = [["Requests", count(requests)], ["Errors (5xx)", percent(sum((of) => of.errors), requests)], ["Rejected requests (4xx)", count(sum((of) => of.status["4xx"] ?? 0))], ["Beyond limits", count(sum((of) => of.limited))]];
    fill(result,
      h("dl", { class: "tiles" }, tiles.map(([name, value]) => h("div", { class: "tile" }, h("dt", null, name), h("dd", { class: "value" }, value)))),
      h("section", { class: "card" }, h("h2", null, "Requests"), drawing.element),
      h("section", { class: "card" }, h("div", { class: "scroll-x", tabindex: 0, role: "region", "aria-label": "By API" }, h("table", { class: "plain" },
        h("thead", null, h("tr", null, h("th", { scope: "col" }, "API"), ["Requests", "Errors", "Beyond limits", "p50", "p95"].map((name) => h("th", { scope: "col", class: "end" }, name)))),
        h("tbody", null, groups.map(({ of, total }) => h("tr", null, h("td", null, of.api || h("span", { class: "muted" }, "other routes")),
          [count(total.requests), percent(total.errors, total.requests), count(total.limited), millis(total.latency_ms?.p50), millis(total.latency_ms?.p95)].map((text) => h("td", { class: "end" }, text)))))))));
  }

  root.append(pageHead("My usage"), h("div", { class: "card row-flex analytics-form" }, field("Consumer", consumer),
    segmented("Window", WINDOWS, since, (value) => { since = value; load(); })), result);
  await load();
}
