// Configs of anything, rules of access, quotas.

import { h, renew, href, count } from "./dom.js";
import { visible } from "./messages.js";
import { alterConfig, alterQuota, createAcl, deleteAcl } from "./actions.js";

const TYPES = ["broker", "topic", "group", "client-metrics"];

// What was set stands first; all defaults on demand.
export function configTable(type, name, configs, view, done) {
  const text = (view.query.get("config") ?? "").toLowerCase();
  const all = view.query.has("defaults");
  const isSet = (one) => !/default/i.test(one.source ?? "");
  const wanted = configs.filter((one) => (all || isSet(one) || text) && one.name.toLowerCase().includes(text)).sort((a, b) => isSet(b) - isSet(a) || (a.name < b.name ? -1 : 1));
  return h(
    "div",
    { class: "configs", key: `configs ${type} ${name}` },
    h(
      "div",
      { class: "tools" },
      h("div", { class: "search" }, h("input", { type: "search", "aria-label": "Filter configs", placeholder: "Filter configs  ( / )", value: view.query.get("config") ?? "", spellcheck: "false", on: { input: (event) => { view.setQuery({ config: event.target.value }); done(); } } })),
      h("label", { class: "tick" }, h("input", { type: "checkbox", checked: all, on: { change: (event) => { view.setQuery({ defaults: event.target.checked ? "1" : null }); done(); } } }), "defaults too"),
      h("button", { type: "button", on: { click: () => alterConfig(type, name, null, done) } }, "Set a config"),
      h("span", { class: "total" }, `${count(wanted.length)} of ${count(configs.length)}`),
    ),
    wanted.length
      ? h(
          "ul",
          { class: "settings", "aria-label": `Configs of ${type} ${name}` },
          wanted.map((one) =>
            h(
              "li",
              { key: one.name },
              h("div", { class: "name" }, h("code", null, one.name), one.documentation ? h("details", null, h("summary", { "aria-label": `About ${one.name}` }, "about"), h("p", null, one.documentation)) : null),
              h("div", { class: "value live" }, one.sensitive ? h("em", null, "secret") : h("code", null, h("bdi", null, one.value === "" ? "(empty)" : visible(one.value ?? "–")))),
              h("div", { class: "source" }, source(one)),
              h("div", { class: "does" }, one.read_only ? h("span", { class: "hint" }, "read-only") : h("button", { type: "button", class: "small", "aria-label": `Change ${one.name}`, on: { click: () => alterConfig(type, name, one, done) } }, "Change")),
            ),
          ),
        )
      : h("p", { class: "note" }, text ? "Nothing matches the filter." : "Nothing is set: the defaults hold."),
  );
}

function source(one) {
  return String(one.source ?? "").toLowerCase().replaceAll("_", " ").replace(/ config$/, "");
}

export function configs(view, type, ...rest) {
  const name = rest.length ? rest.join("/") : null;
  view.title(type && name !== null ? `Configs of ${type} ${name}` : "Configs", { trail: type ? [["#/configs", "Configs"]] : [], lead: "What is set on brokers, topics, groups and clients' metrics, and where each value comes from." });
  const kind = h("select", null, TYPES.map((one) => h("option", { value: one, selected: one === (type ?? "broker") }, one)));
  const box = h("input", { type: "text", value: name ?? "", spellcheck: "false", autocomplete: "off", required: true });
  const form = h(
    "form",
    { class: "tools", on: { submit: (event) => (event.preventDefault(), box.value.trim() && (location.hash = href("configs", kind.value, box.value.trim()))) } },
    h("label", { class: "choice" }, h("span", null, "Kind"), kind),
    h("label", { class: "choice wide" }, h("span", null, "Name"), box),
    h("button", { type: "submit", class: "primary" }, "Show"),
  );
  const slot = h("div");
  view.root.append(form, slot);
  if (!type || name === null) {
    renew(slot, h("p", { class: "note" }, "Name a broker by its id, a topic or a group by its name."));
    return;
  }
  const load = view.document(["configs", type, name], { slot, concerns: (event) => event.configs, draw: (answer) => configTable(type, name, answer.configs ?? [], view, () => load()) });
}

export function acls(view) {
  let table = null;
  view.title("ACLs", { lead: "Who may do what. A DENY wins over every ALLOW; super users need no rule.", buttons: [["Create a rule", () => createAcl(() => table.refresh())]] });
  const columns = [
    { name: "principal", width: "minmax(9rem, 1.6fr)", cell: (row) => h("bdi", null, visible(row.principal)) },
    { name: "permission", width: "6.6rem", cell: (row) => h("span", { class: `permission ${String(row.permission).toLowerCase()}` }, row.permission) },
    { name: "operation", width: "minmax(7rem, 1fr)" },
    { name: "resource_type", title: "resource", width: "minmax(6rem, .8fr)" },
    { name: "resource_name", title: "name", width: "minmax(8rem, 1.6fr)", cell: (row) => h("bdi", null, visible(row.resource_name)) },
    { name: "pattern_type", title: "pattern", hide: 2, width: "6rem" },
    { name: "host", hide: 1, width: "minmax(5rem, .6fr)" },
    { name: "delete", title: "", sort: false, width: "5.4rem", cell: (row) => h("button", { type: "button", class: "small", "aria-label": `Delete the rule of ${row.principal} on ${row.resource_name}`, on: { click: () => deleteAcl(row, () => table.refresh()) } }, "Delete") },
  ];
  const tools = view.filter("Filter rules", () => table);
  table = view.table({ path: ["acls"], columns, caption: "Rules", stack: 104, key: (row) => Object.values(row).join(" "), sort: "principal", empty: "There is no rule.", live: (event) => event.acls });
  view.root.append(tools, table.element);
}

export function quotas(view) {
  let table = null;
  view.title("Quotas", { lead: "Limits of users, client ids and addresses. The most specific one holds.", buttons: [["Set a quota", () => alterQuota(null, () => table.refresh())]] });
  const part = (name, title) => ({ name, title, cell: (row) => (row[name] === null || row[name] === undefined ? "–" : h("bdi", null, visible(row[name]))) });
  const columns = [
    part("user"),
    part("client_id", "client id"),
    { ...part("ip", "IP address"), width: "minmax(6rem, .8fr)" },
    { name: "key", title: "limit", width: "minmax(9rem, 1.2fr)" },
    { name: "value", number: true, width: "8rem" },
    { name: "change", title: "", sort: false, width: "5.6rem", cell: (row) => h("button", { type: "button", class: "small", "aria-label": `Change ${row.key} of ${row.user ?? row.client_id ?? row.ip}`, on: { click: () => alterQuota(row, () => table.refresh()) } }, "Change") },
  ];
  const tools = view.filter("Filter quotas", () => table);
  table = view.table({ path: ["quotas"], columns, caption: "Quotas", stack: 104, key: (row) => `${row.user} ${row.client_id} ${row.ip} ${row.key}`, sort: "user", empty: "There is no quota.", live: (event) => event.quotas });
  view.root.append(tools, table.element);
}
