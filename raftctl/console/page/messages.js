// Records of a partition: bounded windows, values cut, text as text whatever is in it.

import { h, renew, bytes, count, moment } from "./dom.js";
import { ask } from "./api.js";
import { Mistake } from "./dialogs.js";
import { place } from "./actions.js";
import { refusal } from "./view.js";

const LIMIT = 50;
const PREVIEW = 160;
const HEX_MAX = 4096; // bytes drawn; the rest is said

export function messages(view) {
  view.title("Messages", { lead: "Records of one partition, from an offset or a time on." });
  const body = h("div");
  view.root.append(body);
  browse(view, body, null);
}

// `topic` null: it is chosen on the page.
export function browse(view, body, topic) {
  const query = view.query;
  const given = (key, fallback) => query.get(key) ?? fallback;
  const field = (label, control, wide) => h("label", { class: `choice${wide ? " wide" : ""}` }, h("span", null, label), control);
  const select = (value, options) => h("select", null, options.map((one) => h("option", { value: one, selected: one === value }, one)));
  const names = h("input", { type: "text", value: given("topic", ""), spellcheck: "false", autocomplete: "off", required: true });
  const partition = h("input", { type: "text", inputmode: "numeric", value: given("partition", "0"), class: "short" });
  const from = h("input", { type: "text", value: given("from", "latest"), spellcheck: "false", autocomplete: "off", "aria-describedby": "from-hint" });
  const isolation = select(given("isolation", "read_committed"), ["read_committed", "read_uncommitted"]);
  const format = select(given("format", "auto"), ["auto", "text", "json", "hex", "base64"]);
  const result = h("div", { "aria-busy": "false" });
  let answer = null;
  let opened = new Set();

  const form = h(
    "form",
    { class: "tools", on: { submit: (event) => (event.preventDefault(), open(from.value)), change: (event) => event.target === format && (view.setQuery({ format: format.value }), draw()) } },
    topic === null ? field("Topic", names, true) : null,
    field("Partition", partition),
    field("From", from),
    field("Isolation", isolation),
    field("Shown as", format),
    h("button", { type: "submit", class: "primary" }, "Read"),
    h("p", { class: "hint", id: "from-hint" }, "From: earliest, latest, an offset, or @ and a time as @2026-11-23T10:00:00."),
  );
  body.append(form, result);

  async function open(start) {
    const name = topic ?? names.value.trim();
    if (!name) {
      renew(result, h("p", { class: "note" }, "Name a topic."));
      return;
    }
    let at;
    try {
      at = place(start, "from");
    } catch (error) {
      if (!(error instanceof Mistake)) throw error;
      renew(result, h("p", { class: "note failed", role: "alert" }, error.message));
      return;
    }
    view.setQuery({ ...(topic === null ? { topic: name } : {}), partition: partition.value, from: start, isolation: isolation.value === "read_committed" ? null : isolation.value });
    result.setAttribute("aria-busy", "true");
    try {
      answer = await ask(["messages"], { topic: name, partition: partition.value, from: at, limit: LIMIT, isolation: isolation.value }, view.signal);
      opened = new Set();
      draw();
    } catch (error) {
      if (error.name === "AbortError") return;
      answer = null;
      renew(result, refusal(error, () => open(start)));
    } finally {
      result.setAttribute("aria-busy", "false");
    }
  }

  function go(start) {
    from.value = start;
    open(start);
  }

  function draw() {
    if (!answer) return;
    const rows = answer.rows;
    const first = rows[0]?.offset ?? answer.next_offset;
    const back = Math.max(answer.log_start ?? 0, first - LIMIT);
    renew(
      result,
      h(
        "div",
        { class: "pager", key: "pager" },
        h("button", { type: "button", disabled: first <= (answer.log_start ?? 0), on: { click: () => go("earliest") } }, "Earliest"),
        h("button", { type: "button", disabled: first <= (answer.log_start ?? 0), on: { click: () => go(String(back)) } }, "Earlier"),
        h("button", { type: "button", disabled: answer.next_offset >= answer.high_watermark, on: { click: () => go(String(answer.next_offset)) } }, "Later"),
        h("button", { type: "button", on: { click: () => go("latest") } }, "Latest"),
        h(
          "p",
          null,
          `${count(rows.length)} records; log ${count(answer.log_start)} to ${count(answer.high_watermark)}`,
          answer.last_stable_offset !== null && answer.last_stable_offset < answer.high_watermark ? `, stable to ${count(answer.last_stable_offset)}` : "",
        ),
      ),
      rows.length
        ? h("ol", { class: "records", key: "records" }, rows.map((row) => record(row)))
        : h("p", { class: "note", key: "none" }, "There is no record from there on."),
    );
  }

  function record(row) {
    if (row.problem || row.control) {
      const said = row.problem ?? `end of a transaction: ${row.control}`;
      return h("li", { key: row.offset, class: "record aside" }, h("span", { class: "offset" }, count(row.offset)), h("span", null, said));
    }
    const open = opened.has(row.offset);
    const toggle = () => {
      if (open) opened.delete(row.offset);
      else opened.add(row.offset);
      draw();
    };
    return h(
      "li",
      { key: row.offset, class: open ? "record open" : "record" },
      h(
        "button",
        { type: "button", class: "recordhead", "aria-expanded": String(open), on: { click: toggle } },
        h("span", { class: "offset" }, count(row.offset)),
        h("span", { class: "time" }, moment(row.timestamp_ms)),
        h("bdi", { class: "recordkey" }, preview(row.key)),
        h("bdi", { class: "recordvalue" }, preview(row.value)),
        h("span", { class: "size" }, bytes(row.value?.size ?? 0)),
      ),
      open
        ? h(
            "div",
            { class: "recordbody" },
            block("Key", row.key, format.value),
            block("Value", row.value, format.value),
            (row.headers ?? []).map(([name, value], number) => block(["Header ", h("bdi", null, visible(name))], value, format.value, number)),
            batch(row.batch),
          )
        : null,
    );
  }

  if (topic !== null || query.get("topic")) open(from.value);
  else renew(result, h("p", { class: "note" }, "Name a topic, or come here from the page of a topic."));
}

