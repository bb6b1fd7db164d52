/** The documents of the server. */

/** The reason why a document is not there. */
export class Failure extends Error {
  /**
   * @param {string} message
   * @param {number} status 0 without a response
   */
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

/** @type {(() => void) | null} */
let onLocked = null;

/**
 * Calls a function when the session has ended.
 * @param {() => void} action
 */
export function whenLocked(action) {
  onLocked = action;
}

/**
 * @param {Record<string, string | number | string[] | null | undefined>} params
 */
export function query(params) {
  const text = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) {
    if (Array.isArray(value)) value.forEach((each) => text.append(name, each));
    else if (value !== null && value !== undefined && value !== "") text.append(name, String(value));
  }
  return text.toString();
}

/**
 * Reads a document.
 * @param {string} name
 * @param {Record<string, string | number | string[] | null | undefined>} [params]
 * @param {AbortSignal} [signal]
 * @returns {Promise<any>}
 */
export async function read(name, params = {}, signal) {
  const { text, response } = await load(name, params, signal);
  if (response.status === 204) return null;
  let document;
  try {
    document = JSON.parse(text);
  } catch {
    // A message for people, or a document that was cut.
    throw new Failure(text.trim().slice(0, 500) || `The gateway responded with ${response.status}.`, response.status);
  }
  if (!response.ok) throw new Failure(document?.error ?? `The gateway responded with ${response.status}.`, response.status);
  return document;
}

/**
 * Reads a document of JSON lines; `null` if the gateway does not have the document.
 * @param {string} name
 * @param {Record<string, string | number | string[] | null | undefined>} [params]
 * @param {AbortSignal} [signal]
 * @returns {Promise<any[] | null>}
 */
export async function lines(name, params = {}, signal) {
  const { text, response } = await load(name, params, signal);
  if (!response.ok) throw new Failure(text.trim().slice(0, 500) || `The gateway responded with ${response.status}.`, response.status);
  const all = text.split("\n").filter(Boolean).map((line) => JSON.parse(line));
  return all[0]?.off ? null : all;
}

/**
 * @param {string} name
 * @param {Record<string, string | number | string[] | null | undefined>} params
 * @param {AbortSignal} [signal]
 */
async function load(name, params, signal) {
  const asked = query(params);
  let response;
  try {
    response = await fetch(`/api/${name}${asked ? `?${asked}` : ""}`, { signal, headers: { accept: "application/json" } });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Failure("The gateway does not respond. It may have ended, or the connection to it.", 0);
  }
  if (response.status === 401) {
    onLocked?.();
    throw new Failure("The session has ended. Log in again.", 401);
  }
  return { text: await response.text(), response };
}

/**
 * Logs in.
 * @param {string} token
 */
export async function login(token) {
  let response;
  try {
    response = await fetch("/api/login", { headers: { authorization: `Bearer ${token}` } });
  } catch {
    throw new Failure("The gateway does not respond, or the token has a character that is not allowed.", 0);
  }
  if (response.ok) return;
  const document = await response.json().catch(() => null);
  throw new Failure(document?.error ?? `The gateway responded with ${response.status}.`, response.status);
}

/**
 * Logs out, also at the OpenID provider, and opens a page without documents of the user.
 * @param {string} path the page after a logout that the provider has no part in
 */
export async function logout(path) {
  const response = await fetch("/api/logout");
  const document = response.status === 200 ? await response.json().catch(() => null) : null;
  location.assign(document?.url ?? path);
}

/**
 * A list of the server, read in parts when they are needed.
 * @template T
 */
export class List {
  /** The items of one part. */
  static PART = 200;

  /**
   * @param {string} name
   * @param {string} search
   */
  constructor(name, search) {
    this.name = name;
    this.search = search;
    /** @type {Map<number, T[]>} */
    this.parts = new Map();
    /** @type {Set<number>} */
    this.asked = new Set();
    /** @type {number | null} */
    this.total = null;
  }

  /**
   * @param {number} index
   * @returns {T | undefined}
   */
  at(index) {
    return this.parts.get(Math.floor(index / List.PART))?.[index % List.PART];
  }

  /**
   * Reads the part with an index, if it is not read yet.
   * @param {number} index
   * @param {AbortSignal} signal
   * @param {boolean} [again]
   * @returns {Promise<boolean>} whether anything is new
   */
  async need(index, signal, again = false) {
    const part = Math.floor(index / List.PART);
    if (this.asked.has(part) || this.parts.has(part) && !again) return false;
    this.asked.add(part);
    try {
      const found = await read(this.name, { limit: List.PART, after: part * List.PART, search: this.search }, signal);
      this.parts.set(part, found.items);
      this.total = found.total;
      return true;
    } finally {
      this.asked.delete(part);
    }
  }
}
