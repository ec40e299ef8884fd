// Elements, and their renewal in place. Text from outside becomes text nodes; there is no way to pass markup.

const SVG = "http://www.w3.org/2000/svg";
const PROPERTIES = new Set(["value", "checked", "open", "disabled", "selected"]);

function build(node, properties, children) {
  node.$on = {};
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") node.$on = value;
    else if (name === "key") node.$key = String(value);
    else if (name === "mounted") node.$mounted = value;
    else if (PROPERTIES.has(name) && name in node) {
      node[name] = value;
      if (name !== "value") node.setAttribute(name, "");
      node.$properties = { ...node.$properties, [name]: value };
    } else node.setAttribute(name, value === true ? "" : String(value));
  }
  append(node, children);
  return node;
}

function append(node, children) {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    if (Array.isArray(child)) append(node, child);
    else node.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

// h("a", {href: "#/", on: {click: f}, key: "1"}, "text", child)
export function h(tag, properties, ...children) {
  return build(document.createElement(tag), properties, children);
}

export function svg(tag, properties, ...children) {
  return build(document.createElementNS(SVG, tag), properties, children);
}

// Make the children of `target` equal to `wanted`, touching only what differs: focus, selection and scrolling stay.
export function renew(target, ...wanted) {
  const holder = document.createElement("div");
  append(holder, wanted);
  renewChildren(target, [...holder.childNodes], false);
}

function renewChildren(target, wanted, flash) {
  const keyed = new Map();
  for (const node of target.childNodes) if (node.$key !== undefined) keyed.set(node.$key, node);
  let at = target.firstChild;
  for (const node of wanted) {
    let old = null;
    if (node.$key !== undefined) old = keyed.get(node.$key) ?? null;
    else if (at && at.$key === undefined) old = at;
    if (old && old.nodeName === node.nodeName) {
      if (old === at) at = at.nextSibling;
      else target.insertBefore(old, at);
      keyed.delete(node.$key);
      renewNode(old, node, flash || node.$key !== undefined);
    } else {
      target.insertBefore(node, at);
      mount(node);
    }
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

function renewNode(old, node, flash) {
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data === node.data) return;
    old.data = node.data;
    if (flash) blink(old.parentElement);
    return;
  }

  for (const { name } of [...old.attributes])
    if (!node.hasAttribute(name) && name !== "style") old.removeAttribute(name);
  for (const { name, value } of node.attributes)
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  for (const [name, value] of Object.entries(node.$properties ?? {}))
    if (old[name] !== value && old !== document.activeElement) old[name] = value;
  for (const name of Object.keys(old.$properties ?? {}))
    if (!(name in (node.$properties ?? {})) && typeof old[name] === "boolean") old[name] = false;
  old.$properties = node.$properties;
  old.$on = node.$on;
  renewChildren(old, [...node.childNodes], flash);
}

function mount(node) {
  node.$mounted?.(node);
  if (node.querySelectorAll) for (const child of node.querySelectorAll("*")) child.$mounted?.(child);
}

function blink(element) {
  const cell = element?.closest(".live");
  if (!cell) return;
  cell.classList.remove("flash");
  void cell.getBoundingClientRect();
  cell.classList.add("flash");
}

// One listener a kind for the whole page: renewed elements bring their newest handlers along.
for (const kind of ["click", "input", "change", "keydown", "submit", "toggle"]) {
  document.addEventListener(
    kind,
    (event) => {
      for (let node = event.target; node && node !== document; node = node.parentNode) {
        const handler = node.$on?.[kind];
        if (handler) {
          handler(event);
          return;
        }
      }
    },
    kind === "toggle",
  );
}
document.addEventListener("animationend", (event) => event.target.classList?.remove("flash"));

const decimal = new Intl.NumberFormat("en-US");
export const NONE = "–";

export function count(value) {
  return value === null || value === undefined ? NONE : decimal.format(value);
}

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
export function bytes(value) {
  if (value === null || value === undefined) return NONE;
  let size = value;
  let unit = 0;
  while (size >= 1024 && unit < UNITS.length - 1) {
    size /= 1024;
    unit += 1;
  }
  return `${unit && size < 100 ? size.toFixed(1) : decimal.format(Math.round(size))} ${UNITS[unit]}`;
}

export function duration(ms) {
  if (ms === null || ms === undefined) return NONE;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const s = ms / 1000;
  if (s < 60) return `${s.toFixed(s < 10 ? 1 : 0)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${Math.floor(s % 60)} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

export function moment(ms) {
  if (ms === null || ms === undefined || ms < 0) return NONE;
  const at = new Date(ms);
  const two = (number) => String(number).padStart(2, "0");
  return (
    `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ` +
    `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}.${String(at.getMilliseconds()).padStart(3, "0")}`
  );
}

// A state by colour, shape and word: ok is a disc, warning a triangle, error a square, idle a ring.
export function status(level, text) {
  return h("span", { class: `status ${level}` }, shape(level), h("span", null, text));
}

export function shape(level) {
  const of = {
    ok: () => svg("circle", { cx: 5, cy: 5, r: 4 }),
    warning: () => svg("path", { d: "M5 .8 9.6 9.2H.4Z" }),
    error: () => svg("rect", { x: 1, y: 1, width: 8, height: 8 }),
    info: () => svg("path", { d: "M5 .6 9.4 5 5 9.4 .6 5Z" }),
    idle: () => svg("circle", { cx: 5, cy: 5, r: 3.2, class: "ring" }),
  };
  return svg("svg", { viewBox: "0 0 10 10", class: "shape", "aria-hidden": "true" }, (of[level] ?? of.idle)());
}

export function link(path, text, extra) {
  return h("a", { href: path, ...extra }, text);
}

export function href(...parts) {
  return `#/${parts.map((part) => encodeURIComponent(part)).join("/")}`;
}

// Facts as a list of terms: [["leader", 3], ...]; what is undefined is left out.
export function facts(pairs) {
  return h(
    "dl",
    { class: "facts" },
    pairs
      .filter((pair) => pair && pair[1] !== undefined)
      .map(([term, value]) => h("div", { key: term }, h("dt", null, term), h("dd", { class: "live" }, value ?? NONE))),
  );
}
