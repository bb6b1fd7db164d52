/** The document of an API for people: its operations, with requests from the browser. */

import { h, badge, empty, fill, link, methodBadge, notice, say, search } from "./dom.js";
import { plural } from "./format.js";
import { limits, list, operations, resolve, shape, text, typeOf, exampleOf, referenceName } from "./openapi.js";
import { tryIt } from "./tryit.js";

/** @typedef {import("./tryit.js").TriedApi} TriedApi */
/** @typedef {import("./openapi.js").Json} Json */
/** @typedef {import("./openapi.js").Operation} Operation */

/** Schemas are drawn to this depth at once; deeper parts are drawn when the user opens them. */
const DEPTH = 2;

/** At most this many operations are drawn at once. */
const DRAWN = 300;

/**
 * Text in paragraphs. Only code between backquotes and lists are formatted: no HTML of the document is used.
 * @param {string} written
 */
export function prose(written) {
  if (!written) return null;
  const inline = (/** @type {string} */ line) => line.split(/(`[^`]+`)/).map((part) => part.startsWith("`") && part.endsWith("`") && part.length > 2 ? h("code", null, part.slice(1, -1)) : part.replaceAll("**", ""));
  const blocks = written.slice(0, 20_000).split(/\n\s*\n/).map((block) => {
    const lines = block.trim().split("\n");
    if (lines.every((line) => /^\s*[-*] /.test(line))) return h("ul", null, lines.map((line) => h("li", null, inline(line.replace(/^\s*[-*] /, "")))));
    return h("p", null, inline(lines.map((line) => line.replace(/^#+\s*/, "")).join(" ")));
  });
  return h("div", { class: "prose" }, blocks);
}

/**
 * A schema as a tree.
 * @param {Json} document
 * @param {any} written
 * @param {number} depth
 * @returns {HTMLElement}
 */
function schemaTree(document, written, depth) {
  const { properties, required, items, variants, additional } = shape(document, written);
  const rows = properties.map(([name, of]) => property(document, name, of, required.has(name), depth));
  if (additional) rows.push(property(document, "(any name)", additional, false, depth));
  if (!rows.length && items !== undefined) return schemaTree(document, items, depth);
  variants.slice(0, 12).forEach((of, at) => rows.push(property(document, referenceName(of) || `variant ${at + 1}`, of, false, depth)));
  if (!rows.length) {
    const schema = resolve(document, written);
    return h("div", { class: "schema" }, h("div", null, h("span", { class: "type" }, typeOf(document, written)), limits(schema).length ? h("div", { class: "muted small" }, limits(schema).join("; ")) : null));
  }
  return h("div", { class: "schema" }, rows);
}

/**
 * @param {Json} document
 * @param {string} name
 * @param {any} written
 * @param {boolean} isRequired
 * @param {number} depth
 */
function property(document, name, written, isRequired, depth) {
  const schema = resolve(document, written) ?? {};
  const title = [h("span", { class: "name" }, name), " ", h("span", { class: "type" }, typeOf(document, written)), isRequired ? h("span", { class: "required" }, "  required") : null, schema.deprecated ? [" ", badge("deprecated", "warn")] : null].flat();
  const about = [text(schema.description).slice(0, 600), limits(schema).join("; ")].filter(Boolean);
  const notes = about.map((line) => h("div", { class: "muted small" }, line));
  const inner = shape(document, written);
  const ofItems = inner.items === undefined ? null : shape(document, inner.items);
  const hasInside = inner.properties.length || inner.variants.length || inner.additional || ofItems && (ofItems.properties.length || ofItems.variants.length);
  if (!hasInside) return h("div", null, title, notes);
  const details = h("details", null, h("summary", null, title), notes);
  const open = () => { if (!details.querySelector(":scope > .schema")) details.append(schemaTree(document, written, depth + 1)); };
  details.addEventListener("toggle", () => { if (details.open) open(); });
  if (depth < DEPTH - 1) {
    details.open = true;
    open();
  }
  return details;
}

/**
 * The contents of a body, by media type.
 * @param {Json} document
 * @param {Json | undefined} content
 */
function contents(document, content) {
  return Object.entries(content ?? {}).slice(0, 6).map(([mediaType, of]) => {
    const example = exampleOf(document, of);
    return h("div", { class: "stack tight" }, h("code", { class: "muted" }, mediaType),
      of?.schema === undefined ? null : schemaTree(document, of.schema, 0),
      example === undefined || example === null ? null : h("details", null, h("summary", { class: "muted" }, "Example"), h("pre", { class: "block", tabindex: 0 }, typeof example === "string" ? example : JSON.stringify(example, null, 2))));
  });
}

/**
 * @param {Json} document
 * @param {Operation} operation
 * @param {TriedApi} api
 */
function inside(document, operation, api) {
  const parameters = operation.parameters.length ? h("div", { class: "stack tight" }, h("h3", null, "Parameters"), h("div", { class: "scroll-x", tabindex: 0, role: "region", "aria-label": "Parameters" }, h("table", { class: "plain" },
    h("thead", null, h("tr", null, h("th", { scope: "col" }, "Name"), h("th", { scope: "col" }, "In"), h("th", { scope: "col" }, "Type"), h("th", { scope: "col" }, "Meaning"))),
    h("tbody", null, operation.parameters.map((parameter) => {
      const schema = resolve(document, parameter.schema) ?? {};
      const about = [text(parameter.description), limits(schema).join("; ")].filter(Boolean).join(" — ");
      return h("tr", null, h("td", null, h("code", null, parameter.name), parameter.required ? h("div", { class: "required" }, "required") : null), h("td", null, parameter.in), h("td", { class: "mono small" }, typeOf(document, parameter.schema)), h("td", null, about));
    }))))) : null;
  const body = operation.body ? h("div", { class: "stack tight" }, h("h3", null, "Body", operation.body.required ? h("span", { class: "required" }, "  required") : null), prose(text(operation.body.description)), contents(document, operation.body.content)) : null;
  const responses = operation.responses.length ? h("div", { class: "stack tight" }, h("h3", null, "Responses"), operation.responses.map(([status, of]) => {
    const tone = status.startsWith("2") ? "good" : status.startsWith("3") ? "info" : /^[45]/.test(status) ? "warn" : "";
    const parts = contents(document, of.content);
    const title = [badge(status, tone), " ", text(of.description)];
    return parts.length ? h("details", { class: "response" }, h("summary", null, title), h("div", { class: "stack tight" }, parts)) : h("div", { class: "response" }, title);
  })) : null;
  return h("div", { class: "inside" },
    h("div", { class: "stack" }, prose(operation.description), operation.security.length ? h("p", { class: "muted" }, `Authentication: ${operation.security.join(", ")}`) : null, parameters, body, responses),
    tryIt(document, operation, api));
}

/**
 * @param {Json} document
 * @param {Operation} operation
 * @param {TriedApi} api
 */
function operationCard(document, operation, api) {
  const details = h("details", { class: `operation${operation.deprecated ? " gone" : ""}`, id: `operation-${operation.id}` },
    h("summary", null, methodBadge(operation.method), h("span", { class: "path" }, operation.path), h("span", { class: "says" }, operation.summary), operation.deprecated ? badge("deprecated", "warn") : null));
  details.addEventListener("toggle", () => {
    if (details.open && details.children.length === 1) details.append(inside(document, operation, api));
  });
  return details;
}

/**
 * An API whose environments may have documents of their own.
 * @typedef {object} Documented
 * @property {{name: string, has_own_document: boolean}[]} environments
 */

/**
 * Links to the documents of an API, one for each environment. `null` if all environments have the same document.
 * @param {Documented} api
 * @param {string} shown the environment of the document that the page shows
 */
export function documentLinks({ environments }, shown) {
  if (environments.length < 2 || !environments.some((of) => of.has_own_document)) return null;
  return h("nav", { class: "segmented", "aria-label": "Environment of the document" }, environments.map(({ name }) => {
    const to = link(`?environment=${encodeURIComponent(name)}`, name);
    if (name === shown) to.setAttribute("aria-current", "true");
    return to;
  }));
}

/**
 * The API with the environments that have the document of `shown`, `shown` first: requests for the operations go only to them.
 * @template {Documented} T
 * @param {T} api
 * @param {string | null} shown
 * @returns {T}
 */
export function withDocumentOf(api, shown) {
  const first = api.environments.find((of) => of.name === shown);
  if (!first) return api;
  const others = first.has_own_document ? [] : api.environments.filter((of) => of !== first && !of.has_own_document);
  return { ...api, environments: [first, ...others] };
}

/**
 * Shows the operations of a document.
 * @param {HTMLElement} root
 * @param {Json} document
 * @param {TriedApi} api
 * @param {import("./frame.js").Context} context
 */
export function showOperations(root, document, api, { url, remember }) {
  const all = operations(document);
  const place = h("div", { class: "stack" });
  /** @param {string} words */
  const draw = (words) => {
    const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
    const found = all.filter((of) => {
      const about = [of.id, of.method, of.path, of.summary, ...of.tags].join(" ").toLowerCase();
      return wanted.every((word) => about.includes(word));
    });
    /** @type {Map<string, Operation[]>} */
    const tags = new Map();
    for (const of of found.slice(0, DRAWN)) {
      const tag = of.tags[0] ?? "";
      tags.set(tag, [...tags.get(tag) ?? [], of]);
    }
    const texts = new Map(list(document.tags).map((tag) => [tag?.name, text(tag?.description)]));
    fill(place, [...tags].map(([tag, of]) => h("section", { class: "stack tight" },
      tag || tags.size > 1 ? h("h2", null, tag || "Other operations") : null, tag ? prose(texts.get(tag) ?? "") : null, of.map((operation) => operationCard(document, operation, api)))),
    found.length ? null : h("div", { class: "card" }, empty("search", "No operation matches")),
    found.length > DRAWN ? notice("info", `${plural(found.length - DRAWN, "more operation")}: search for an operation.`) : null);
    if (words) say(plural(found.length, "operation"));
  };
  const words = url.searchParams.get("search") ?? "";
  root.append(h("div", { class: "page-head" }, h("h2", null, plural(all.length, "operation")), h("span", { class: "grow" }), search("Search operations", words, (next) => {
    remember({ search: next });
    draw(next);
  })), place);
  draw(words);
  const first = place.querySelector("details.operation");
  if (first instanceof HTMLDetailsElement && all.length <= 3) first.open = true;
}
