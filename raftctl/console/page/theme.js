// Before the first paint: the colours that this browser was asked to keep. Storage may be forbidden.
try {
  const kept = localStorage.getItem("raftctl-theme");
  if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;
} catch {
  delete document.documentElement.dataset.theme;
}
