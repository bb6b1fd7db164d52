/** Sends a request for an operation from the browser to the API itself. The server of the page takes no part. */

import { h, copyButton, field, fill, notice } from "./dom.js";
import { icon } from "./icons.js";
import { example, exampleOf, resolve, text } from "./openapi.js";
import { millis, size } from "./format.js";

/** @typedef {import("./openapi.js").Json} Json */

/**
 * The part of an API that requests need.
 * @typedef {object} TriedApi
 * @property {{name: string, hosts: string[], base_path: string, https: boolean}[]} environments
 */

/** The part of a response that is shown, in characters. */
const SHOWN = 100_000;

/** Headers that browsers do not let pages set. */
const FORBIDDEN = ["cookie", "host", "content-length", "connection", "origin", "referer", "user-agent"];

/**
 * @param {Json} document
 * @param {import("./openapi.js").Operation} operation
 * @param {TriedApi} api
 */
export function tryIt(document, operation, api) {
  const environments = api.environments.flatMap((of) => of.hosts.map((host) => ({ ...of, host })));
  const title = h("h3", null, "Try it");
  if (!environments.length) return h("div", { class: "tryit" }, title, h("p", { class: "muted" }, "The API has no environment with a host."));

  const environment = h("select", null, environments.map((of, at) => h("option", { value: at }, `${of.name}: ${of.host}`)));
  const origin = h("input", { class: "input", spellcheck: "false", autocomplete: "off" });
  const setOrigin = () => {
    const of = environments[Number(environment.value)];
    const scheme = of.https ? "https" : "http";
    const known = sessionStorage.getItem(`origin ${of.host}`);
    origin.value = known ?? `${scheme}://${of.host.replace("*.", "www.")}`;
  };
  environment.addEventListener("change", setOrigin);
  setOrigin();

  const inputs = operation.parameters.filter((of) => ["path", "query", "header"].includes(of.in) && !FORBIDDEN.includes(String(of.name).toLowerCase())).map((parameter) => {
    const made = exampleOf(document, parameter);
    const value = parameter.required || parameter.example !== undefined ? made : "";
    const input = h("input", { class: "input", value: value === null || value === undefined ? "" : typeof value === "object" ? JSON.stringify(value) : String(value), spellcheck: "false", autocomplete: "off" });
    input.id = `try-${++inputsMade}`;
    return { parameter, input };
  });
  const headers = h("textarea", { rows: 2, placeholder: "Authorization: Bearer …", spellcheck: "false" });
  const media = Object.entries(operation.body?.content ?? {});
  const [mediaType, content] = media.find(([of]) => of.includes("json")) ?? media[0] ?? ["", null];
  const body = media.length ? h("textarea", { rows: 7, spellcheck: "false" }) : null;
  if (body && content) {
    const made = exampleOf(document, content) ?? example(document, resolve(document, content.schema), 0);
    body.value = made === undefined || made === null ? "" : typeof made === "string" ? made : JSON.stringify(made, null, 2);
  }
  const result = h("div", { class: "stack tight", "aria-live": "polite" });

  /** @returns {{url: string, headers: [string, string][]}} */
  function request() {
    const of = environments[Number(environment.value)];
    let path = operation.path;
    const query = new URLSearchParams();
    /** @type {[string, string][]} */
    const lines = [];
    for (const { parameter, input } of inputs) {
      const { value } = input;
      if (parameter.in === "path") path = path.replace(`{${parameter.name}}`, encodeURIComponent(value));
      else if (value === "") continue;
      else if (parameter.in === "query") query.append(parameter.name, value);
      else lines.push([parameter.name, value]);
    }
    for (const line of headers.value.split("\n")) {
      const at = line.indexOf(":");
      if (at > 0) lines.push([line.slice(0, at).trim(), line.slice(at + 1).trim()]);
    }
    if (body && !lines.some(([name]) => name.toLowerCase() === "content-type")) lines.push(["Content-Type", mediaType]);
    const asked = query.toString();
    return { url: `${origin.value.replace(/\/+$/, "")}${of.base_path}${path}${asked ? `?${asked}` : ""}`, headers: lines };
  }

  /** The same request for a terminal. */
  function curl() {
    const { url, headers: lines } = request();
    const quote = (/** @type {string} */ part) => `'${part.replaceAll("'", "'\\''")}'`;
    const parts = ["curl", "--include"];
    if (operation.method !== "GET") parts.push("--request", operation.method);
    lines.forEach(([name, value]) => parts.push("--header", quote(`${name}: ${value}`)));
    if (body) parts.push("--data-raw", quote(body.value));
    return [...parts, quote(url)].join(" ");
  }

  async function send() {
    let asked;
    try {
      asked = request();
      new URL(asked.url);
    } catch {
      fill(result, notice("bad", "The address is no URL. Write http://HOST or https://HOST."));
      return;
    }
    const of = environments[Number(environment.value)];
    sessionStorage.setItem(`origin ${of.host}`, origin.value);
    fill(result, h("p", { class: "muted" }, "Waiting for the response …"));
    const started = performance.now();
    try {
      const response = await fetch(asked.url, {
        method: operation.method, headers: asked.headers, body: body && !["GET", "HEAD"].includes(operation.method) ? body.value : undefined,
        mode: "cors", credentials: "omit", cache: "no-store", redirect: "follow",
      });
      const received = await response.text();
      const tone = response.ok ? "good" : response.status < 500 ? "warn" : "bad";
      let shown = received.slice(0, SHOWN);
      if (response.headers.get("content-type")?.includes("json")) {
        try {
          shown = JSON.stringify(JSON.parse(received), null, 2).slice(0, SHOWN);
        } catch {
          // The text is shown as it is.
        }
      }
      fill(result,
        notice(tone, h("strong", null, `${response.status} ${response.statusText}`), h("span", { class: "muted" }, `  ${millis(performance.now() - started)}, ${size(received.length)}`)),
        h("details", null, h("summary", null, "Headers that the browser shows"), h("pre", { class: "block wrap", tabindex: 0 }, [...response.headers].map(([name, value]) => `${name}: ${value}`).join("\n") || "none")),
        shown ? h("pre", { class: "block wrap", tabindex: 0, "aria-label": "Body" }, shown) : null);
    } catch (error) {
      fill(result, reasons(asked.url, of.host, error));
    }
  }

  return h("div", { class: "tryit" }, title,
    environments.length > 1 ? field("Environment", environment) : null,
    field("Address", origin),
    inputs.map(({ parameter, input }) => h("div", { class: "line" }, h("label", { for: input.id }, h("code", null, parameter.name), parameter.required ? h("span", { class: "required" }, " *") : null), input)),
    field("Headers, one in each line", headers),
    body ? field(`Body (${mediaType})`, body) : null,
    h("div", { class: "row-flex" },
      h("button", { type: "button", class: "button primary", onclick: send }, icon("send", 16), "Send"),
      copyButton(curl), h("span", { class: "muted small" }, "copies a curl command")),
    result);
}

