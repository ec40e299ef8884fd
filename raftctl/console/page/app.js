// The shell: which view the fragment names, keys, colours, and the state of the connection.

import { h, renew, shape, svg, count } from "./dom.js";
import { Live } from "./live.js";
import { View } from "./view.js";
import { openHelp } from "./dialogs.js";
import { overview, problems } from "./overview.js";
import { quorum } from "./quorum.js";
import { brokers, broker, reassignments } from "./brokers.js";
import { topics, topic } from "./topics.js";
import { messages } from "./messages.js";
import { groups, group, transactions, transaction } from "./groups.js";
import { acls, quotas, configs } from "./access.js";

// name of the fragment: [title, view, view of one, letter after g]
const VIEWS = {
  "": ["Overview", overview, null, "o"],
  problems: ["Problems", problems, null, "p"],
  quorum: ["Quorum", quorum, null, "q"],
  brokers: ["Brokers", brokers, broker, "b"],
  topics: ["Topics", topics, topic, "t"],
  groups: ["Groups", groups, group, "g"],
  messages: ["Messages", messages, null, "m"],
  transactions: ["Transactions", transactions, transaction, "x"],
  reassignments: ["Reassignments", reassignments, null, "r"],
  configs: ["Configs", configs, configs, "c"],
  acls: ["ACLs", acls, null, "a"],
  quotas: ["Quotas", quotas, null, "u"],
};
const GROUPS = [
  [null, [""]],
  ["Cluster", ["problems", "quorum", "brokers", "reassignments"]],
  ["Data", ["topics", "messages", "groups", "transactions"]],
  ["Rules", ["configs", "acls", "quotas"]],
];
const THEMES = ["system", "light", "dark"];
const CHORD_MS = 1500;

const main = document.getElementById("main");
const nav = document.getElementById("nav");
const menu = document.getElementById("menu");
const live = new Live();
let current = null;
let name = "";
let chord = 0;

function show() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const [first, ...rest] = path.split("/").map(decode);
  const known = Object.hasOwn(VIEWS, first ?? "") ? VIEWS[first] : null;
  current?.close();
  name = known ? first : null;
  main.replaceChildren();
  current = new View({ main, live, path, query: new URLSearchParams(query ?? ""), name: first });
  if (!known || (rest.length && !known[2])) {
    current.title("There is no such view");
    current.root.append(h("p", null, "The link names a view that this console does not have. ", h("a", { href: "#/" }, "Overview")));
  } else if (rest.length && rest[0] !== "") known[2](current, ...rest);
  else known[1](current);
  drawNav();
  closeMenu();
}

function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

function drawNav() {
  const problems = live.overview?.problem_count;
  renew(
    nav,
    GROUPS.map(([title, names]) => [
      title ? h("h2", { key: `title ${title}`, id: `nav-${title}` }, title) : null,
      h(
        "ul",
        { key: `list ${title}`, "aria-labelledby": title ? `nav-${title}` : null },
        names.map((one) =>
          h(
            "li",
            { key: one },
            h(
              "a",
              { href: `#/${one}`, "aria-current": one === name ? "page" : null },
              VIEWS[one][0],
              one === "problems" && problems ? h("span", { class: "badge" }, count(problems), h("span", { class: "hidden" }, " now")) : null,
            ),
          ),
        ),
      ),
    ]),
  );
}

function drawBar() {
  const seen = live.overview;
  renew(document.getElementById("cluster"), seen ? [h("span", { class: "id", title: seen.cluster_id }, seen.cluster_id), h("span", { class: "node" }, ` node ${seen.node_id}`)] : "");
  renew(document.getElementById("principal"), seen?.principal ? h("span", { title: "The page acts as this principal" }, seen.principal) : "");
  const at = live.asOf ? new Date(live.asOf).toLocaleTimeString() : null;
  const words = {
    connecting: ["idle", "Connecting"],
    connected: ["ok", "Live"],
    lost: ["error", at ? `Connection lost; data as of ${at}` : "No connection"],
  }[live.state];
  const place = document.getElementById("connection");
  place.className = words[0];
  renew(place, shape(words[0]), h("span", null, words[1]));
  document.body.classList.toggle("lost", live.state === "lost");
}

