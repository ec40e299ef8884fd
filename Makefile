# Every target sets up what it needs: a virtual environment in .venv with pinned versions.
PYTHON ?= python3
BIN := .venv/bin
PACKAGES := raftctl broker jepsen tests

.PHONY: setup demo fmt check check-types check-rules test test-howtos test-peers test-suites sim sim-cores sim-ci properties mutants fuzz bench bench-kafka bench-groups bench-scale bench-check properties-linearizable bugs-found bench-spark spark-equality docs clean

setup: .venv/.dev

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

# Types take longer than all the rest, which is checked meanwhile.
check: setup
	$(MAKE) -j 2 check-types check-rules

check-types: setup
	$(BIN)/mypy

check-rules: setup
	$(BIN)/ruff format --check $(PACKAGES)
	$(BIN)/ruff check $(PACKAGES)
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q tests/test_tidy.py

# make test HISTORIES=DIR also judges real histories with known verdicts.
test: setup
	$(BIN)/python -m pytest -q -n 2 --dist loadfile --no-loadscope-reorder tests --ignore=tests/howtos --ignore=tests/peers --ignore=tests/suites $(if $(HISTORIES),--histories=$(HISTORIES))

# The how-to pages whose commands take minutes, not in continuous integration; `make test` runs those of the others.
test-howtos: setup
	$(BIN)/python -m pytest -q -n 2 --dist worksteal -o faulthandler_timeout=300 tests/howtos

test-peers: setup
	$(BIN)/python -m pytest -q -n 2 --dist loadgroup tests/peers

# Other projects' own suites that take half an hour.
test-suites: setup
	$(BIN)/python -m pytest -q tests/suites

SCENARIO ?= tests.simulation.cluster_chaos:chaos
COVERAGE := tests/simulation/cluster_coverage.txt

# make sim SEED=7 replays one seed; make sim SEEDS=20 runs many. The quorum's cores alone: make sim-cores.
sim: setup
	$(BIN)/python -m jepsen.simulator $(if $(SEED),run $(SCENARIO) --seed $(SEED),many $(SCENARIO) --seeds $(or $(SEEDS),20) --coverage $(COVERAGE))

# The quorum's cores alone, under faults of which each seed draws kinds, sizes and shape. make sim-cores SEED=7
sim-cores: setup
	$(BIN)/python -m tests.simulation.core_swarm $(if $(SEED),--first $(SEED) --seeds 1,--first 0 --seeds $(or $(SEEDS),300))

# The same seeds every time, so that a failure is the fault of the change.
sim-ci: setup
	$(BIN)/python -m jepsen.simulator many $(SCENARIO) --first 0 --seeds 200 --coverage $(COVERAGE)
	$(BIN)/python -m tests.simulation.core_swarm --first 0 --seeds 300

# Random requests, failovers and snapshots beside a model of the controller. make properties SEQUENCES=100 SEED=3
properties: setup
	$(BIN)/python -m tests.properties --sequences $(or $(SEQUENCES),2000) --seed $(or $(SEED),0)

# The checker of linearizability beside trying everything, on small histories.
properties-linearizable: setup
	$(BIN)/python -m tests.properties.linearizability --histories $(or $(COUNT),20000) --seed $(or $(SEED),0)

# Plants known bugs, one after the other, and shows which property catches each.
mutants: setup
	$(BIN)/python -m tests.mutants

# Plants bugs, has `jepsen test` find them, simulated and on real processes, and writes docs/reference/bugs-found.md.
bugs-found: setup
	$(BIN)/python -m tests.mutants.harness --write

# Sends random frames to a broker in the same process. make fuzz FRAMES=1000000 SEED=3
fuzz: setup
	$(BIN)/python -m tests.fuzz --frames $(or $(FRAMES),100000) --seed $(or $(SEED),1)

bench: setup
	$(BIN)/python -m tests.bench --output out/bench.json

# Beside Apache Kafka, which needs Java and Maven: make bench-kafka ONLY="produce_acks_all latency".
bench-kafka: setup
	$(BIN)/python -m tests.bench kafka --output out/bench-kafka.json $(if $(ONLY),--only $(ONLY)) $(if $(FULL),--full)

# Groups and transactions beside Apache Kafka: make bench-groups ONLY="rebalance_classic loading".
bench-groups: setup
	$(BIN)/python -m tests.bench groups --output out/bench-groups.json $(if $(ONLY),--only $(ONLY))

# Controllers alone, up to two million partitions: make bench-scale PARTITIONS=100000 OBSERVERS=30.
bench-scale: setup
	$(BIN)/python -m tests.bench.scale.main --output out/bench-scale.json $(if $(PARTITIONS),--up-to $(PARTITIONS)) $(if $(OBSERVERS),--observers $(OBSERVERS))

# Generated histories on Spark, which needs Java: make bench-spark SIZES="1000000 100000000" LOG_SIZES=10000000 HOT=0.
bench-spark: setup
	$(BIN)/python -m tests.bench.spark.main --output out/bench-spark.json $(if $(SIZES),--sizes $(SIZES)) $(if $(LOG_SIZES),--log-sizes $(LOG_SIZES)) $(if $(HOT),--hot $(HOT))

# Random histories, judged on Spark and in one process: make spark-equality COUNT=5000 SEED=1
spark-equality: setup
	$(BIN)/python -m tests.spark_equality --count $(or $(COUNT),5000) --seed $(or $(SEED),0)
	$(BIN)/python -m tests.spark_logs --count $(or $(COUNT),5000) --seed $(or $(SEED),0)
	$(BIN)/python -m tests.spark_txns --count $(or $(COUNT),5000) --seed $(or $(SEED),0)
	$(BIN)/python -m tests.spark_traces --count $(or $(COUNT),5000) --seed $(or $(SEED),0)

# Our checker beside Porcupine, which needs Go: make bench-check HISTORIES=DIR adds the logs of etcd.
# What a run costs the harness itself goes to out/bench-harness.json.
bench-check: setup
	$(BIN)/python -m tests.bench.checking.running
	$(BIN)/python -m tests.bench.checking --output out/bench-check.json $(if $(HISTORIES),--histories $(HISTORIES)) $(if $(KEYS),--keys $(KEYS))

docs: setup
	$(BIN)/python -m raftctl.cli.reference
	$(BIN)/python -m tests.jepsen_reference
	$(BIN)/python -m tests.checkers_reference
	$(BIN)/python -m tests.requirements
	$(BIN)/python -m tests.peers.differential.page

clean:
	rm -rf .venv build dist out .mypy_cache .ruff_cache .pytest_cache .hypothesis