let inputsMade = 0;

/**
 * Why the browser shows no response.
 * @param {string} url
 * @param {string} host
 * @param {unknown} error
 */
function reasons(url, host, error) {
  const target = new URL(url);
  const found = [];
  if (location.protocol === "https:" && target.protocol === "http:") found.push("This page uses HTTPS, and the address uses HTTP. Browsers block such requests: use https:// in the address.");
  const pattern = host.startsWith("*.") ? host.slice(1) : host;
  if (!(host.startsWith("*.") ? target.hostname.endsWith(pattern) : target.hostname === host)) {
    found.push(`This page sends requests only to the hosts of this API, and ${target.hostname} is none of them (connect-src of its content security policy).`);
  }
  found.push(h("span", null, "The API does not allow pages of ", h("code", null, location.origin), " to read its responses (CORS). To allow it, the owner of the API adds this to a SecurityPolicy of the Api: ",
    h("code", null, `cors: {allowOrigins: ["${location.origin}"]}`), ". Your clients in a terminal or on a server need no CORS."));
  found.push(`The name ${target.hostname} leads to another machine, or nothing listens at port ${target.port || (target.protocol === "https:" ? 443 : 80)}. Add the port of the gateway to the address, if it is not the default.`);
  if (target.protocol === "https:") found.push("The browser does not trust the certificate. Open the address in a tab to see the reason.");
  return h("div", { class: "stack tight" }, notice("bad", h("strong", null, "The browser shows no response. "), "Browsers do not tell pages the reason: ", h("code", null, text(error instanceof Error ? error.message : ""))),
    h("p", null, "Possible reasons:"), h("ul", { class: "prose" }, found.map((reason) => h("li", null, reason))));
}
