# One door for every command; CI calls the same targets. `make help` lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
export PATH := $(abspath $(BIN)):$(PATH)
# Tests of the product start their own Node; nothing of the caller's may leak in.
unexport NODE_OPTIONS NODE_PATH TURN_JOURNAL_NODE

# Half of a test's time is waiting, for deadlines and for processes to end. The files with few and long tests come first.
PARALLEL := -n 3 --dist loadfile --no-loadscope-reorder

CORE := python/turn_journal_runtime/_core/core.mjs
CORE_SOURCES := $(shell find ts/src -name '*.ts' 2>/dev/null) ts/build.mjs package.json package-lock.json $(wildcard schemas/*.json)

.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: setup
setup: $(STAMP) $(CORE) ## make .venv, install locked dependencies, build the core

$(STAMP): pyproject.toml requirements-dev.txt package-lock.json hatch_build.py
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.txt
	$(BIN)/npm ci --no-audit --no-fund --ignore-scripts --loglevel=error
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

$(CORE): $(CORE_SOURCES) | $(STAMP)
	$(BIN)/npm run --silent build

.PHONY: demo
demo: setup ## kill a real turn in the middle and see it recovered
	@$(BIN)/turn-journal demo

.PHONY: test
test: setup lint types schemas-check test-ts test-py ## everything CI runs: lint, types, TypeScript, Python, contract, package

.PHONY: lint
lint: setup ## ruff and biome
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/npm run --silent lint

.PHONY: format
format: setup ## format both languages
	$(BIN)/ruff check --fix --quiet .
	$(BIN)/ruff format --quiet .
	$(BIN)/npm run --silent format

.PHONY: types
types: setup ## mypy strict and tsc strict
	$(BIN)/mypy
	$(BIN)/npm run --silent typecheck

.PHONY: schemas
schemas: $(STAMP) ## generate schemas/ from the core's Effect Schemas and the command line's types
	$(BIN)/npm run --silent schemas
	$(BIN)/python python/schemas.py

.PHONY: schemas-check
schemas-check: setup ## fail when schemas/ is stale
	$(BIN)/npm run --silent schemas -- --check
	$(BIN)/python python/schemas.py --check

# The same random choices every time, so that a failure is the change's; `make soak` makes others. A seed given is taken.
test-ts test-py: export TURN_JOURNAL_SEED ?= 20261129

.PHONY: test-ts
test-ts: setup ## vitest: the core alone
	$(BIN)/npm run --silent test

.PHONY: test-py
test-py: setup ## pytest: façade, contract, processes, chaos (a small share), package
	$(BIN)/python -m pytest -q $(PARALLEL) -m "not soak"

.PHONY: fuzz
fuzz: setup ## a million random lines against the protocol
	TURN_JOURNAL_SOAK=1 $(BIN)/npm run --silent test -- ts/test/rpc/Fuzz.test.ts

.PHONY: docs
docs: setup ## generate the reference and build the site, strictly
	$(BIN)/python docs/generate_reference.py
	$(BIN)/mkdocs build --strict --quiet

.PHONY: soak
soak: setup ## the large matrices and long fuzzing: the same tests with bigger numbers
	TURN_JOURNAL_SOAK=1 $(BIN)/npm run --silent test
	TURN_JOURNAL_SOAK=1 $(BIN)/python -m pytest -q --timeout 3600

.PHONY: bench
bench: setup ## every benchmark; BENCH_PEERS=1 adds the peers
	$(BIN)/python -m benchmarks

.PHONY: lock
lock: $(STAMP) ## renew both lock files
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --group dev --all-extras pyproject.toml -o requirements-dev.txt --upgrade
	$(BIN)/npm install --package-lock-only --ignore-scripts --no-audit --no-fund

.PHONY: clean
clean: ## remove what was built and installed
	rm -rf $(VENV) node_modules dist build python/turn_journal_runtime/_core .pytest_cache .mypy_cache .ruff_cache .hypothesis
