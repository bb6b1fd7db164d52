/** OpenAPI documents for people: references, operations, examples. */

/** @typedef {Record<string, any>} Json */

const METHODS = ["get", "put", "post", "delete", "options", "head", "patch", "trace"];

/**
 * The value behind a reference inside of the document, through at most 16 references.
 * @param {Json} document
 * @param {any} value
 * @returns {any}
 */
export function resolve(document, value) {
  let at = value;
  for (let hops = 0; hops < 16 && at && typeof at === "object" && typeof at.$ref === "string"; hops += 1) {
    if (!at.$ref.startsWith("#/")) return at;
    let found = /** @type {any} */ (document);
    for (const step of at.$ref.slice(2).split("/")) {
      const name = decodeURIComponent(step.replaceAll("~1", "/").replaceAll("~0", "~"));
      found = found && Object.hasOwn(found, name) ? found[name] : undefined;
    }
    at = found;
  }
  return at;
}

/**
 * The last part of a reference, which is the name of a schema.
 * @param {any} value
 */
export function referenceName(value) {
  return typeof value?.$ref === "string" ? value.$ref.split("/").pop() ?? "" : "";
}

/**
 * @typedef {object} Operation
 * @property {string} id
 * @property {string} method in upper case
 * @property {string} path
 * @property {string} summary
 * @property {string} description
 * @property {string[]} tags
 * @property {boolean} deprecated
 * @property {Json[]} parameters
 * @property {Json | null} body
 * @property {[string, Json][]} responses
 * @property {string[]} security
 */

/**
 * Every operation of a document.
 * @param {Json} document
 * @returns {Operation[]}
 */
export function operations(document) {
  const found = [];
  for (const [path, written] of Object.entries(document.paths ?? {})) {
    const item = resolve(document, written);
    if (!item || typeof item !== "object") continue;
    for (const method of METHODS) {
      const operation = item[method];
      if (!operation || typeof operation !== "object") continue;
      /** @type {Map<string, Json>} */
      const parameters = new Map();
      for (const each of [...list(item.parameters), ...list(operation.parameters)]) {
        const parameter = resolve(document, each);
        if (parameter?.name) parameters.set(`${parameter.in} ${parameter.name}`, parameter);
      }
      const security = list(operation.security ?? document.security).flatMap((of) => Object.keys(of ?? {}));
      found.push({
        id: text(operation.operationId) || `${method.toUpperCase()} ${path}`,
        method: method.toUpperCase(), path,
        summary: text(operation.summary), description: text(operation.description),
        tags: list(operation.tags).filter((tag) => typeof tag === "string"),
        deprecated: operation.deprecated === true,
        parameters: [...parameters.values()],
        body: resolve(document, operation.requestBody) ?? null,
        responses: /** @type {[string, Json][]} */ (Object.entries(operation.responses ?? {}).map(([status, of]) => [status, resolve(document, of) ?? {}])),
        security: [...new Set(security)],
      });
    }
  }
  return found;
}

/** @param {any} value @returns {any[]} */
export function list(value) {
  return Array.isArray(value) ? value : [];
}

/** @param {any} value */
export function text(value) {
  return typeof value === "string" ? value : "";
}

/**
 * The type of a schema, in words.
 * @param {Json} document
 * @param {any} written
 * @returns {string}
 */
export function typeOf(document, written) {
  const schema = resolve(document, written);
  if (schema === true || schema === undefined || schema === null) return "any";
  if (schema === false) return "nothing";
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  const types = list(schema.type).length ? schema.type.filter((/** @type {string} */ of) => of !== "null") : schema.type ? [schema.type] : [];
  const isNull = list(schema.type).includes("null") || schema.nullable === true;
  let name = types.join(" or ");
  if (types.includes("array") || !name && schema.items) name = `array of ${typeOf(document, schema.items)}`;
  else if (!name) {
    for (const [key, joint] of [["oneOf", " or "], ["anyOf", " or "], ["allOf", " and "]]) {
      if (list(schema[key]).length) {
        const parts = schema[key].slice(0, 4).map((/** @type {any} */ of) => referenceName(of) || typeOf(document, of));
        name = [...new Set(parts)].join(joint);
        break;
      }
    }
    name ||= schema.properties ? "object" : schema.enum ? "enum" : "any";
  }
  const reference = referenceName(written);
  if (name === "object" && reference) name = reference;
  if (schema.format) name += ` (${schema.format})`;
  return isNull ? `${name} or null` : name;
}

