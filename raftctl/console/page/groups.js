// Groups with members and lag; transactions, the hanging ones marked.

import { h, count, duration, facts, href, moment, status } from "./dom.js";
import { plain } from "./table.js";
import { visible } from "./messages.js";
import { abortTransaction, deleteGroup, removeMember, resetOffsets } from "./actions.js";

const CALM = { STABLE: "ok", EMPTY: "idle", DEAD: "warning", ONGOING: "info", COMPLETECOMMIT: "ok", COMPLETEABORT: "idle" };

function state(word) {
  const known = CALM[String(word).toUpperCase().replace(/[^A-Z]/g, "")];
  return status(known ?? "warning", word ?? "unknown");
}

export function groups(view) {
  view.title("Groups");
  let table = null;
  const columns = [
    { name: "group", width: "minmax(10rem, 3fr)", phone: "minmax(7rem, 2fr)", cell: (row) => h("a", { href: href("groups", row.group) }, h("bdi", null, visible(row.group))) },
    { name: "state", width: "minmax(8rem, 1fr)", phone: "minmax(6rem, 1fr)", cell: (row) => state(row.state) },
    { name: "type", hide: 1 },
    { name: "protocol", hide: 2 },
    { name: "members", number: true, sort: false, width: "5.6rem", hide: 1 },
    { name: "coordinator", number: true, width: "6.6rem", hide: 2 },
    { name: "lag", number: true, width: "6rem", phone: "4rem", sort: false },
  ];
  const tools = view.filter("Filter groups", () => table);
  table = view.table({ path: ["groups"], columns, caption: "Groups", key: (row) => row.group, sort: "group", empty: "There is no group.", live: (event) => event.groups, poll: 1000 });
  view.root.append(tools, table.element);
}

export function group(view, name) {
  let topics = [];
  view.title(visible(name), {
    trail: [["#/groups", "Groups"]],
    buttons: [
      ["Reset offsets", () => resetOffsets(name, topics, () => load())],
      ["Delete group", () => deleteGroup(name, () => (location.hash = "#/groups")), true],
    ],
  });
  const slot = h("div");
  view.root.append(slot);
  const load = view.document(["groups", name], {
    slot,
    poll: 1000,
    concerns: (event) => event.groups,
    draw: (row) => {
      topics = [...new Set((row.offsets ?? []).map((one) => one.topic))];
      const lag = (row.offsets ?? []).reduce((sum, one) => sum + (one.lag ?? 0), 0);
      const owner = new Map();
      for (const member of row.members ?? []) for (const part of member.assignment ?? []) for (const number of part.partitions) owner.set(`${part.topic} ${number}`, member);
      return [
        facts([
          ["state", state(row.state)],
          ["type", row.type ?? "–"],
          ["members", count(row.member_count ?? row.members?.length)],
          ["lag", count(lag)],
          ["coordinator", row.coordinator === null || row.coordinator === undefined ? "–" : h("a", { href: href("brokers", row.coordinator) }, `broker ${row.coordinator}`)],
          row.epoch === null || row.epoch === undefined ? null : ["epoch", count(row.epoch)],
        ]),
        h("h2", null, "Members"),
        plain(
          "Members",
          [
            { name: "client_id", title: "client id", cell: (one) => h("bdi", null, visible(one.client_id ?? "–")) },
            { name: "id", title: "member", cell: (one) => h("code", null, visible(one.id)) },
            { name: "instance", title: "instance id", cell: (one) => (one.instance ? h("bdi", null, visible(one.instance)) : "–") },
            { name: "host" },
            { name: "assignment", title: "partitions", wrap: true, cell: assignment },
            { name: "remove", title: "", cell: (one) => h("button", { type: "button", class: "small", "aria-label": `Remove member ${one.id}`, on: { click: () => removeMember(name, one, () => load()) } }, "Remove") },
          ],
          row.members ?? [],
          (one) => one.id,
          "No member is in the group.",
        ),
        h("h2", null, "Offsets"),
        plain(
          "Offsets",
          [
            { name: "topic", cell: (one) => h("a", { href: `${href("topics", one.topic)}?tab=partitions` }, one.topic) },
            { name: "partition", number: true },
            { name: "committed", number: true },
            { name: "end", title: "log end", number: true },
            { name: "lag", number: true },
            { name: "owner", title: "client id", cell: (one) => visible(owner.get(`${one.topic} ${one.partition}`)?.client_id ?? "–") },
            { name: "metadata", wrap: true, cell: (one) => (one.metadata ? h("bdi", null, visible(one.metadata)) : "–") },
          ],
          row.offsets ?? [],
          (one) => `${one.topic} ${one.partition}`,
          "The group has committed no offset.",
        ),
        row.offset_count > (row.offsets?.length ?? 0) ? h("p", { class: "note" }, `${count(row.offsets.length)} of ${count(row.offset_count)} partitions.`) : null,
      ];
    },
  });
}

