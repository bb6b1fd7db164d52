/** The audit trail: who changed which object when. */

import { h, badge, drawer, empty, facts, field, fill, notice, pageHead } from "../lib/dom.js";
import { icon } from "../lib/icons.js";
import { lines, query } from "../lib/data.js";
import { ago, clock } from "../lib/format.js";
import { actor, object } from "../lib/trail.js";

/** The entries of one part. */
const PART = 100;

/** @type {[string, string][]} */
const WINDOWS = [["1h", "1 h"], ["24h", "1 day"], ["7d", "7 days"], ["30d", "30 days"], ["365d", "1 year"], ["", "all"]];

/** @typedef {import("../lib/trail.js").Entry} Entry */

/** @param {Entry} of */
function operation(of) {
  const tone = of.operation === "created" ? "good" : of.operation === "deleted" ? "bad" : of.operation === "changed" ? "info" : "";
  return badge(of.operation, tone);
}

/** @param {any} value */
function shown(value) {
  return value === undefined ? h("span", { class: "muted" }, "none") : h("code", { class: "break" }, typeof value === "string" ? value : JSON.stringify(value));
}

/** @param {Entry} of */
function meaning(of) {
  const fields = (of.changes ?? []).map((change) => change.field);
  const text = of.summary || (of.operation === "changed" ? fields.join(", ") : "");
  return of.applied === false ? `not applied: error at ${of.fault}. ${text}` : text;
}

/** @param {Entry} of */
function open(of) {
  const changes = of.changes ?? [];
  drawer(object(of), operation(of), [
    of.applied === false ? notice("warn", `The gateway does not serve this version, because the field ${of.fault} has an error. The last valid version stays in service.`) : null,
    of.summary ? h("p", null, of.summary) : null,
    facts([
      ["Time", `${of.time} (${ago(Date.parse(of.time) / 1000)})`],
      ["Actor", actor(of) || "unknown"],
      ["Groups", of.actor?.groups?.length ? of.actor.groups.join(", ") : null],
      ["Manifest", of.manifest ? h("code", { class: "break" }, of.manifest.line ? `${of.manifest.file}:${of.manifest.line}` : of.manifest.file) : null],
      ["UID", of.uid ? h("code", null, of.uid) : null],
      ["Entry", h("code", { class: "break" }, `${of.number}:${of.hash}`)],
    ]),
    changes.length ? h("div", { class: "scroll-x", tabindex: 0, role: "region", "aria-label": "Changed fields" }, h("table", { class: "plain" },
      h("thead", null, h("tr", null, ["Field", "Old value", "New value"].map((text) => h("th", { scope: "col" }, text)))),
      h("tbody", null, changes.map((change) => h("tr", null,
        h("td", null, h("code", { class: "break" }, change.field)),
        change.secret
          ? [h("td", null, h("span", { class: "muted" }, "secret")), h("td", null, change.secret)]
          : [h("td", null, shown(change.old)), h("td", null, shown(change.new))]))))) : null,
    of.more_changes ? h("p", { class: "muted" }, `and ${of.more_changes} more fields`) : null,
  ]);
}

/**
 * The time in an address.
 * @param {URL} url
 * @returns {[number, number] | null}
 */
function spanOf(url) {
  const [from, to] = ["from", "to"].map((name) => Number.parseInt(url.searchParams.get(name) ?? "", 10));
  return from >= 0 && to > from ? [from, to] : null;
}

/** @type {import("../main.js").Page["show"]} */
export async function show(root, { url, signal, remember }) {
  const names = ["kind", "namespace", "name", "actor"];
  /** @type {Record<string, string>} */
  const filters = Object.fromEntries(names.map((name) => [name, url.searchParams.get(name) ?? ""]));
  /** A time of some seconds, to which another page links. @type {[number, number] | null} */
  let span = spanOf(url);
  let since = WINDOWS.some(([value]) => value === url.searchParams.get("since")) ? url.searchParams.get("since") ?? "7d" : "7d";
  /** @type {Entry[]} */
  let entries = [];

  const result = h("div", { class: "stack" });
  const spanPlace = h("div");
  const csv = h("a", { class: "button", download: "audit.csv" }, icon("download", 16), "CSV");

  /** @param {boolean} more */
  async function load(more) {
    const time = span ? { from: span[0], to: span[1] } : { since };
    const params = { ...filters, ...time, limit: PART, before: more ? entries[entries.length - 1]?.number : null };
    if (!more) remember({ ...Object.fromEntries(names.map((name) => [name, filters[name] || null])), since: span || since === "7d" ? null : since, from: span && String(span[0]), to: span && String(span[1]) });
    csv.href = `/api/audit?${query({ ...filters, ...time, limit: 1000, format: "csv" })}`;
    fill(spanPlace, span ? notice("info", `Only changes from ${clock(span[0])} to ${clock(span[1])}. `, h("button", { type: "button", class: "as-link", onclick: () => { span = null; load(false); } }, "Show other changes")) : null);
    try {
      const part = await lines("audit", params, signal);
      if (part === null) {
        fill(root, pageHead("Audit"), h("div", { class: "card" }, empty("audit", "The audit trail is off",
          "Start this gateway with --audit and --analytics-database to record who changes which object.")));
        return;
      }
      entries = more ? [...entries, ...part] : part;
      draw(part.length === PART);
    } catch (error) {
      if (!signal.aborted) fill(result, notice("bad", /** @type {Error} */ (error).message));
    }
  }

  /** @param {boolean} hasMore */
  function draw(hasMore) {
    if (!entries.length) {
      fill(result, h("div", { class: "card" }, empty("audit", "No changes", names.some((name) => filters[name]) ? "Remove a filter, or choose a longer window." : "Choose a longer window.")));
      return;
    }
    fill(result, h("section", { class: "card" }, h("div", { class: "scroll-x", tabindex: 0, role: "region", "aria-label": "Changes" }, h("table", { class: "plain" },
      h("thead", null, h("tr", null, ["Time", "Actor", "Operation", "Object", "Change"].map((text) => h("th", { scope: "col" }, text)))),
      h("tbody", null, entries.map((of) => h("tr", null,
        h("td", { title: of.time }, of.time.slice(0, 19).replace("T", " ")),
        h("td", null, actor(of) || h("span", { class: "muted" }, "unknown")),
        h("td", null, operation(of)),
        h("td", null, h("button", { type: "button", class: "as-link", onclick: () => open(of) }, object(of))),
        h("td", { class: "break" }, meaning(of))))))),
      hasMore ? h("button", { type: "button", class: "button", onclick: () => load(true) }, "Show older changes") : null));
  }

  const window = h("select", { onchange: () => { span = null; since = window.value; load(false); } }, WINDOWS.map(([value, text]) => h("option", { value }, text)));
  window.value = since;
  const inputs = names.map((name) => {
    const input = h("input", { class: "input", spellcheck: "false", autocomplete: "off", "data-search": name === "name" });
    input.value = filters[name];
    return input;
  });
  const form = h("form", {
    class: "card row-flex analytics-form",
    onsubmit: (/** @type {Event} */ event) => {
      event.preventDefault();
      inputs.forEach((input, at) => { filters[names[at]] = input.value.trim(); });
      load(false);
    },
  }, field("Window", window), inputs.map((input, at) => field(["Kind", "Namespace", "Name", "Actor"][at], input, "grow")),
  h("button", { class: "button", type: "submit" }, "Filter"), csv);

  root.append(pageHead("Audit"), form, spanPlace, result);
  await load(false);
}
