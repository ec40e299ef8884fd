// Brokers, one broker with its log directories, and partitions on the move.

import { h, svg, bytes, count, facts, href, moment, status } from "./dom.js";
import { plain } from "./table.js";
import { configTable } from "./access.js";
import { cancelReassignment, unregisterBroker } from "./actions.js";

function state(row) {
  if (row.offline_directories?.length) return status("error", "directory offline");
  if (row.fenced) return status("error", "fenced");
  if (row.in_controlled_shutdown) return status("warning", "shutting down");
  return status("ok", "in service");
}

export function brokers(view) {
  view.title("Brokers");
  let table = null;
  const columns = [
    { name: "id", title: "broker", width: "6rem", phone: "4.4rem", cell: (row) => h("a", { href: href("brokers", row.id) }, String(row.id)) },
    { name: "state", sort: false, width: "minmax(8rem, 1fr)", cell: state },
    { name: "rack", hide: 1 },
    { name: "endpoints", sort: false, hide: 1, width: "minmax(10rem, 2fr)", cell: (row) => endpoints(row) },
    { name: "leaders", number: true },
    { name: "replicas", number: true },
    { name: "epoch", number: true, hide: 2 },
  ];
  const tools = view.filter("Filter brokers", () => table);
  table = view.table({ path: ["brokers"], columns, caption: "Brokers", key: (row) => row.id, sort: "id", live: (event) => event.brokers || event.topics === null || event.topics?.length > 0 });
  view.root.append(tools, table.element);
}

function endpoints(row) {
  return (row.endpoints ?? []).map((one) => (typeof one === "string" ? one : `${one.name ?? one.listener ?? ""}://${one.host}:${one.port}`)).join(", ");
}

export function broker(view, id) {
  const buttons = [["Unregister", () => unregisterBroker(Number(id), () => (location.hash = "#/brokers")), true]];
  view.title(`Broker ${id}`, { trail: [["#/brokers", "Brokers"]], buttons });
  const slot = h("div");
  view.root.append(slot);
  const load = view.document(["brokers", id], {
    slot,
    poll: 5000,
    concerns: (event) => event.brokers || event.configs,
    draw: (row) => [
      facts([
        ["state", state(row)],
        ["rack", row.rack ?? "–"],
        ["leaders", count(row.leaders)],
        ["replicas", count(row.replicas)],
        ["broker epoch", count(row.epoch)],
        row.registered_ms ? ["registered", moment(row.registered_ms)] : null,
        ["endpoints", endpoints(row)],
      ]),
      h("h2", null, "Log directories"),
      row.log_directories
        ? plain(
            "Log directories",
            [
              { name: "path", wrap: true },
              { name: "state", cell: (one) => (one.offline ? status("error", "offline") : status("ok", "online")) },
              { name: "partitions", number: true },
              { name: "size", title: "logs", number: true, cell: (one) => bytes(one.size) },
              { name: "usable", title: "free", number: true, cell: (one) => [meter(one), bytes(one.usable)] },
              { name: "total", title: "of", number: true, cell: (one) => bytes(one.total) },
            ],
            row.log_directories,
            (one) => one.path,
          )
        : h("p", { class: "note" }, "The broker does not answer."),
      h("h2", null, "Configs"),
      configTable("broker", String(id), row.configs ?? [], view, () => load()),
    ],
  });
}

function meter(one) {
  if (!one.total || one.usable === null) return null;
  const used = 1 - one.usable / one.total;
  const level = used > 0.95 ? "error" : used > 0.85 ? "warning" : "ok";
  return svg("svg", { class: `meter ${level}`, viewBox: "0 0 60 6", role: "img", "aria-label": `${Math.round(used * 100)} % used` }, svg("rect", { width: 60, height: 6, class: "back" }), svg("rect", { width: 60 * used, height: 6, class: "front" }));
}

export function reassignments(view) {
  view.title("Reassignments", { lead: "Partitions that move to other brokers. Progress is the share of the new replicas' data that is there." });
  let table = null;
  const list = (ids) => (ids ?? []).join(", ") || "–";
  const columns = [
    { name: "topic", width: "minmax(8rem, 2fr)", cell: (row) => h("a", { href: `${href("topics", row.topic)}?tab=partitions` }, row.topic) },
    { name: "partition", title: "partition", number: true },
    { name: "progress", width: "minmax(7rem, 1fr)", phone: "7.4rem", cell: (row) => progress(row.progress) },
    { name: "adding", hide: 1, sort: false, cell: (row) => list(row.adding) },
    { name: "removing", sort: false, hide: 1, cell: (row) => list(row.removing) },
    { name: "replicas", sort: false, hide: 1, cell: (row) => list(row.replicas) },
    { name: "isr", title: "ISR", sort: false, hide: 2, cell: (row) => list(row.isr) },
    { name: "cancel", title: "", sort: false, hide: 1, width: "6.5rem", cell: (row) => h("button", { type: "button", class: "small", "aria-label": `Cancel the reassignment of ${row.topic}-${row.partition}`, on: { click: () => cancelReassignment(row.topic, row.partition, () => table.refresh()) } }, "Cancel") },
  ];
  const tools = view.filter("Filter by topic", () => table);
  table = view.table({ path: ["reassignments"], columns, caption: "Reassignments", key: (row) => `${row.topic} ${row.partition}`, sort: "topic", empty: "No partition is on the move.", live: () => true, poll: 1000 });
  view.root.append(tools, table.element);
}

export function progress(part) {
  if (part === null || part === undefined) return "–";
  const text = `${Math.floor(part * 100)} %`;
  return h("span", { class: "progress" }, svg("svg", { class: "meter ok", viewBox: "0 0 60 6", role: "img", "aria-label": text }, svg("rect", { width: 60, height: 6, class: "back" }), svg("rect", { width: 60 * part, height: 6, class: "front" })), h("span", null, text));
}
