"""The look of all pages of the harness: colours and type as on the console of a cluster.

The harness imports nothing of a cluster, so the tokens stand here once more; a test compares them.
"""

from __future__ import annotations

LIGHT = """
  color-scheme: light;
  --page: #f5f6f8; --surface: #ffffff; --line: #dde2ea; --text: #18202c; --muted: #55606f;
  --accent: #1d5bbf; --ok: #1a7440; --ok-back: #e4f4ea; --warning: #8a5500;
  --warning-back: #fdf1dc; --error: #b3221b; --error-back: #fcebe9;
"""
DARK = """
  color-scheme: dark;
  --page: #0f141b; --surface: #171e27; --line: #2c3643; --text: #e4e9f0; --muted: #a3afbf;
  --accent: #82b1ff; --ok: #66cf92; --ok-back: #14301f; --warning: #f0b357;
  --warning-back: #362711; --error: #ff938a; --error-back: #3d1b19;
"""
"""Where the system asks for dark colours."""
STYLE = (
    f":root {{{LIGHT}}} @media (prefers-color-scheme: dark) {{ :root {{{DARK}}} }}"
    """
* { box-sizing: border-box }
body { font: 14px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif;
  font-variant-numeric: tabular-nums; margin: 0 auto; max-width: 1080px;
  padding: 1.6rem 1.2rem 4rem;
  color: var(--text); background: var(--page) }
a { color: var(--accent); text-decoration: none } a:hover, p a { text-decoration: underline }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; border-radius: 3px }
h1 { font-size: 20px; letter-spacing: -.01em } h2 { font-size: 15px; margin-top: 2rem }
.card { border-left: 8px solid; padding: .6rem 1rem; background: var(--surface);
  border-radius: 8px }
.mark { border-left: 6px solid; padding-left: 8px } td.mark { border-bottom-color: var(--line) }
.valid { border-color: var(--ok) } .invalid { border-color: var(--error) }
.unknown { border-color: var(--warning) }
.card.valid { background: var(--ok-back) } .card.invalid { background: var(--error-back) }
.card.unknown { background: var(--warning-back) }
.card b { font-size: 1.3rem } table { border-collapse: collapse; width: 100%; font-size: 13px }
td, th { text-align: left; padding: 4px 14px 4px 0; vertical-align: top;
  border-bottom: 1px solid var(--line); overflow-wrap: anywhere }
th, td:not(:last-child) { white-space: nowrap }
th { font-size: 12px; font-weight: 600; color: var(--muted) }
code, pre { font: 12.5px/1.5 ui-monospace, "SF Mono", Consolas, "DejaVu Sans Mono", monospace }
pre { background: var(--surface); padding: .6rem .9rem;
  border: 1px solid var(--line); border-radius: 8px;
  white-space: pre-wrap } svg { width: 100%; font: 11px system-ui, sans-serif }
svg text { fill: var(--muted) } .grid { stroke: var(--line) } .key { margin-right: 1.2rem }
.stripe { opacity: .15 } .stripe:target { opacity: .9 }
:target { scroll-margin-top: 2rem }
.runs td:last-child { min-width: 12rem } .runs td[data-label=faults] { white-space: normal }
summary { cursor: pointer; color: var(--accent) }
h3, .heading { font-size: 1rem; font-weight: bold; margin: 1.2rem 0 .2rem }
.missed { color: var(--muted) }
@media (max-width: 600px) { body { padding: 1rem .8rem 3rem } h1 { overflow-wrap: anywhere }
  th, td:not(:last-child) { white-space: normal } td, th { overflow-wrap: normal }
  svg.chart { font-size: 24px; overflow: visible }
  .wide { overflow-x: auto } .wide svg { width: 960px } .key { margin-right: .8rem }
  .operations tr, .matrix tr, .runs tr { display: flex; flex-wrap: wrap; column-gap: .8rem;
    border-bottom: 1px solid var(--line); padding: 2px 0 }
  .operations tr:first-child, .matrix tr:first-child, .matrix td:empty, .runs tr:first-child,
    .runs td:empty { display: none }
  .operations td, .matrix td, .matrix th, .runs td { border-bottom: 0; padding-right: 0 }
  .operations td:last-child, .matrix th, .runs td:last-child,
    .runs .mark { flex: 0 0 100%; box-sizing: border-box }
  .runs td[data-label]::before { content: attr(data-label) ": "; color: var(--muted) }
  .matrix td::before { content: attr(data-faults) ": " } }
.key i { display: inline-block; width: 10px; height: 10px; margin-right: 5px }
@media (prefers-color-scheme: dark) { svg, .key i { filter: brightness(1.5) }
  rect[opacity="0.25"] { opacity: .12 } }
"""
)