function batch(of) {
  if (!of) return null;
  const said = [
    of.producer_id !== null && of.producer_id !== undefined && of.producer_id >= 0 ? `producer ${of.producer_id}, epoch ${of.epoch}, sequence ${of.sequence}` : "no producer id",
    of.codec && of.codec !== "none" ? of.codec : "not compressed",
    of.transactional ? "in a transaction" : null,
  ];
  return h("p", { class: "hint" }, said.filter(Boolean).join(", "));
}

function block(label, value, format, key) {
  const nothing = value === null || value === undefined || (value.text === undefined && value.base64 === undefined);
  return h(
    "div",
    { class: "content", key: key === undefined ? undefined : `header ${key}` },
    h("p", { class: "label" }, label, nothing ? "" : ` · ${bytes(value.size)}${value.cut ? ", cut" : ""}`),
    nothing ? h("p", { class: "hint" }, "null") : h("pre", { tabindex: "0" }, h("bdi", null, shown(value, format))),
    value?.cut ? h("p", { class: "hint" }, `Only the beginning is shown; the whole has ${count(value.size)} bytes.`) : null,
  );
}

export function preview(value) {
  if (value === null || value === undefined) return "null";
  const text = value.text ?? (value.base64 === undefined ? "null" : hex(octets(value), 24));
  return visible(text.slice(0, PREVIEW).replace(/\s+/g, " ")) + (text.length > PREVIEW || value.cut ? "…" : "");
}

// Characters that control a terminal or turn the direction of text become visible signs.
export function visible(text) {
  return String(text).replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, (sign) => {
    const code = sign.codePointAt(0);
    if (code < 0x20) return String.fromCodePoint(0x2400 + code);
    return code === 0x7f ? "\u2421" : `\\u${code.toString(16).padStart(4, "0")}`;
  });
}

function octets(value) {
  if (value.text !== undefined && value.text !== null) return new TextEncoder().encode(value.text);
  return Uint8Array.from(atob(value.base64), (sign) => sign.charCodeAt(0));
}

export function shown(value, format) {
  const isText = value.text !== undefined && value.text !== null;
  if (format === "base64") {
    if (!isText) return value.base64;
    return btoa(Array.from(octets(value), (octet) => String.fromCharCode(octet)).join(""));
  }
  if (format === "hex" || (format === "auto" && !isText)) return dump(octets(value));
  const text = isText ? value.text : new TextDecoder().decode(octets(value));
  if (format === "json" || (format === "auto" && /^\s*[[{]/.test(text) && !value.cut)) return visible(pretty(text) ?? text);
  return visible(text);
}

function hex(data, most) {
  return Array.from(data.subarray(0, most), (octet) => octet.toString(16).padStart(2, "0")).join(" ");
}

function dump(data) {
  const lines = [];
  const shownBytes = data.subarray(0, HEX_MAX);
  for (let at = 0; at < shownBytes.length; at += 16) {
    const part = shownBytes.subarray(at, at + 16);
    const letters = Array.from(part, (octet) => (octet >= 32 && octet < 127 ? String.fromCharCode(octet) : ".")).join("");
    lines.push(`${at.toString(16).padStart(6, "0")}  ${hex(part, 16).padEnd(47)}  ${letters}`);
  }
  if (data.length > HEX_MAX) lines.push(`… and ${count(data.length - HEX_MAX)} bytes more`);
  return lines.join("\n");
}

// JSON with one item a line. Numbers stay as they were written: parsing would round those above 2^53.
export function pretty(text) {
  try {
    JSON.parse(text);
  } catch {
    return null;
  }
  const tokens = text.match(/"(?:[^"\\]|\\.)*"|[[\]{},:]|[^\s[\]{},:"]+/g) ?? [];
  let depth = 0;
  let out = "";
  tokens.forEach((token, place) => {
    const before = tokens[place - 1];
    if (token === "}" || token === "]") {
      depth -= 1;
      if (before !== "{" && before !== "[") out += `\n${"  ".repeat(depth)}`;
    } else if (before === "{" || before === "[" || before === ",") out += `\n${"  ".repeat(depth)}`;
    out += token === ":" ? ": " : token;
    if (token === "{" || token === "[") depth += 1;
  });
  return out;
}
