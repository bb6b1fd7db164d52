/** Changes of objects: a dialog that asks, and a dialog that shows a new key once. */

import { h, copyButton, field, fill, notice, say } from "./dom.js";
import { Failure } from "./data.js";
import { icon } from "./icons.js";

/**
 * The session of the user.
 * @typedef {object} Session
 * @property {boolean} [login] whether the user must log in
 * @property {boolean} [protected]
 * @property {string | null} [user]
 * @property {string | null} [role]
 * @property {boolean} [changes] whether the user may change objects
 * @property {boolean} [needs_kubernetes_token]
 * @property {string[]} [consumers] the Consumers of a user of the portal
 * @property {boolean} [can_log_in]
 * @property {{name: string, url: string} | null} [openid] the OpenID provider where users log in
 * @property {boolean} [tokens] whether users log in by a token
 * @property {string} [refused] why a user of the provider may not use the site
 */

/** @type {Session} */
export const session = {};

/** The user's token for the Kubernetes API. Only this page has it, until the page is closed. */
let kubernetesToken = "";

/**
 * @param {Record<string, string | number | null>} change
 * @returns {Promise<{key?: {name: string, value: string}}>}
 */
async function send(change) {
  /** @type {Record<string, string>} */
  const headers = { "content-type": "application/json", "x-sluicegate-change": "1" };
  if (session.needs_kubernetes_token) headers["x-kubernetes-token"] = kubernetesToken;
  let response;
  try {
    response = await fetch("/api/change", { method: "POST", headers, body: JSON.stringify(change) });
  } catch {
    throw new Failure("The gateway does not respond, or the token has a character that is not allowed.", 0);
  }
  const document = await response.json().catch(() => null);
  if (!response.ok) throw new Failure(document?.error ?? `The gateway responded with ${response.status}.`, response.status);
  return document;
}

/**
 * @param {string} title
 * @param {import("./dom.js").Child[]} children
 */
