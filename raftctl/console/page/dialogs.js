// Dialogs of actions: fields, what will happen, a name typed where something is lost, the server's refusal beside its field.

import { h, renew, shape } from "./dom.js";
import { act, Refused } from "./api.js";

let serial = 0;

// fields: [{name, label, type, value, options, hint, required}]; body(values) is what the server gets.
export function openAction({ title, action, lead, consequences, fields = [], body, confirm, button, validate = false, done }) {
  serial += 1;
  const prefix = `d${serial}-`;
  const failed = { message: "", field: null };
  let busy = false;
  let checked = "";
  const problem = h("div", { class: "refusal", role: "alert" });
  const slots = new Map();
  const controls = new Map();
  const confirmation = confirm
    ? { name: "$confirm", label: `Type ${confirm} to confirm`, type: "text", required: true, plain: true }
    : null;
  const rows = [...fields, ...(confirmation ? [confirmation] : [])].map((field) => {
    const control = controlOf(field, prefix);
    controls.set(field.name, control);
    const slot = h("p", { class: "fielderror", id: `${prefix}${field.name}-error` });
    slots.set(field.name, slot);
    const label = h("label", { for: control.id }, field.label);
    const hint = field.hint ? h("p", { class: "hint", id: `${prefix}${field.name}-hint` }, field.hint) : null;
    control.setAttribute("aria-describedby", [hint?.id, slot.id].filter(Boolean).join(" "));
    return h("div", { class: `field ${field.type ?? "text"}` }, field.type === "checkbox" ? [control, label] : [label, control], hint, slot);
  });
  const submit = h("button", { type: "submit", class: `primary${confirm ? " danger" : ""}` }, button ?? title);
  const check = validate ? h("button", { type: "button", on: { click: () => send(true) } }, "Check only") : null;
  const cancel = h("button", { type: "button", on: { click: () => dialog.close() } }, "Cancel");
  const form = h(
    "form",
    {
      novalidate: true,
      on: {
        submit: (event) => {
          event.preventDefault();
          send(false);
        },
        input: () => ready(),
      },
    },
    h("h2", { id: `${prefix}title` }, title),
    lead ? h("p", null, lead) : null,
    consequences ? h("p", { class: `consequences ${confirm ? "error" : "info"}` }, shape(confirm ? "error" : "info"), h("span", null, consequences)) : null,
    rows,
    problem,
    h("div", { class: "buttons" }, cancel, check, submit),
  );
  const dialog = h("dialog", { class: "action", "aria-labelledby": `${prefix}title` }, form);
  document.body.append(dialog);
  const before = document.activeElement;
  dialog.addEventListener("close", () => {
    dialog.remove();
    if (before?.isConnected) before.focus();
  });

  function values() {
    const given = {};
    for (const field of fields) given[field.name] = valueOf(controls.get(field.name), field);
    return given;
  }

  function ready() {
    form.setAttribute("aria-busy", String(busy));
    submit.disabled = busy || (Boolean(confirm) && controls.get("$confirm").value !== confirm);
    if (check) check.disabled = busy;
  }

  // "configs.KEY" and "partitions[0].replicas" belong to a field of the dialog, "set.KEY" to its value.
  function placeOf(field) {
    const parts = String(field ?? "").split(/[.[\]]+/);
    return [field, parts[0], parts.at(-1), parts[0] === "set" ? "value" : null].find((name) => slots.has(name)) ?? null;
  }

  function show() {
    for (const [name, slot] of slots) {
      const mine = failed.field === name;
      renew(slot, mine ? failed.message : "");
      controls.get(name).setAttribute("aria-invalid", String(mine));
      if (mine) controls.get(name).focus();
    }
    renew(problem, failed.field !== null ? "" : failed.message || checked);
    problem.classList.toggle("passed", !failed.message && Boolean(checked));
  }

  async function send(only) {
    failed.message = "";
    failed.field = null;
    checked = "";
    show();
    for (const field of fields) {
      if (field.required && valueOf(controls.get(field.name), field) === null) {
        Object.assign(failed, { message: `${field.label}: a value is needed.`, field: field.name });
        show();
        return;
      }
    }
    let content;
    try {
      content = body(values());
    } catch (error) {
      Object.assign(failed, { message: error.message, field: error.field ?? null });
      show();
      return;
    }
    busy = true;
    ready();
    try {
      const answer = await act(action, only ? { ...content, validate_only: true } : content);
      if (only) checked = answer.done ?? "The cluster would accept this.";
      else {
        dialog.close();
        toast(answer.done ?? "Done.");
        done?.(content);
        return;
      }
    } catch (error) {
      Object.assign(failed, { message: error instanceof Refused ? error.message : "The node does not answer.", field: placeOf(error.field) });
    } finally {
      busy = false;
      ready();
    }
    show();
  }

  dialog.showModal();
  ready();
  (controls.values().next().value ?? submit).focus();
  return dialog;
}

