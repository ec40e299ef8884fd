// What is wrong now and what to do; and how large the cluster is.

import { h, renew, count, duration, href, shape, status } from "./dom.js";

export function overview(view) {
  view.title("Overview");
  const draw = () => {
    const seen = view.live.overview;
    if (!seen) {
      renew(view.root, h("p", { class: "note" }, view.live.state === "lost" ? "The node does not answer; the page goes on trying." : "Loading…"));
      return;
    }
    renew(view.root, verdict(seen), numbers(seen), ...wrong(seen), leading(seen, view.live.quorum));
  };
  view.listen((kind) => kind !== "changed" && draw());
  draw();
}

function verdict(seen) {
  if (seen.offline === null) return unseen();
  const errors = seen.offline > 0 || seen.controller?.id === null || seen.problems.some((one) => one.severity === "error");
  const warnings = seen.problem_count > 0;
  const level = errors ? "error" : warnings ? "warning" : "ok";
  const words = errors
    ? "Something does not work"
    : warnings
      ? "Works, with something to look at"
      : "All is well";
  const why = [
    seen.offline ? `${count(seen.offline)} ${plural(seen.offline, "partition")} without a leader` : null,
    seen.under_min_isr ? `${count(seen.under_min_isr)} below min.insync.replicas` : null,
    seen.under_replicated ? `${count(seen.under_replicated)} under-replicated` : null,
    seen.brokers.fenced ? `${count(seen.brokers.fenced)} ${plural(seen.brokers.fenced, "broker")} fenced` : null,
  ].filter(Boolean);
  return h(
    "section",
    { class: `verdict ${level}`, key: "verdict", "aria-label": "Health" },
    shape(level),
    h("div", null, h("strong", null, words), h("p", null, why.length ? why.join(", ") : "Every partition has a leader and all its replicas in sync.")),
  );
}

// Who may not describe the cluster gets no counts: that is no health.
function unseen() {
  return h("section", { class: "verdict unseen", key: "verdict", "aria-label": "Health" }, shape("idle"), h("div", null, h("strong", null, "Health is not shown to you"), h("p", null, "This principal may not DESCRIBE the cluster.")));
}

function plural(number, word) {
  return number === 1 ? word : `${word}s`;
}

function numbers(seen) {
  const card = (label, value, path, level, note) =>
    h(
      "li",
      { key: label, class: level ? `card ${level}` : "card" },
      h("a", { href: path }, h("span", { class: "label" }, label), h("span", { class: "value live" }, value), h("span", { class: "sub" }, level && level !== "ok" ? shape(level) : null, note)),
    );
  const alive = seen.brokers.total - seen.brokers.fenced;
  return h(
    "ul",
    { class: "cards", key: "cards", "aria-label": "Counts" },
    card("Controller", seen.controller?.id ?? "none", "#/quorum", seen.controller?.id === null || seen.controller?.id === undefined ? "error" : null, `epoch ${count(seen.controller?.epoch)}`),
    card("Brokers", seen.brokers.fenced ? `${count(alive)} of ${count(seen.brokers.total)}` : count(seen.brokers.total), "#/brokers", seen.brokers.fenced ? "warning" : null, seen.brokers.fenced ? `${count(seen.brokers.fenced)} fenced` : "none fenced"),
    card("Topics", count(seen.topics), "#/topics", null, `${count(seen.partitions)} ${plural(seen.partitions, "partition")}`),
    card("Offline", count(seen.offline), "#/topics?only=problems", seen.offline ? "error" : null, "without a leader"),
    card("Under-replicated", count(seen.under_replicated), "#/topics?only=problems", seen.under_replicated ? "warning" : null, `${count(seen.under_min_isr)} below min ISR`),
    card("Reassigning", count(seen.reassigning), "#/reassignments", null, "on the move"),
  );
}

function wrong(seen) {
  if (!seen.problem_count) return [];
  return [
    h("h2", { key: "wrong" }, "What is wrong now, and what to do"),
    h("ul", { class: "problemlist", key: "problems" }, seen.problems.map((one) => item(one, seen.served_ms))),
    seen.problem_count > seen.problems.length ? h("p", { key: "more" }, h("a", { href: "#/problems" }, `All ${count(seen.problem_count)} problems`)) : null,
  ];
}

const SEVERITY = { error: "error", warning: "warning", info: "info" };

export function subject(one) {
  const { kind, name, partition } = one.subject ?? {};
  const text = partition === undefined || partition === null ? `${kind} ${name}` : `${name}-${partition}`;
  const paths = { topic: href("topics", name ?? ""), partition: `${href("topics", name ?? "")}?tab=partitions`, broker: href("brokers", name ?? ""), group: href("groups", name ?? ""), transaction: href("transactions", name ?? ""), voter: "#/quorum", quorum: "#/quorum", cluster: "#/" };
  const path = partition !== undefined && partition !== null ? paths.partition : paths[kind];
  return path ? h("a", { href: path }, text) : h("span", null, text);
}

function item(one, now) {
  const { kind, name, partition } = one.subject ?? {};
  return h(
    "li",
    { key: `${one.what} ${kind} ${name} ${partition}`, class: one.severity },
    shape(SEVERITY[one.severity]),
    h(
      "div",
      null,
      h("p", { class: "what" }, h("span", { class: "hidden" }, `${one.severity}: `), one.what, " ", subject(one)),
      one.do ? h("p", { class: "do" }, h("span", { class: "label" }, "Do: "), ...commands(one.do)) : null,
    ),
    h("span", { class: "since" }, one.since_ms ? `for ${duration(Math.max(0, now - one.since_ms))}` : ""),
  );
}

// `command` in backquotes becomes code.
function commands(text) {
  return text.split("`").map((part, place) => (place % 2 ? h("code", null, part) : part));
}

function leading(seen, quorum) {
  const last = quorum?.timeline?.at(-1);
  return h(
    "p",
    { class: "foot", key: "foot" },
    `Metadata offset `,
    h("span", { class: "live" }, count(seen.metadata_offset)),
    `, metadata.version ${seen.metadata_version ?? "–"}`,
    seen.roles ? `, this node: ${[].concat(seen.roles).join(", ")}` : "",
    last ? `. Last election: ${last.text ?? last.kind}, ${duration(Math.max(0, Date.now() - last.at_ms))} ago.` : ".",
  );
}

export function problems(view) {
  view.title("Problems", { lead: "What is wrong now, the worst first, each with its remedy." });
  let table = null;
  const columns = [
    { name: "severity", width: "7rem", phone: "5.4rem", cell: (row) => status(SEVERITY[row.severity], row.severity) },
    { name: "what", label: "", width: "minmax(12rem, 2fr)", wrap: true, cell: (row) => row.what },
    { name: "subject", label: "", width: "minmax(8rem, 1fr)", sort: false, cell: subject },
    { name: "since_ms", title: "for", number: true, hide: 2, cell: (row) => (row.since_ms ? duration(Math.max(0, Date.now() - row.since_ms)) : "–") },
    { name: "do", title: "what to do", width: "minmax(12rem, 2fr)", wrap: true, hide: 2, sort: false, cell: (row) => h("span", null, ...commands(row.do ?? "")) },
  ];
  const tools = view.filter("Filter problems", () => table);
  table = view.table({ path: ["problems"], columns, caption: "Problems", height: 58, stack: 138, key: (row) => `${row.what} ${row.subject?.kind} ${row.subject?.name} ${row.subject?.partition}`, empty: "Nothing is wrong.", live: () => true, poll: 5000 });
  view.root.append(tools, table.element);
}