function modal(title, children) {
  const dialog = h("dialog", { class: "modal", "aria-label": title, onclose: () => dialog.remove() }, h("h2", { class: "break" }, title), ...children);
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

/**
 * Asks the user, and makes the change.
 * @param {object} options
 * @param {string} options.title
 * @param {import("./dom.js").Child} options.text what the change does
 * @param {string} options.button
 * @param {boolean} [options.isGrave] whether callers may lose access
 * @param {string} [options.keep] the text of the button that changes nothing
 * @param {[string, HTMLInputElement | HTMLSelectElement][]} [options.fields]
 * @param {() => Record<string, string | number | null>} options.change
 * @param {() => void} options.done
 */
export function ask({ title, text, button, isGrave = false, keep = "Cancel", fields = [], change, done }) {
  const message = h("div", { "aria-live": "polite" });
  const token = session.needs_kubernetes_token
    ? h("input", { class: "input", type: "password", autocomplete: "off", required: true, value: kubernetesToken })
    : null;
  const confirm = h("button", { type: "submit", class: `button ${isGrave ? "danger" : "primary"}` }, button);
  const form = h("form", {
    class: "stack",
    onsubmit: async (/** @type {Event} */ event) => {
      event.preventDefault();
      confirm.disabled = true;
      if (token) kubernetesToken = token.value.trim();
      try {
        const { key } = await send(change());
        dialog.close();
        document.querySelector("dialog.drawer")?.remove();
        if (key) showKey(key, done);
        else say("Done");
        // The gateway reads the object again first.
        setTimeout(done, 600);
      } catch (error) {
        fill(message, notice("bad", /** @type {Error} */ (error).message));
      }
      confirm.disabled = false;
    },
  }, h("p", { class: "muted" }, text), fields.map(([label, control]) => field(label, control)),
  token ? h("div", { class: "stack tight" }, field("Your Kubernetes token", token), h("p", { class: "muted small" }, "The API server decides whether you may make the change. Only this page keeps the token, until you close or reload the page. Get a token: ", h("code", null, "kubectl create token NAME"))) : null,
  message, h("div", { class: "row-flex" }, confirm, h("button", { type: "button", class: "button", onclick: () => dialog.close() }, keep)));
  const dialog = modal(title, [form]);
}

/**
 * Shows a new key. The server does not have it any more.
 * @param {{name: string, value: string}} key
 * @param {() => void} done
 */
function showKey(key, done) {
  const dialog = modal(`The key ${key.name}`, [
    h("div", { class: "stack" },
      notice("warn", "Copy the key now. Nothing stores the key, so it cannot be shown again."),
      h("pre", { class: "block wrap", tabindex: 0, "aria-label": "Key", id: "new-key" }, key.value),
      h("div", { class: "row-flex" }, copyButton(() => key.value), h("button", { type: "button", class: "button primary", onclick: () => dialog.close() }, icon("good", 16), "I have the key"))),
  ]);
  dialog.addEventListener("close", done);
}

/* The changes of keys, which both sites have. */

/** @type {[string, number | null][]} */
const VALIDITY = [["30 days", 720], ["90 days", 2160], ["1 year", 8760], ["no end", null]];

/** @type {[string, number][]} */
const OVERLAP = [["none: the old key ends at once", 0], ["1 hour", 1], ["1 day", 24], ["7 days", 168], ["30 days", 720]];

/** @param {[string, number | null][]} options @param {number} chosen */
function choice(options, chosen) {
  const select = h("select", null, options.map(([text], at) => h("option", { value: at }, text)));
  select.value = String(chosen);
  return { select, value: () => options[Number(select.value)][1] };
}

/**
 * @param {HTMLInputElement | HTMLSelectElement} consumer the control with `namespace/name` of the Consumer
 * @param {() => void} done
 */
export function issueKey(consumer, done) {
  const name = h("input", { class: "input", maxlength: 63, autocomplete: "off", spellcheck: "false", placeholder: "chosen by the gateway" });
  const valid = choice(VALIDITY, 1);
  ask({
    title: "Issue a key", text: "The Consumer can call with the new key at once. The object stores only a hash of the key.", button: "Issue the key",
    fields: [["Consumer (namespace/name)", consumer], ["Name of the key", name], ["Valid for", valid.select]],
    change: () => ({ change: "issue", consumer: consumer.value.trim(), key: name.value.trim() || null, valid_hours: valid.value() }), done,
  });
}

/**
 * The buttons for a key with a name.
 * @param {{namespace: string, consumer: string, name: string | null, state: string}} key
 * @param {() => void} done
 */
export function keyButtons(key, done) {
  if (!key.name) return h("p", { class: "muted small" }, "The key has no name. Give its entry in the Consumer a name to change it here.");
  const named = { consumer: `${key.namespace}/${key.consumer}`, key: key.name };
  const rotate = () => {
    const [overlap, valid] = [choice(OVERLAP, 2), choice(VALIDITY, 1)];
    ask({
      title: `Rotate ${key.name}`, text: "Issues a new key. The old key stays valid for the overlap, so that you can replace it without failed requests.", button: "Rotate the key",
      fields: [["Overlap", overlap.select], ["New key valid for", valid.select]],
      change: () => ({ change: "rotate", ...named, overlap_hours: overlap.value(), valid_hours: valid.value() }), done,
    });
  };
  const revoke = () => ask({ title: `Revoke ${key.name}`, text: "Requests with the key receive 401 at once. You cannot undo this.", button: "Revoke the key", isGrave: true, change: () => ({ change: "revoke", ...named }), done });
  const remove = () => ask({ title: `Remove ${key.name}`, text: "Removes the entry of the key, which is not valid any more. A Consumer has at most 16 entries.", button: "Remove the entry", isGrave: true, change: () => ({ change: "remove", ...named }), done });
  return h("div", { class: "row-flex" }, key.state === "Valid"
    ? [h("button", { type: "button", class: "button", onclick: rotate }, icon("rotate", 16), "Rotate"), h("button", { type: "button", class: "button danger", onclick: revoke }, "Revoke")]
    : [h("button", { type: "button", class: "button danger", onclick: remove }, "Remove the entry")]);
}

/**
 * The state of a key.
 * @param {string} state
 * @returns {"good" | "warn" | "bad"}
 */
export function keyTone(state) {
  return state === "Valid" ? "good" : state === "Expired" ? "warn" : "bad";
}