function controlOf(field, prefix) {
  const shared = { id: `${prefix}${field.name}`, name: field.name, autocomplete: "off", spellcheck: "false" };
  if (field.type === "select")
    return h(
      "select",
      shared,
      field.options.map((option) => h("option", { value: option, selected: option === field.value }, option)),
    );
  if (field.type === "textarea") return h("textarea", { ...shared, rows: field.rows ?? 4, value: field.value ?? "" });
  if (field.type === "checkbox") return h("input", { ...shared, type: "checkbox", checked: Boolean(field.value) });
  return h("input", {
    ...shared,
    type: "text",
    inputmode: field.type === "number" ? "numeric" : null,
    value: field.value ?? "",
    required: field.required,
  });
}

function valueOf(control, field) {
  if (field.type === "checkbox") return control.checked;
  const text = field.type === "textarea" || field.plain ? control.value : control.value.trim();
  if (text === "" && !field.empty) return null;
  if (field.type === "number") return Number.isFinite(Number(text)) ? Number(text) : text;
  return text;
}

export class Mistake extends Error {
  constructor(message, field) {
    super(message);
    this.field = field;
  }
}

// "key=value" a line -> {key: value}
export function pairs(text, field) {
  const found = {};
  for (const line of (text ?? "").split("\n")) {
    if (!line.trim()) continue;
    const at = line.indexOf("=");
    if (at < 1) throw new Mistake(`“${line.trim()}” is not key=value.`, field);
    found[line.slice(0, at).trim()] = line.slice(at + 1).trim();
  }
  return found;
}

// "0, 2-4" -> [0, 2, 3, 4]
export function numbers(text, field) {
  const found = [];
  for (const part of (text ?? "").split(/[\s,]+/).filter(Boolean)) {
    const match = /^(\d+)(?:-(\d+))?$/.exec(part);
    if (!match) throw new Mistake(`“${part}” is no number and no range.`, field);
    const last = Number(match[2] ?? match[1]);
    if (last - Number(match[1]) > 10000) throw new Mistake(`“${part}” is too long a range.`, field);
    for (let number = Number(match[1]); number <= last; number += 1) found.push(number);
  }
  return found;
}

export function toast(text) {
  const holder = document.getElementById("toasts");
  const one = h("div", { class: "toast" }, shape("ok"), h("span", null, text));
  holder.append(one);
  while (holder.children.length > 3) holder.firstChild.remove();
  setTimeout(() => one.remove(), 8000);
}

export function openHelp(keys) {
  const dialog = h(
    "dialog",
    { class: "action", "aria-labelledby": "help-title" },
    h("h2", { id: "help-title" }, "Keys"),
    h("dl", { class: "keys" }, keys.map(([key, what]) => h("div", null, h("dt", null, key.split(" ").map((part) => [h("kbd", null, part), " "])), h("dd", null, what)))),
    h("div", { class: "buttons" }, h("button", { type: "button", class: "primary", on: { click: () => dialog.close() } }, "Close")),
  );
  document.body.append(dialog);
  const before = document.activeElement;
  dialog.addEventListener("close", () => {
    dialog.remove();
    if (before?.isConnected) before.focus();
  });
  dialog.showModal();
  dialog.querySelector("button").focus();
}