/**
 * The properties of a schema, with those of `allOf`.
 * @param {Json} document
 * @param {any} written
 * @param {number} [depth]
 * @returns {{properties: [string, any][], required: Set<string>, items: any, variants: any[], additional: any}}
 */
export function shape(document, written, depth = 0) {
  const schema = resolve(document, written) ?? {};
  /** @type {Map<string, any>} */
  const properties = new Map(Object.entries(schema.properties ?? {}));
  const required = new Set(list(schema.required));
  let { items } = schema;
  const variants = [...list(schema.oneOf), ...list(schema.anyOf)];
  if (depth < 8) {
    for (const part of list(schema.allOf)) {
      const inner = shape(document, part, depth + 1);
      inner.properties.forEach(([name, of]) => properties.set(name, of));
      inner.required.forEach((name) => required.add(name));
      items ??= inner.items;
      variants.push(...inner.variants);
    }
  }
  const additional = schema.additionalProperties && typeof schema.additionalProperties === "object" ? schema.additionalProperties : null;
  return { properties: [...properties], required, items, variants, additional };
}

/**
 * The limits of a schema, in words.
 * @param {any} schema
 * @returns {string[]}
 */
export function limits(schema) {
  if (!schema || typeof schema !== "object") return [];
  const found = [];
  if (schema.enum) found.push(`one of ${list(schema.enum).slice(0, 20).map((of) => JSON.stringify(of)).join(", ")}${schema.enum.length > 20 ? ", …" : ""}`);
  if (schema.default !== undefined) found.push(`default ${JSON.stringify(schema.default)}`);
  for (const [key, words] of [["minimum", "at least"], ["exclusiveMinimum", "above"], ["maximum", "at most"], ["exclusiveMaximum", "below"], ["minLength", "characters at least"], ["maxLength", "characters at most"],
    ["minItems", "items at least"], ["maxItems", "items at most"], ["multipleOf", "multiple of"], ["pattern", "pattern"]]) {
    if (schema[key] !== undefined && typeof schema[key] !== "boolean") found.push(`${words} ${schema[key]}`);
  }
  if (schema.readOnly) found.push("read only");
  if (schema.writeOnly) found.push("write only");
  return found;
}

/**
 * The example of a media type or a parameter: a written example, or else an example of the schema.
 * @param {Json} document
 * @param {any} of
 * @returns {any}
 */
export function exampleOf(document, of) {
  if (of?.example !== undefined) return of.example;
  const first = Object.values(of?.examples ?? {})[0];
  const written = resolve(document, first);
  if (written?.value !== undefined) return written.value;
  return of?.schema === undefined ? undefined : example(document, of.schema, 0);
}

/**
 * An example of a schema. Its depth is bounded, because schemas may contain themselves.
 * @param {Json} document
 * @param {any} written
 * @param {number} depth
 * @returns {any}
 */
export function example(document, written, depth) {
  const schema = resolve(document, written);
  if (!schema || typeof schema !== "object") return null;
  if (schema.example !== undefined) return schema.example;
  if (list(schema.examples).length) return schema.examples[0];
  if (schema.default !== undefined) return schema.default;
  if (schema.const !== undefined) return schema.const;
  if (list(schema.enum).length) return schema.enum[0];
  if (depth > 5) return null;
  const { properties, items, variants, additional } = shape(document, schema);
  const type = list(schema.type).length ? schema.type.find((/** @type {string} */ of) => of !== "null") : schema.type;
  if (properties.length || type === "object") {
    /** @type {Json} */
    const made = {};
    for (const [name, of] of properties.slice(0, 60)) {
      const inner = resolve(document, of);
      if (!inner?.readOnly) made[name] = example(document, of, depth + 1);
    }
    if (!properties.length && additional) made.key = example(document, additional, depth + 1);
    return made;
  }
  if (type === "array" || items) return [example(document, items ?? {}, depth + 1)];
  if (variants.length) return example(document, variants[0], depth + 1);
  switch (type) {
    case "integer": return schema.minimum ?? 1;
    case "number": return schema.minimum ?? 1.5;
    case "boolean": return true;
    case "string":
      return { "date-time": "2026-01-31T12:00:00Z", date: "2026-01-31", uuid: "3fa85f64-5717-4562-b3fc-2c963f66afa6", email: "ada@example.com", uri: "https://example.com" }[/** @type {string} */ (schema.format)] ?? "text";
    default: return null;
  }
}
