// Requests to the node that served this page. Every path is relative, so a proxy may put a prefix before it.

export class Refused extends Error {
  constructor(status, body) {
    const said = body.message ?? `the node answered ${status}`;
    super(said.charAt(0).toUpperCase() + said.slice(1));
    this.status = status;
    this.kind = body.error ?? "";
    this.field = body.field ?? null;
  }
}

async function answer(response) {
  let body = null;
  try {
    body = await response.json();
  } catch (error) {
    // A refusal may come from a proxy, as HTML; an answer that ends early is no answer.
    if (response.ok) throw error;
  }
  if (!response.ok) throw new Refused(response.status, body ?? {});
  return body;
}

export async function ask(path, parameters, signal) {
  const given = Object.entries(parameters ?? {}).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const query = given.length ? `?${new URLSearchParams(given)}` : "";
  const url = `./api/${path.map(encodeURIComponent).join("/")}${query}`;
  return answer(await fetch(url, { signal, cache: "no-store", credentials: "same-origin" }));
}

export async function act(name, body) {
  return answer(
    await fetch(`./api/actions/${encodeURIComponent(name)}`, {
      method: "POST",
      headers: { "Content-Type": "application/json", "X-Raftctl-Console": "1" },
      body: JSON.stringify(body),
      credentials: "same-origin",
    }),
  );
}
