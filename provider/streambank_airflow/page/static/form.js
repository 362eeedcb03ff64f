// @ts-check
// A form from the JSON schema of a DAG's params: what Airflow's own trigger form asks, with the same answers.

import { Fragment, h, cx, useId } from "./h.js";
import { Marked } from "./ui.js";
import { titled } from "./words.js";

/** One field: its name, schema, kind of input, and whether it may be left empty. */
function fieldOf(name, param) {
  const schema = param.schema || {};
  const types = [].concat(schema.type || typeOf(param.value));
  const kind = types.find((one) => one !== "null") || "string";
  // A field without a default has an empty object in the place of one.
  const none = param.value === undefined || (typeof param.value === "object" && kind !== "array" && kind !== "object");
  return {
    name, schema, kind, nullable: types.includes("null"), initial: none ? null : param.value,
    title: schema.title || titled(name), text: param.description || schema.description || schema.description_md || "",
    section: schema.section || null,
  };
}

const typeOf = (value) =>
  value === null || value === undefined ? ["null", "string"] : Array.isArray(value) ? "array" : typeof value === "object" ? "object"
    : typeof value === "boolean" ? "boolean" : Number.isInteger(value) ? "integer" : typeof value === "number" ? "number" : "string";

/** All fields of a DAG, in its order. */
export const fieldsOf = (params) =>
  Object.entries(params || {}).filter(([, param]) => param?.schema?.const === undefined).map(([name, param]) => fieldOf(name, param));

/** What the inputs hold at first: booleans as such, everything else as text. */
export function initialOf(fields, fill = {}) {
  const inputs = {};
  for (const field of fields) {
    const value = fits(field, fill[field.name]) ? fill[field.name] : field.initial;
    inputs[field.name] = field.kind === "boolean" ? Boolean(value) : value === null || value === undefined ? ""
      : ofTexts(field) && value.every((one) => one.trim() && !one.includes("\n")) && !value[0]?.startsWith("[") ? value.join("\n")
        : typeof value === "object" ? JSON.stringify(value, null, 2) : String(value);
  }
  return inputs;
}

/** Names of what a form cannot be filled with: it has no such field, or the field has no such choice. */
export const misfits = (fields, fill = {}) =>
  Object.keys(fill).filter((name) => !fields.some((field) => field.name === name && fits(field, fill[name])));

const fits = (field, value) => value !== undefined && (!field.schema.enum || field.schema.enum.includes(value));

/** A list of texts is written with one of them on each line; as JSON, too. */
const ofTexts = ({ kind, schema }) => kind === "array" && schema.items?.type === "string";

/** From what the inputs hold to what a run is given: {conf, wrong}, where `wrong` has a sentence for each field that does not do. */
export function answersOf(fields, inputs) {
  const conf = {};
  const wrong = {};
  for (const field of fields) {
    try {
      conf[field.name] = valueOf(field, inputs[field.name]);
    } catch (error) {
      wrong[field.name] = error.message;
    }
  }
  return { conf, wrong };
}

function valueOf(field, input) {
  const { schema, kind, nullable } = field;
  if (kind === "boolean") return Boolean(input);
  const text = String(input ?? "");
  if (text.trim() === "" && kind !== "string") {
    if (nullable) return null;
    throw new Error("This needs an answer.");
  }
  if (kind === "integer" || kind === "number") return checkedNumber(schema, kind, text);
  if (ofTexts(field)) return checkedTexts(schema, text);
  if (kind === "array" || kind === "object") return checkedJson(kind, text);
  if (text === "" && nullable) return null;
  return checkedText(schema, text);
}

function checkedNumber(schema, kind, text) {
  const number = Number(text);
  if (!Number.isFinite(number)) throw new Error("This must be a number.");
  if (kind === "integer" && !Number.isInteger(number)) throw new Error("This must be a whole number.");
  if (schema.minimum !== undefined && number < schema.minimum) throw new Error(`This must be at least ${schema.minimum}.`);
  if (schema.exclusiveMinimum !== undefined && number <= schema.exclusiveMinimum) throw new Error(`This must be more than ${schema.exclusiveMinimum}.`);
  if (schema.maximum !== undefined && number > schema.maximum) throw new Error(`This must be at most ${schema.maximum}.`);
  return schema.enum ? schema.enum.find((one) => Number(one) === number) ?? number : number;
}

