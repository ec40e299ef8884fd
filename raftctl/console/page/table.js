// A table of any length: the rows in sight are asked from the server, window by window; few are kept.

import { h, renew, count, shape } from "./dom.js";
import { ask, Refused } from "./api.js";

const WINDOW = 100;
const WINDOWS_KEPT = 8;
const ROWS_MAX = 400000; // as many as a browser can make room for; the filter finds the others
const OVERSCAN = 8;

// columns: [{name, title, cell(row), sort?: bool, number?: bool, hide?: 1 (on a phone) | 2 (on a tablet too), width?: css}]
export class Table {
  constructor({ path, parameters, columns, key, caption, empty, view, height = 34, stack = 0, sort = "", live = null }) {
    Object.assign(this, { path, parameters, columns, key, caption, empty, view, stack, height });
    this.firstSort = sort;
    this.live = live; // what of `changed` events concerns it
    this.windows = new Map(); // number of the window -> {rows, stale}
    this.loading = new Map();
    this.total = null;
    this.error = null;
    this.stale = 0;
    this.narrow = window.matchMedia("(max-width: 640px)");
    this.body = h("div", { role: "rowgroup", class: "tbody", on: { keydown: (event) => this.keydown(event) } });
    this.head = h("div", { role: "rowgroup", class: "thead" });
    this.note = h("p", { class: "note" });
    this.grid = h("div", { role: "table", class: `table${stack ? " stack" : ""}`, "aria-label": caption }, this.head, this.body);
    this.element = h("div", { class: "tablebox" }, this.grid, this.note);
    this.shape();
    const scroll = () => this.schedule();
    window.addEventListener("scroll", scroll, { passive: true, signal: view.signal });
    window.addEventListener("resize", scroll, { passive: true, signal: view.signal });
    this.narrow.addEventListener("change", () => this.draw(), { signal: view.signal });
    this.renewHead();
    this.load(0);
  }

  get sort() {
    return this.view.query.get("sort") ?? this.firstSort;
  }

  get rowHeight() {
    return this.stack && this.narrow.matches ? this.stack : this.height;
  }

  // The widths of the columns, for each width of the page: `hide` 2 is left out on a tablet, 1 on a phone.
  shape() {
    const widths = (most, number, text) =>
      this.columns
        .filter((column) => (column.hide ?? 0) <= most)
        .map((column) => (most === 0 ? column.phone : column.width) || (column.number ? number : text))
        .join(" ");
    this.grid.style.setProperty("--wide", widths(2, "minmax(4.5rem, .5fr)", "minmax(5rem, 1fr)"));
    this.grid.style.setProperty("--tablet", widths(1, "minmax(4rem, .5fr)", "minmax(5rem, 1fr)"));
    this.grid.style.setProperty("--phone", widths(0, "minmax(3rem, .45fr)", "minmax(0, 1fr)"));
  }

  renewHead() {
    const [name, falling] = this.sort.startsWith("-") ? [this.sort.slice(1), true] : [this.sort, false];
    renew(
      this.head,
      h(
        "div",
        { role: "row", class: "tr" },
        this.columns.map((column) => {
          const sorted = column.sort !== false && column.name === name;
          const label = column.title ?? column.name;
          const inside =
            column.sort === false
              ? label === "" ? h("span", { class: "hidden" }, "actions") : h("span", null, label)
              : h(
                  "button",
                  { type: "button", class: "sort", on: { click: () => this.sortBy(column, sorted, falling) } },
                  label,
                  h("span", { class: "arrow", "aria-hidden": "true" }, sorted ? (falling ? " ▾" : " ▴") : ""),
                );
          return h(
            "div",
            {
              role: "columnheader",
              class: this.cellClass(column, "th"),
              "aria-sort": sorted ? (falling ? "descending" : "ascending") : column.sort === false ? null : "none",
              title: column.about,
            },
            inside,
          );
        }),
      ),
    );
  }

  cellClass(column, base) {
    return `${base}${column.number ? " number" : ""}${column.hide ? ` hide${column.hide}` : ""}${column.wrap ? " wrap" : ""}`;
  }

