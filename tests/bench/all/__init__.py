"""All figures that fit an hour: `python -m tests.bench.all`, one JSON and one page with pictures.

`parts` has what is measured: the benchmarks beside this package, each with its command and its
time budget. `goals` has what each figure should come to. `page` and `charts` write what people
read. They take nothing but the JSON, so a page can be written again without a measurement.

A part is a process of its own. One that fails, or needs more than its budget, costs the others
nothing: it is named at the end, and what it had measured by then counts.
"""