function theme() {
  return document.documentElement.dataset.theme ?? "system";
}

function drawTheme() {
  const button = document.getElementById("theme");
  const drawn = {
    system: () => [svg("circle", { cx: 10, cy: 10, r: 6.5 }), svg("path", { d: "M10 3.5a6.5 6.5 0 0 1 0 13Z", class: "full" })],
    light: () => [svg("circle", { cx: 10, cy: 10, r: 3.5 }), svg("path", { d: "M10 1.5v2.5M10 16v2.5M1.5 10h2.5M16 10h2.5M4 4l1.7 1.7M14.3 14.3 16 16M16 4l-1.7 1.7M5.7 14.3 4 16" })],
    dark: () => [svg("path", { d: "M15.5 12.5A6.5 6.5 0 0 1 7.5 4.5a6.5 6.5 0 1 0 8 8Z", class: "full" })],
  };
  button.setAttribute("aria-label", `Colours: ${theme() === "system" ? "as the system" : theme()}`);
  button.title = button.getAttribute("aria-label");
  renew(button, svg("svg", { viewBox: "0 0 20 20", "aria-hidden": "true", key: theme() }, drawn[theme()]()));
}

function nextTheme() {
  const next = THEMES[(THEMES.indexOf(theme()) + 1) % THEMES.length];
  if (next === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = next;
  try {
    if (next === "system") localStorage.removeItem("raftctl-theme");
    else localStorage.setItem("raftctl-theme", next);
  } catch {
    // Storage is forbidden here: the choice holds for this tab.
  }
  drawTheme();
}

function closeMenu() {
  document.body.classList.remove("menu");
  menu.setAttribute("aria-expanded", "false");
}

function help() {
  openHelp([
    ["/", "filter the rows of this view"],
    ["↑ ↓", "from row to row; PageUp, PageDown, Home, End go further"],
    ["Enter", "open the row"],
    ["Esc", "leave the filter, close a dialog"],
    ["d", "change the colours: system, light, dark"],
    ["?", "these keys"],
    ...Object.values(VIEWS).map(([title, , , letter]) => [`g ${letter}`, title]),
  ]);
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const typing = event.target.matches("input, select, textarea");
  if (typing) {
    if (event.key === "Escape" && event.target.type === "search") main.focus();
    return;
  }
  if (chord && Date.now() - chord < CHORD_MS) {
    chord = 0;
    const found = Object.entries(VIEWS).find(([, view]) => view[3] === event.key);
    if (found) {
      event.preventDefault();
      location.hash = `#/${found[0]}`;
    }
    return;
  }
  const does = {
    g: () => (chord = Date.now()),
    "?": help,
    d: nextTheme,
    "/": () => main.querySelector("input[type=search]")?.focus(),
    ArrowDown: () => firstRow(event),
  }[event.key];
  if (!does) return;
  if (event.key !== "ArrowDown") event.preventDefault();
  does();
});

// From the page into its first table: the arrows go on from there.
function firstRow(event) {
  if (event.target !== main && event.target !== document.body) return;
  const first = main.querySelector(".tbody a, .tbody button");
  if (!first) return;
  event.preventDefault();
  first.focus();
}

document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
document.getElementById("theme").addEventListener("click", nextTheme);
document.getElementById("help").addEventListener("click", help);
menu.addEventListener("click", () => {
  const open = document.body.classList.toggle("menu");
  menu.setAttribute("aria-expanded", String(open));
  if (open) nav.querySelector("a").focus();
});
nav.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && document.body.classList.contains("menu")) {
    closeMenu();
    menu.focus();
  }
});
window.addEventListener("hashchange", () => {
  show();
  window.scrollTo(0, 0);
  main.focus({ preventScroll: true });
});

live.listen((kind, document) => {
  drawBar();
  if (kind === "overview") drawNav();
  current?.event(kind, document);
});
drawTheme();
drawBar();
show();
live.connect();
