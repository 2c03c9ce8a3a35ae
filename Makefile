# Each target does its own set-up in a virtual environment; the first one takes a minute or two, later ones a moment.
#
#   make demo                      agents at work on real data in jails, offline
#   make demo MODEL=openai/gpt-5   the same task on a real model
#   make test                      the quick tests: what a change needs, in minutes
#   make test-all                  all of them, as CI does; test-long adds those that take minutes each
#   make coverage                  branch coverage of the quick tests' own processes, as a figure
#   make test-installed            the wheel and each extra alone, in environments of their own (EXTRAS_TRIED chooses some)
#   make test-peers                the CaveAgent library's own tests, and each adapter with its framework (Python 3.12, own environments)
#   make check                     lint, format, types, import contracts, dead code, spelling, generated code
#   make image                     builds the compiled file twice: the same as the installed one (own environment)
#   make docs                      the site of docs/ with the API reference, in site/ (own environment); a broken link fails
#   make bench                     benchmarks against other runtimes (own environment)
#   make clean                     removes what these targets made
#
# PYTHON chooses the interpreter (each one other than python3 gets an environment of its own), JOBS the cores that
# tests may take: they get one process more, since all wait a third of their time.

PYTHON ?= python3
JOBS ?= 2
VENV ?= .venv$(if $(filter-out python3,$(PYTHON)),-$(subst /,-,$(patsubst /%,%,$(PYTHON))))
BIN := $(VENV)/bin
SOURCES := $(wildcard platform workers security protos tests examples benchmarks scripts)

.DEFAULT_GOAL := help
.PHONY: help demo test test-all test-long coverage test-installed test-peers check lint format types imports dead spelling dependencies generated docs image bench clean
.PHONY: environment environment-test environment-check

help:
	@sed -n 's/^#   //p' Makefile

# What tests and the demo use of Cenote's extras.
EXTRAS := data,environments,mcp,models,platform,postgresql

environment:
	@scripts/environment $(VENV) $(PYTHON) $(EXTRAS)

environment-test:
	@scripts/environment $(VENV) $(PYTHON) $(EXTRAS) test

environment-check:
	@scripts/environment $(VENV) $(PYTHON) $(EXTRAS) test check

demo: environment
	@$(BIN)/cenote demo $(if $(MODEL),--model $(MODEL))

test: environment-test
	@$(BIN)/python -m pytest -n $$(($(JOBS) + 1)) --again --quick $(ARGS)

test-all: environment-test
	@$(BIN)/python -m pytest -n $$(($(JOBS) + 1)) --again $(ARGS)

test-long: environment-test
	@$(BIN)/python -m pytest -n $$(($(JOBS) + 1)) --again --long $(ARGS)

# Jails and the other processes that tests start are not measured.
coverage: environment-test
	@$(BIN)/python -m pytest -n $$(($(JOBS) + 1)) --again --quick --cov --cov-report= $(ARGS); \
	status=$$?; \
	echo "branch coverage: $$($(BIN)/coverage report --format=total --precision=1) %"; \
	exit $$status

# Some minutes for all; each extra is downloaded anew.
EXTRAS_TRIED ?= base models platform http e2b mcp jupyter postgresql s3 data

test-installed: environment-test
	@$(BIN)/python -m tests.house.installed.run $(EXTRAS_TRIED)

PEERS_PYTHON ?= python3.12
PEERS := .venv-peers

test-peers:
	@scripts/environment $(PEERS) $(PEERS_PYTHON) $(EXTRAS) test peers
	@$(PEERS)/bin/python -m tests.peers.run $(ARGS)
	@$(PEERS)/bin/python -m tests.peers.driven
	@$(PEERS)/bin/python -m tests.peers.adapters
	@$(PEERS)/bin/python -m tests.peers.consumers
	@$(PEERS)/bin/python -m tests.peers.npm
	@$(PEERS)/bin/python -m tests.peers.notebooks

check: lint format types imports dead spelling dependencies generated

lint: environment-check
	$(BIN)/ruff check $(SOURCES)

format: environment-check
	$(BIN)/ruff format --check $(SOURCES)

types: environment-check
	$(BIN)/mypy
	$(BIN)/mypy examples scripts $(wildcard tests/escape/*.py) tests/support/escape
	$(BIN)/mypy benchmarks

imports: environment-check
	$(BIN)/lint-imports --no-cache

dead: environment-check
	$(BIN)/vulture

spelling: environment-check
	$(BIN)/codespell $(SOURCES) $(wildcard docs deploy) *.md Makefile

dependencies: environment-check
	$(BIN)/deptry platform workers security protos

generated: environment-check
	$(BIN)/python scripts/generate_protos.py --check
	$(BIN)/python scripts/option_tables.py --check
	$(BIN)/python scripts/monitoring.py --check

IMAGE := .venv-image

image: environment
	@scripts/environment $(IMAGE) $(PYTHON) - image
	@for copy in one two; do \
	    $(IMAGE)/bin/python hatch_build.py $(IMAGE)/$$copy.so && \
	    cmp $(IMAGE)/$$copy.so workers/cenote_worker/image/libcenote-image.so || exit 1; \
	done

DOCS := .venv-docs

docs:
	@scripts/environment $(DOCS) $(PYTHON) - docs
	@NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build --quiet
	@echo "site/index.html"

bench:
	@PYTHON=$(PYTHON) benchmarks/run $(ARGS)

clean:
	rm -rf .venv .venv-* dist site demo-output benchmarks/results .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find platform workers security protos tests examples benchmarks scripts -name __pycache__ -prune -exec rm -rf {} +
