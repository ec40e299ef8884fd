// What every view has: its place on the page, its part of the fragment, and an end.

import { h, renew } from "./dom.js";
import { ask, Refused } from "./api.js";
import { Table } from "./table.js";

export class View {
  constructor({ main, live, path, query, name }) {
    Object.assign(this, { live, path, query, name });
    this.ending = new AbortController();
    this.signal = this.ending.signal;
    this.heading = h("div", { class: "heading" });
    this.root = h("div", { class: `view view-${name || "overview"}` });
    this.listeners = [];
    main.append(this.heading, this.root);
  }

  close() {
    this.ending.abort();
  }

  event(kind, document) {
    for (const listener of this.listeners) listener(kind, document);
  }

  listen(listener) {
    this.listeners.push(listener);
  }

  // `trail`: links to what is above; `buttons`: actions.
  title(text, { trail = [], buttons = [], lead = null } = {}) {
    document.title = `${text} · raftctl`;
    renew(
      this.heading,
      trail.length
        ? h("p", { class: "trail", key: "trail" }, trail.map(([path, label]) => [h("a", { href: path }, label), h("span", { "aria-hidden": "true" }, " / ")]))
        : null,
      h("h1", { key: "title" }, h("bdi", null, text)),
      lead ? h("p", { class: "lead", key: "lead" }, lead) : null,
      h("div", { class: "buttons", key: "buttons" }, buttons.filter(Boolean).map(([label, does, danger]) => h("button", { key: label, type: "button", class: danger ? "danger" : null, on: { click: does } }, label))),
    );
  }

  setQuery(changes) {
    for (const [key, value] of Object.entries(changes)) {
      if (value === null || value === "") this.query.delete(key);
      else this.query.set(key, value);
    }
    const text = this.query.toString();
    history.replaceState(null, "", `#/${this.path}${text ? `?${text}` : ""}`);
  }

  // Do something now and then, while somebody looks.
  every(ms, does) {
    const timer = setInterval(() => {
      if (document.visibilityState === "visible" && this.live.state !== "lost") does();
    }, ms);
    this.signal.addEventListener("abort", () => clearInterval(timer));
  }

  // The filter, and what stands beside it; `table` is asked again while one types.
  filter(label, table, ...others) {
    const total = h("output", { class: "total" });
    const box = h("input", { type: "search", "aria-label": label, placeholder: `${label}  ( / )`, value: this.query.get("filter") ?? "", spellcheck: "false", autocomplete: "off" });
    let timer = 0;
    box.addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(() => {
        this.setQuery({ filter: box.value });
        table().reset();
      }, 80);
    });
    let spoken = 0;
    this.counted = (number) => {
      clearTimeout(spoken);
      renew(total, `${number.toLocaleString("en-US")} ${number === 1 ? "row" : "rows"}`);
    };
    return h("div", { class: "tools" }, h("div", { class: "search" }, box), others, total);
  }

  choice(label, key, options, changed) {
    const now = this.query.get(key) ?? options[0][0];
    return h(
      "label",
      { class: "choice" },
      h("span", null, label),
      h(
        "select",
        { on: { change: (event) => { this.setQuery({ [key]: event.target.value === options[0][0] ? null : event.target.value }); changed(); } } },
        options.map(([value, text]) => h("option", { value, selected: value === now }, text)),
      ),
    );
  }

  tick(label, key, changed) {
    return h(
      "label",
      { class: "tick" },
      h("input", { type: "checkbox", checked: this.query.has(key), on: { change: (event) => { this.setQuery({ [key]: event.target.checked ? "1" : null }); changed(); } } }),
      label,
    );
  }

  table(options) {
    const table = new Table({ parameters: () => ({}), ...options, view: this });
    this.listen((kind, document) => kind === "changed" && table.changed(document));
    if (options.poll) this.every(options.poll, () => table.refresh());
    return table;
  }

  // A document, shown by `draw`; asked again at events that concern it and, with `poll`, while somebody looks.
  document(path, { slot = this.root, draw, poll = 0, concerns = () => false, parameters = () => ({}) }) {
    let busy = false;
    let again = false;
    const load = async () => {
      if (busy) {
        again = true;
        return;
      }
      busy = true;
      try {
        const answer = await ask(path, parameters(), this.signal);
        renew(slot, draw(answer));
      } catch (error) {
        if (error.name === "AbortError") return;
        if (!(error instanceof Refused) && !(error instanceof TypeError) && !(error instanceof SyntaxError)) throw error;
        if (error instanceof Refused || !slot.hasChildNodes()) renew(slot, refusal(error, load));
      } finally {
        busy = false;
        slot.removeAttribute("aria-busy");
      }
      if (again && !this.signal.aborted) {
        again = false;
        load();
      }
    };
    slot.setAttribute("aria-busy", "true");
    this.listen((kind, document) => kind === "changed" && concerns(document) && load());
    if (poll) this.every(poll, load);
    load();
    return load;
  }
}

export function refusal(error, retry) {
  return h(
    "div",
    { class: "note failed", key: "refusal" },
    h("strong", null, error instanceof Refused ? error.message : "The node does not answer."),
    " ",
    h("button", { type: "button", on: { click: retry } }, "Try again"),
  );
}

export const concernsTopic = (name) => (event) => event.topics === null || event.topics?.includes(name);
export const anyTopic = (event) => event.topics === null || event.topics?.length > 0;
