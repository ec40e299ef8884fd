# The usual commands. Each sets up what it needs: a virtual environment in .venv with pinned versions.
# Longer runs (mutants, properties, fuzz, sim-ci, bench-kafka, ...) stand in tests/run.py: `make NAME` starts one.
PYTHON ?= python3
BIN := .venv/bin
PACKAGES := raftctl broker jepsen tests
PYTEST := $(BIN)/python -m pytest -q -n 2
SCENARIO ?= tests.simulation.cluster_chaos:chaos

.PHONY: setup demo fmt check test test-unit test-peers sim docs clean

# Compiled as an installed package is, also where Python is told to write no bytecode.
setup: .venv/.dev
	@$(BIN)/python -m compileall -q raftctl broker jepsen

.venv/.run: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; name one with: make PYTHON=python3.12")'
	@echo 'Setting up .venv, which takes about half a minute the first time.'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	touch $@

.venv/.dev: .venv/.run
	@echo 'Adding what tests and checks need to .venv, which takes one or two minutes the first time.'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

demo: .venv/.run
	$(BIN)/raftctl demo

fmt: setup
	$(BIN)/ruff format $(PACKAGES)
	$(BIN)/ruff check --fix $(PACKAGES)

# Types take longer than all the rest, which is checked at the same time.
check: setup
	$(MAKE) -j 2 check-types check-rules

# All tests but those of other projects' clients and suites, and those of the console in browsers. HISTORIES=DIR also judges real histories with known verdicts.
test: setup
	$(PYTEST) --dist loadfile --no-loadscope-reorder tests --ignore=tests/howtos --ignore=tests/peers --ignore=tests/suites --ignore=tests/console $(if $(HISTORIES),--histories=$(HISTORIES))

# The unit tests that are fast, in less than a minute; tests/unit/conftest.py names those that are not.
test-unit: setup
	$(PYTEST) --dist loadfile tests/unit --fast

# Unmodified clients of other projects, and Apache Kafka itself where Java and Maven are.
test-peers: setup
	$(PYTEST) --dist loadgroup tests/peers

# SEED=7 replays one seed; SEEDS=20 runs many.
sim: setup
	$(BIN)/python -m jepsen.simulator $(if $(SEED),run $(SCENARIO) --seed $(SEED),many $(SCENARIO) --seeds $(or $(SEEDS),20) --coverage tests/simulation/cluster_coverage.txt)

# The generated pages, and the table of words that were given up, which only shrinks.
docs: setup
	$(BIN)/python -m raftctl.cli.reference
	$(BIN)/python -m tests.jepsen_reference
	$(BIN)/python -m tests.checkers_reference
	$(BIN)/python -m tests.monitoring
	$(BIN)/python -m tests.requirements
	$(BIN)/python -m tests.peers.differential.page
	$(BIN)/python -m tests.peers.authorization.page
	$(BIN)/python -m tests.words

clean:
	rm -rf .venv build dist out .mypy_cache .ruff_cache .pytest_cache .hypothesis

# Any other name is a run of tests/run.py, which knows its settings: `make mutants`, `make fuzz SEED=3`.
.DEFAULT:
	@$(MAKE) --no-print-directory --silent setup
	@$(BIN)/python -m tests.run $@