  sortBy(column, sorted, falling) {
    const next = sorted ? (falling ? column.name : `-${column.name}`) : column.number ? `-${column.name}` : column.name;
    this.view.setQuery({ sort: next });
    this.reset();
  }

  // Another order or filter: the rows shown stay until the new ones are there.
  reset() {
    this.stale += 1;
    for (const kept of this.windows.values()) kept.stale = true;
    this.renewHead();
    const top = this.element.getBoundingClientRect().top + window.scrollY;
    if (window.scrollY > top) window.scrollTo({ top: Math.max(0, top - 120) });
    this.drop = true;
    this.load(this.range()[0] / WINDOW | 0);
  }

  // The same rows, newer: of windows in sight at once, of others when they come into sight.
  refresh() {
    for (const kept of this.windows.values()) kept.stale = true;
    this.schedule();
  }

  changed(event) {
    if (this.live && this.live(event)) this.refresh();
  }

  async load(number) {
    if (this.loading.has(number)) {
      this.again = this.again ?? new Set();
      this.again.add(number);
      return;
    }
    const version = this.stale;
    this.loading.set(number, version);
    const parameters = { ...this.parameters(), offset: number * WINDOW, limit: WINDOW, sort: this.sort, filter: this.view.query.get("filter") };
    let failure = null;
    let answer = null;
    try {
      answer = await ask(this.path, parameters, this.view.signal);
    } catch (error) {
      if (error.name === "AbortError") return;
      failure = error;
    }
    this.loading.delete(number);
    if (version !== this.stale) {
      this.again?.delete(number);
      this.load(number);
      return;
    }
    if (this.again?.delete(number)) {
      const kept = this.windows.get(number);
      if (kept) kept.stale = true;
    }
    if (failure) this.error = failure;
    else {
      this.error = null;
      if (this.drop) this.windows.clear();
      this.drop = false;
      this.total = Math.min(answer.total, ROWS_MAX);
      this.all = answer.total;
      this.windows.delete(number);
      this.windows.set(number, { rows: answer.rows, stale: false });
      while (this.windows.size > WINDOWS_KEPT) this.windows.delete(this.windows.keys().next().value);
      this.silent = answer.unanswered ?? [];
      this.view.counted?.(answer.total);
    }
    this.draw();
  }

  range() {
    const top = -this.body.getBoundingClientRect().top;
    const from = Math.max(0, Math.floor(top / this.rowHeight) - OVERSCAN);
    const seen = Math.ceil(window.innerHeight / this.rowHeight) + 2 * OVERSCAN;
    return [Math.min(from, Math.max(0, (this.total ?? 0) - 1)), Math.min(this.total ?? 0, from + seen)];
  }

