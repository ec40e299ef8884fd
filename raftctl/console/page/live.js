// The one stream of events of this tab. It keeps the newest documents and nothing else.

import { ask } from "./api.js";

const RETRY_MIN_MS = 500;
const RETRY_MAX_MS = 15000;
const QUIET_MS = 15000; // without an event; then the node is asked whether it is still there
const ANSWER_MS = 5000;
const LONG_MS = 60000;

export class Live {
  constructor() {
    this.overview = null;
    this.quorum = null;
    this.state = "connecting"; // connected, lost, refused
    this.since = Date.now();
    this.asOf = null;
    this.reason = "";
    this.listeners = new Set();
    this.retry = RETRY_MIN_MS;
    this.source = null;
    this.timer = 0;
    setInterval(() => this.watch(), ANSWER_MS);
    document.addEventListener("visibilitychange", () => {
      if (document.visibilityState === "visible" && this.state === "lost") this.connect();
    });
    window.addEventListener("online", () => this.state !== "connected" && this.connect());
    window.addEventListener("pagehide", () => this.source?.close());
    window.addEventListener("pageshow", (event) => event.persisted && this.connect());
  }

  connect() {
    clearTimeout(this.timer);
    this.source?.close();
    const source = new EventSource("./api/events");
    this.source = source;
    source.onopen = () => {
      this.retry = RETRY_MIN_MS;
      this.become("connected");
      this.publish("changed", { topics: null, brokers: true, configs: true, acls: true, quotas: true, groups: true });
    };
    source.onerror = () => {
      source.close();
      if (this.source !== source) return;
      // The node ends a stream after some minutes, so that a login is looked at again: that is no loss yet.
      const ended = this.state === "connected" && Date.now() - this.since > LONG_MS;
      this.since = Date.now();
      if (ended) {
        this.timer = setTimeout(() => this.connect(), 0);
        return;
      }
      this.lose();
    };
    for (const kind of ["overview", "quorum", "changed"])
      source.addEventListener(kind, (event) => {
        const document = JSON.parse(event.data);
        if (kind !== "changed") this[kind] = document;
        this.asOf = Date.now();
        this.publish(kind, document);
      });
  }

  lose() {
    this.become("lost");
    this.timer = setTimeout(() => this.connect(), this.retry * (0.75 + Math.random() / 2));
    this.retry = Math.min(this.retry * 2, RETRY_MAX_MS);
  }

  // A network that drops what is sent ends no stream: a browser would wait for ever.
  async watch() {
    const source = this.source;
    if (this.state !== "connected" || document.visibilityState !== "visible" || Date.now() - this.asOf < QUIET_MS) return;
    try {
      this.overview = await ask(["overview"], {}, AbortSignal.timeout(ANSWER_MS));
      this.asOf = Date.now();
      this.publish("overview", this.overview);
    } catch {
      if (this.source !== source || this.state !== "connected") return;
      source.close();
      this.lose();
    }
  }

  become(state) {
    if (this.state === state) return;
    this.state = state;
    this.since = Date.now();
    this.publish("state", state);
  }

  publish(kind, document) {
    for (const listener of [...this.listeners]) listener(kind, document);
  }

  listen(listener) {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }
}