function checkedJson(kind, text) {
  let value;
  try {
    value = JSON.parse(text);
  } catch {
    throw new Error(kind === "array" ? 'This must be a JSON list, such as ["--rate", "10"].' : 'This must be a JSON object, such as {"name": "value"}.');
  }
  if (kind === "array" ? !Array.isArray(value) : value === null || typeof value !== "object" || Array.isArray(value)) {
    throw new Error(kind === "array" ? "This must be a list in square brackets." : "This must be an object in curly brackets.");
  }
  return value;
}

function checkedTexts(schema, text) {
  const all = text.trimStart().startsWith("[") ? checkedJson("array", text) : text.split("\n").filter((one) => one.trim());
  if (!all.every((one) => typeof one === "string")) throw new Error('This must be one text on each line, or a JSON list of texts, such as ["--rate", "10"].');
  all.forEach((one) => checkedText(schema.items, one));
  return all;
}

function checkedText(schema, text) {
  if (schema.minLength && text.length < schema.minLength) throw new Error(text === "" ? "This needs an answer." : `This needs at least ${schema.minLength} characters.`);
  if (schema.maxLength && text.length > schema.maxLength) throw new Error(`This may have at most ${schema.maxLength} characters.`);
  if (schema.pattern && !matches(schema.pattern, text)) throw new Error("This has characters or a form that are not allowed here.");
  return text;
}

function matches(pattern, text) {
  try {
    return new RegExp(pattern, "u").test(text);
  } catch {
    return true; // a pattern that only Python understands: Airflow checks it
  }
}

/** The fields as inputs; those of a section are folded away, as in Airflow's form. */
export function Form({ fields, inputs, wrong, change, disabled }) {
  const open = fields.filter((field) => field.section === null);
  const sections = [...new Set(fields.map((field) => field.section).filter(Boolean))];
  const draw = (field) => h(Field, { key: field.name, field, value: inputs[field.name], wrong: wrong[field.name], change, disabled });
  return h(Fragment, null, open.map(draw),
    sections.map((section) => {
      const own = fields.filter((field) => field.section === section);
      return h("details", { key: section, className: "sb-section", open: own.some((field) => wrong[field.name]) || undefined },
        h("summary", null, section), own.map(draw));
    }));
}

function Field({ field, value, wrong, change, disabled }) {
  const id = useId();
  const { schema, kind, name } = field;
  const common = {
    id, name, disabled, "aria-describedby": `${id}t`, "aria-invalid": wrong ? true : undefined, className: "sb-input",
    onChange: (event) => change(name, kind === "boolean" ? event.target.checked : event.target.value),
  };
  const text = h("div", { id: `${id}t`, className: "sb-help" }, wrong && h("p", { className: "sb-text-bad", role: "alert" }, wrong),
    field.text && h("p", null, h(Marked, { text: field.text })));
  if (kind === "boolean") {
    return h("div", { className: "sb-field sb-check" }, h("input", { ...common, className: undefined, type: "checkbox", checked: Boolean(value) }),
      h("label", { htmlFor: id }, field.title), text);
  }
  return h("div", { className: cx("sb-field", wrong && "sb-wrong") },
    h("label", { htmlFor: id }, field.title, field.nullable && h("span", { className: "sb-muted" }, " (may stay empty)")),
    input(schema, kind, value, common, id), text);
}

function input(schema, kind, value, common, id) {
  if (schema.enum) {
    const shown = schema.values_display || {};
    return h("select", { ...common, value }, schema.enum.map((one) =>
      h("option", { key: String(one), value: one === null ? "" : String(one) }, one === null ? "–" : shown[one] || String(one))));
  }
  if (kind === "array" || kind === "object") return h("textarea", { ...common, rows: 3, spellCheck: false, value });
  if (kind === "integer" || kind === "number") {
    return h("input", { ...common, type: "number", step: kind === "integer" ? 1 : "any", min: schema.minimum, max: schema.maximum, value });
  }
  if (schema.format === "multiline") return h("textarea", { ...common, rows: 4, maxLength: schema.maxLength, value });
  const examples = Array.isArray(schema.examples) ? schema.examples : [];
  return h(Fragment, null,
    h("input", { ...common, type: schema.format === "date" ? "date" : "text", maxLength: schema.maxLength, spellCheck: false, autoComplete: "off",
      list: examples.length ? `${id}l` : undefined, value }),
    examples.length > 0 && h("datalist", { id: `${id}l` }, examples.map((one) => h("option", { key: String(one), value: String(one) }))));
}