  schedule() {
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      if (this.element.isConnected) this.draw();
    });
  }

  row(index) {
    return this.windows.get((index / WINDOW) | 0)?.rows[index % WINDOW];
  }

  draw() {
    if (this.view.signal.aborted) return;
    const [from, to] = this.range();
    const rows = [];
    for (let index = from; index < to; index += 1) rows.push(this.drawRow(index, this.row(index)));
    this.grid.setAttribute("aria-rowcount", String((this.total ?? 0) + 1));
    this.body.style.height = `${(this.total ?? 0) * this.rowHeight}px`;
    renew(this.body, rows);
    rows.forEach((_, place) => {
      const node = this.body.children[place];
      const y = `${(from + place) * this.rowHeight}px`;
      if (node.$y !== y) {
        node.style.transform = `translateY(${y})`;
        node.$y = y;
      }
      if (node.$height !== this.rowHeight) {
        node.style.height = `${this.rowHeight}px`;
        node.$height = this.rowHeight;
      }
    });
    renew(this.note, this.silent?.length ? this.unanswered() : null, this.message());
    this.note.classList.toggle("failed", Boolean(this.error));
    this.element.setAttribute("aria-busy", String(this.total === null && !this.error));
    for (let number = (from / WINDOW) | 0; number <= ((Math.max(from, to - 1) / WINDOW) | 0) && this.total !== null; number += 1) {
      const kept = this.windows.get(number);
      if ((!kept || kept.stale) && !this.loading.has(number) && !this.error) this.load(number);
    }
  }

  // The rows of brokers that did not answer are missing: better said than not seen.
  unanswered() {
    return h("span", { class: "unanswered" }, shape("warning"), this.silent.map((one) => `Broker ${one.broker} is not in here: ${one.message} `).join(""));
  }

  message() {
    if (this.error) {
      return [
        h("strong", null, this.error instanceof Refused ? this.error.message : "The node does not answer."),
        " ",
        h("button", { type: "button", on: { click: () => this.retry() } }, "Try again"),
      ];
    }
    if (this.total === null) return "Loading…";
    if (this.total === 0) return this.view.query.get("filter") ? "Nothing matches the filter." : (this.empty ?? "There is nothing here.");
    if (this.all > ROWS_MAX) return `The first ${count(ROWS_MAX)} of ${count(this.all)}: the filter finds the others.`;
    return "";
  }

  retry() {
    this.error = null;
    this.load(0);
  }

  drawRow(index, row) {
    if (!row) {
      return h("div", { role: "row", class: "tr waiting", "aria-rowindex": index + 2, key: `waiting ${index}` }, h("div", { role: "cell", class: "td" }, "…"));
    }
    return h(
      "div",
      { role: "row", class: "tr", "aria-rowindex": index + 2, key: this.key(row) },
      this.columns.map((column) => {
        const shown = column.cell ? column.cell(row) : column.number ? count(row[column.name]) : row[column.name];
        return h(
          "div",
          { role: "cell", class: `${this.cellClass(column, "td")} live`, "data-label": column.label ?? column.title ?? column.name, title: typeof shown === "string" && shown.length > 12 ? shown : null },
          shown ?? "–",
        );
      }),
    );
  }

  // Arrows go from row to row, the page keys further, along what can be focused in the rows.
  keydown(event) {
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: 15, PageUp: -15, Home: -Infinity, End: Infinity };
    const step = steps[event.key];
    const current = event.target.closest('[role="row"]');
    if (!step || !current || event.ctrlKey || event.altKey || event.metaKey || event.target.matches("input, select, textarea")) return;
    event.preventDefault();
    const index = Number(current.getAttribute("aria-rowindex")) - 2;
    const wanted = Math.max(0, Math.min(this.total - 1, index + step));
    this.focusRow(wanted, 20);
  }

  focusRow(index, tries) {
    const top = this.body.getBoundingClientRect().top + index * this.rowHeight;
    if (top < 150) window.scrollBy(0, top - 150);
    else if (top + 2 * this.rowHeight > window.innerHeight) window.scrollBy(0, top + 2 * this.rowHeight - window.innerHeight);
    this.draw();
    const node = [...this.body.children].find((row) => row.getAttribute("aria-rowindex") === String(index + 2));
    const target = node?.querySelector("a, button");
    if (target) target.focus({ preventScroll: true });
    else if (tries > 0) setTimeout(() => this.focusRow(index, tries - 1), 50);
  }
}

// A short table that is there whole.
export function plain(caption, columns, rows, key, empty = "None.") {
  if (!rows.length) return h("p", { class: "note" }, empty);
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h(
      "table",
      { class: "plain" },
      h("thead", null, h("tr", null, columns.map((column) => h("th", { scope: "col", class: column.number ? "number" : null }, column.title === "" ? h("span", { class: "hidden" }, "actions") : (column.title ?? column.name))))),
      h(
        "tbody",
        null,
        rows.map((row) =>
          h(
            "tr",
            { key: key(row) },
            columns.map((column) => {
              const shown = column.cell ? column.cell(row) : column.number ? count(row[column.name]) : row[column.name];
              return h("td", { class: `live${column.number ? " number" : ""}${column.wrap ? " wrap" : ""}` }, shown ?? "–");
            }),
          ),
        ),
      ),
    ),
  );
}
