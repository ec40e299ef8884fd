// Who leads, how far each replica is behind, and the elections as a timeline.

import { h, svg, renew, count, duration, facts, moment, shape, status } from "./dom.js";
import { plain } from "./table.js";

const TIMELINE_MIN_MS = 60000;
const LANE = 26;

export function quorum(view) {
  view.title("Quorum", { lead: "The controllers that keep the metadata log: the leader writes, voters elect it, observers follow." });
  const top = h("div");
  const line = h("section", { "aria-label": "Elections" });
  const bottom = h("div");
  view.root.append(top, line, bottom);
  const draw = () => {
    const seen = view.live.quorum;
    if (!seen) {
      renew(top, h("p", { class: "note" }, "Loading…"));
      return;
    }
    renew(top, summary(seen), h("h2", { key: "voters" }, "Voters"), replicas("Voters", seen.voters, seen), h("h2", { key: "observers" }, "Observers"), replicas("Observers", seen.observers ?? [], seen));
    renew(line, h("h2", { key: "h" }, "Elections"), timeline(seen, view.root.clientWidth - 26));
    renew(bottom, elections(seen));
  };
  view.listen((kind) => kind === "quorum" && draw());
  window.addEventListener("resize", draw, { signal: view.signal });
  view.every(5000, draw);
  draw();
}

function summary(seen) {
  return facts([
    ["leader", seen.leader_id === null || seen.leader_id < 0 ? status("error", "none") : String(seen.leader_id)],
    ["epoch", count(seen.epoch)],
    ["high watermark", count(seen.high_watermark)],
    ["log end", count(seen.log_end_offset)],
    ["not committed", count(Math.max(0, seen.log_end_offset - seen.high_watermark))],
  ]);
}

function role(row, seen) {
  if (row.node_id === seen.leader_id) return status("ok", "leader");
  const late = row.last_caught_up_age_ms !== null && row.last_caught_up_age_ms > 5000;
  return status(late ? "warning" : "idle", late ? `${row.role ?? "replica"}, behind` : (row.role ?? "replica"));
}

function replicas(caption, rows, seen) {
  const most = Math.max(1, ...rows.map((row) => row.lag ?? 0));
  return plain(
    caption,
    [
      { name: "node_id", title: "node", cell: (row) => h("strong", null, String(row.node_id)) },
      { name: "role", cell: (row) => role(row, seen) },
      { name: "log_end_offset", title: "log end", number: true },
      { name: "lag", title: "lag, records", number: true, cell: (row) => [bar(row.lag, most), count(row.lag)] },
      { name: "last_caught_up_age_ms", title: "caught up", number: true, cell: (row) => ago(row, seen, row.last_caught_up_age_ms) },
      { name: "last_fetch_age_ms", title: "last fetch", number: true, cell: (row) => ago(row, seen, row.last_fetch_age_ms) },
      { name: "host", title: "address", cell: (row) => (row.host ? `${row.host}:${row.port}` : "–") },
    ],
    rows,
    (row) => `${row.node_id} ${row.directory_id}`,
  );
}

function ago(row, seen, ms) {
  if (row.node_id === seen.leader_id) return "–";
  return ms === null || ms === undefined ? "–" : `${duration(ms)} ago`;
}

function bar(value, most) {
  return svg("svg", { class: "lagbar", viewBox: "0 0 40 6", "aria-hidden": "true" }, svg("rect", { width: 40, height: 6, class: "back" }), value ? svg("rect", { width: Math.max(1, (40 * value) / most), height: 6, class: "front" }) : null);
}

// Lanes, one a node: a bar while it led, a mark for what else happened to it.
function timeline(seen, room) {
  const events = seen.timeline ?? [];
  if (!events.length) return h("p", { class: "note" }, "This node has seen no election since it started.");
  const now = Date.now();
  const width = Math.max(280, room);
  const left = 58;
  const first = Math.min(events[0].at_ms, now - TIMELINE_MIN_MS);
  const x = (at) => left + ((width - left - 8) * (Math.max(first, at) - first)) / Math.max(1, now - first);
  const nodes = [...new Set([...seen.voters.map((one) => one.node_id), ...events.map((one) => one.leader_id)].filter((one) => one !== null && one !== undefined && one >= 0))].sort((a, b) => a - b);
  const lane = (id) => nodes.indexOf(id) * LANE;
  const height = nodes.length * LANE + 24;
  const drawn = [];
  const reigns = events.filter((one) => one.kind === "elected" || one.kind === "resigned");
  reigns.forEach((one, place) => {
    if (one.kind !== "elected" || lane(one.leader_id) < 0) return;
    const until = reigns[place + 1]?.at_ms ?? now;
    const from = x(one.at_ms);
    const wide = Math.max(3, x(until) - from);
    drawn.push(
      svg("rect", { x: from, y: lane(one.leader_id) + 4, width: wide, height: LANE - 8, rx: 3, class: until === now ? "reign now" : "reign" }, svg("title", null, `epoch ${one.epoch}: ${one.text ?? one.kind}, ${moment(one.at_ms)}`)),
    );
    if (wide > 40) drawn.push(svg("text", { x: from + 6, y: lane(one.leader_id) + LANE / 2 + 4, class: until === now ? "inbar now" : "inbar" }, `e${one.epoch}`));
  });
  for (const one of events) {
    if (one.kind === "elected" || one.leader_id === null || lane(one.leader_id) < 0) continue;
    const at = x(one.at_ms);
    const y = lane(one.leader_id) + LANE / 2;
    drawn.push(svg("path", { d: `M${at} ${y - 5}l5 5-5 5-5-5Z`, class: "mark" }, svg("title", null, `${one.text ?? one.kind}, ${moment(one.at_ms)}`)));
  }
  const ticks = [0, 0.5, 1].map((part) => {
    const at = first + (now - first) * part;
    const anchor = part === 0 ? "start" : part === 1 ? "end" : "middle";
    return svg("text", { x: x(at), y: height - 6, "text-anchor": anchor, class: "tick" }, part === 1 ? "now" : `${duration(now - at)} ago`);
  });
  const picture = svg(
    "svg",
    { class: "timeline", width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `Elections of the last ${duration(now - first)}: ${events.length} events, listed below` },
    nodes.map((id) => [
      svg("line", { x1: left, x2: width - 8, y1: lane(id) + LANE - 1, y2: lane(id) + LANE - 1, class: "lane" }),
      svg("text", { x: 0, y: lane(id) + LANE / 2 + 4, class: "lanename" }, `node ${id}`),
    ]),
    drawn,
    ticks,
  );
  return h("figure", null, picture);
}

function elections(seen) {
  const rows = [...(seen.timeline ?? [])].reverse().slice(0, 50);
  if (!rows.length) return null;
  return plain(
    "Elections, newest first",
    [
      { name: "at_ms", title: "time", cell: (row) => moment(row.at_ms) },
      { name: "epoch", number: true },
      { name: "kind", cell: (row) => h("span", { class: "status" }, shape(row.kind === "elected" ? "ok" : "info"), row.kind) },
      { name: "leader_id", title: "leader", number: true, cell: (row) => (row.leader_id === null || row.leader_id < 0 ? "–" : String(row.leader_id)) },
      { name: "text", title: "what happened", wrap: true },
    ],
    rows,
    (row) => `${row.at_ms} ${row.epoch} ${row.kind}`,
  );
}
