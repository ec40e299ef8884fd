// Topics by windows, and one topic: partitions, configs, messages.

import { h, bytes, count, facts, href, status } from "./dom.js";
import { anyTopic, concernsTopic } from "./view.js";
import { configTable } from "./access.js";
import { browse } from "./messages.js";
import { createPartitions, createTopic, deleteRecords, deleteTopic, electLeaders, reassign } from "./actions.js";

function health(row) {
  if (row.offline) return status("error", `${count(row.offline)} offline`);
  if (row.under_min_isr) return status("error", `${count(row.under_min_isr)} below min ISR`);
  if (row.under_replicated) return status("warning", `${count(row.under_replicated)} under-replicated`);
  if (row.reassigning) return status("info", `${count(row.reassigning)} reassigning`);
  return status("ok", "in sync");
}

export function topics(view) {
  view.title("Topics", {
    buttons: [
      ["Create a topic", () => createTopic(() => table.refresh())],
      ["Elect preferred leaders", () => electLeaders(null, null, () => table.refresh())],
    ],
  });
  let table = null;
  const columns = [
    { name: "name", title: "topic", width: "minmax(11rem, 3fr)", phone: "minmax(6rem, 1.2fr)", cell: (row) => [h("a", { href: href("topics", row.name) }, row.name), row.internal ? h("span", { class: "tag" }, "internal") : null] },
    { name: "health", sort: false, width: "minmax(11rem, 1.2fr)", phone: "minmax(8rem, 1fr)", cell: health },
    { name: "partitions", title: "partitions", number: true, width: "6.2rem", hide: 1 },
    { name: "replication_factor", title: "replicas", number: true, width: "5.4rem", hide: 1 },
    { name: "under_replicated", title: "under-repl.", number: true, width: "6.4rem", hide: 2 },
    { name: "offline", number: true, width: "5rem", hide: 2 },
    { name: "size", number: true, sort: false, width: "6rem", hide: 1, cell: (row) => bytes(row.size) },
  ];
  const tools = view.filter("Filter topics", () => table, view.tick("only problems", "only", () => table.reset()));
  table = view.table({
    path: ["topics"],
    parameters: () => ({ only: view.query.has("only") ? "problems" : null }),
    columns,
    caption: "Topics",
    key: (row) => row.name,
    sort: "name",
    empty: view.query.has("only") ? "No topic has a problem." : "There is no topic yet.",
    live: anyTopic,
    poll: 2000,
  });
  view.root.append(tools, table.element);
}

const TABS = [
  ["partitions", "Partitions"],
  ["configs", "Configs"],
  ["messages", "Messages"],
];

export function topic(view, name) {
  const known = { partitions: 1 };
  view.title(name, {
    trail: [["#/topics", "Topics"]],
    buttons: [
      ["Add partitions", () => createPartitions(name, known.partitions)],
      ["Set a config", () => (location.hash = `${href("topics", name)}?tab=configs`)],
      ["Delete topic", () => deleteTopic(name, () => (location.hash = "#/topics")), true],
    ],
  });
  const about = h("div");
  const tab = TABS.some(([id]) => id === view.query.get("tab")) ? view.query.get("tab") : "partitions";
  const tabs = h(
    "nav",
    { class: "tabs", "aria-label": "Parts of the topic" },
    TABS.map(([id, text]) => h("a", { href: `${href("topics", name)}?tab=${id}`, "aria-current": id === tab ? "page" : null }, text)),
  );
  const body = h("div");
  view.root.append(about, tabs, body);
  const load = view.document(["topics", name], {
    slot: about,
    concerns: (event) => concernsTopic(name)(event) || event.configs,
    draw: (row) => {
      known.partitions = row.partition_count;
      return facts([
        ["partitions", count(row.partition_count)],
        ["topic id", h("code", null, row.id)],
        ["cleanup.policy", setting(row, "cleanup.policy")],
        ["retention.ms", setting(row, "retention.ms")],
        ["min.insync.replicas", setting(row, "min.insync.replicas")],
        row.internal ? ["kind", "internal"] : null,
      ]);
    },
  });
  if (tab === "partitions") body.append(...partitions(view, name));
  else if (tab === "messages") browse(view, body, name);
  else {
    const slot = h("div");
    body.append(slot);
    const again = () => (reload(), load());
    const reload = view.document(["topics", name], { slot, concerns: (event) => event.configs, draw: (row) => configTable("topic", name, row.configs ?? [], view, again) });
  }
}