function assignment(member) {
  const parts = (member.assignment ?? []).map((one) => `${one.topic}: ${ranges(one.partitions)}`);
  return parts.length ? parts.join("; ") : "–";
}

// [0, 1, 2, 5] -> "0-2, 5"
export function ranges(numbers) {
  const sorted = [...numbers].sort((a, b) => a - b);
  const found = [];
  for (const number of sorted) {
    const last = found.at(-1);
    if (last && last[1] === number - 1) last[1] = number;
    else found.push([number, number]);
  }
  return found.map(([from, to]) => (from === to ? String(from) : `${from}-${to}`)).join(", ");
}

function transactionState(row) {
  return row.hanging ? status("error", row.state) : state(row.state);
}

// One that hangs is known by its producer and the partition that it holds up: no coordinator knows its id.
function transactionName(row) {
  if (row.transactional_id !== null) return h("a", { href: href("transactions", row.transactional_id) }, h("bdi", null, visible(row.transactional_id)));
  return h("a", { href: `${href("topics", row.topic)}?tab=messages&partition=${row.partition}&from=${row.start_offset}` }, `${row.topic}-${row.partition}, from offset ${count(row.start_offset)}`);
}

function age(row) {
  return row.started_ms && row.started_ms > 0 ? duration(Math.max(0, Date.now() - row.started_ms)) : "–";
}

export function transactions(view) {
  view.title("Transactions", { lead: "One that hangs keeps consumers of committed records from going on; abort it when its producer is gone." });
  let table = null;
  const columns = [
    { name: "transactional_id", title: "transactional id", width: "minmax(10rem, 2fr)", phone: "minmax(7rem, 1.4fr)", cell: transactionName },
    { name: "state", width: "minmax(9rem, 1fr)", phone: "minmax(7rem, 1fr)", cell: transactionState },
    { name: "started_ms", title: "age", number: true, sort: false, phone: "4.6rem", cell: age },
    { name: "timeout_ms", title: "timeout", number: true, sort: false, hide: 1, cell: (row) => duration(row.timeout_ms) },
    { name: "producer_id", title: "producer", number: true, hide: 1 },
    { name: "epoch", number: true, sort: false, width: "4.6rem", hide: 2 },
    { name: "partitions", number: true, sort: false, width: "6rem", hide: 2 },
    { name: "coordinator", number: true, width: "6.6rem", hide: 2, cell: (row) => (row.coordinator === null || row.coordinator < 0 ? "–" : String(row.coordinator)) },
    { name: "abort", title: "", sort: false, width: "5.4rem", hide: 1, cell: (row) => (row.hanging ? h("button", { type: "button", class: "small", "aria-label": `Abort the transaction of producer ${row.producer_id}`, on: { click: () => abortTransaction(row, () => table.refresh()) } }, "Abort") : "") },
  ];
  const tools = view.filter("Filter transactions", () => table);
  table = view.table({
    path: ["transactions"],
    columns,
    caption: "Transactions",
    key: (row) => `${row.transactional_id} ${row.producer_id} ${row.topic} ${row.partition}`,
    sort: "-hanging",
    empty: "No producer has a transactional id.",
    live: () => false,
    poll: 1000,
  });
  view.root.append(tools, table.element);
}

export function transaction(view, id) {
  let seen = null;
  view.title(visible(id), { trail: [["#/transactions", "Transactions"]], buttons: [["Abort transaction", () => seen && abortTransaction(seen, () => load()), true]] });
  const slot = h("div");
  view.root.append(slot);
  const load = view.document(["transactions", id], {
    slot,
    poll: 1000,
    draw: (row) => {
      seen = row;
      return [
        facts([
          ["state", transactionState(row)],
          ["producer", String(row.producer_id)],
          ["epoch", count(row.epoch)],
          ["started", moment(row.started_ms)],
          ["age", age(row)],
          ["timeout", duration(row.timeout_ms)],
          ["coordinator", row.coordinator === null || row.coordinator === undefined ? "–" : h("a", { href: href("brokers", row.coordinator) }, `broker ${row.coordinator}`)],
        ]),
        h("h2", null, "Partitions"),
        plain(
          "Partitions of the transaction",
          [
            { name: "topic", cell: (one) => h("a", { href: `${href("topics", one.topic)}?tab=partitions` }, one.topic) },
            { name: "partitions", cell: (one) => ranges(one.partitions) },
          ],
          row.topics ?? [],
          (one) => one.topic,
          "No partition is in it.",
        ),
      ];
    },
  });
}
