// Shows the overview, as text nodes only.
const answer = await fetch("api/overview");
const list = document.getElementById("overview");
for (const [name, value] of Object.entries(await answer.json())) {
  const term = document.createElement("dt");
  const detail = document.createElement("dd");
  term.textContent = name;
  detail.textContent = typeof value === "object" ? JSON.stringify(value) : String(value);
  list.append(term, detail);
}