function setting(row, key) {
  return (row.configs ?? []).find((one) => one.name === key)?.value ?? undefined;
}

function partitions(view, name) {
  let table = null;
  const follower = (row, id) => {
    const lag = row.followers?.find((one) => one.broker_id === id)?.lag;
    const inside = row.isr?.includes(id);
    const what = id === row.leader ? "leader" : inside ? "in sync" : row.elr?.includes(id) ? "eligible leader" : "out of sync";
    return h("span", { class: `replica ${id === row.leader ? "leads" : inside ? "" : "out"}`, title: `broker ${id}: ${what}${lag ? `, ${count(lag)} records behind` : ""}` }, String(id), h("span", { class: "hidden" }, ` ${what}`), lag ? h("small", null, `−${count(lag)}`) : null);
  };
  const state = (row) => {
    if (row.leader === null || row.leader < 0 || row.offline === true) return status("error", "no leader");
    if (row.adding?.length || row.removing?.length) return status("info", "reassigning");
    if ((row.isr?.length ?? 0) < (row.replicas?.length ?? 0)) return status("warning", `${row.isr.length} of ${row.replicas.length} in sync`);
    if (row.leader !== row.replicas?.[0]) return status("info", "leader not preferred");
    return status("ok", "in sync");
  };
  const columns = [
    { name: "partition", width: "5rem", phone: "2.8rem", cell: (row) => h("a", { href: `${href("topics", name)}?tab=messages&partition=${row.partition}&from=latest`, title: "messages" }, String(row.partition)) },
    { name: "isr", title: "state", width: "minmax(9.4rem, 1fr)", phone: "minmax(7.4rem, 1fr)", cell: state },
    { name: "leader", number: true, width: "3.8rem", hide: 1, cell: (row) => (row.leader === null || row.leader < 0 ? "none" : String(row.leader)) },
    { name: "replicas", title: "replicas, lag", sort: false, width: "minmax(8.6rem, 1.4fr)", phone: "minmax(5rem, 1fr)", cell: (row) => h("span", { class: "replicas" }, (row.replicas ?? []).map((id) => follower(row, id))) },
    { name: "elr", title: "ELR", sort: false, width: "2.8rem", hide: 2, cell: (row) => (row.elr ?? []).join(", ") || "–" },
    { name: "leader_epoch", title: "epoch", number: true, width: "3.6rem", hide: 2 },
    { name: "log_start", title: "start", number: true, hide: 2, sort: false },
    { name: "high_watermark", title: "high watermark", number: true, hide: 1, sort: false, width: "7rem" },
    { name: "size", number: true, sort: false, width: "4.8rem", hide: 1, cell: (row) => bytes(row.size) },
    { name: "actions", title: "", sort: false, width: "2.4rem", phone: "2.4rem", cell: (row) => more(name, row, () => table.refresh()) },
  ];
  const tools = view.filter("Filter by number", () => table);
  table = view.table({
    path: ["topics", name, "partitions"],
    columns,
    caption: `Partitions of ${name}`,
    key: (row) => row.partition,
    sort: "partition",
    live: concernsTopic(name),
    poll: 1000,
  });
  return [tools, table.element];
}

function more(name, row, done) {
  const choose = (event) => {
    const chosen = event.target.value;
    event.target.value = "";
    ({
      elect: () => electLeaders(name, row.partition, done),
      reassign: () => reassign(name, row.partition, row.replicas ?? [], done),
      records: () => deleteRecords(name, row.partition, done),
    })[chosen]?.();
  };
  return h(
    "select",
    { class: "more", "aria-label": `Actions for partition ${row.partition}`, on: { change: choose } },
    h("option", { value: "" }, "⋯"),
    h("option", { value: "elect" }, "Elect a leader"),
    h("option", { value: "reassign" }, "Reassign"),
    h("option", { value: "records" }, "Delete records"),
  );
}
