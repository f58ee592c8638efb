# Run inside a virtual environment, or say which interpreter: make test PYTHON=.venv/bin/python
PYTHON ?= python
BIN = $(dir $(shell command -v $(PYTHON)))
# One process more than there are cores: many tests wait for a disk or for a process they started.
JOBS ?= $(shell expr $$(nproc 2>/dev/null || echo 2) + 1)
PYTEST = $(PYTHON) -m pytest -n $(JOBS) --dist worksteal
# What imports the standard library alone, and is tested with nothing but pytest and Hypothesis.
CORE = tests/adversary tests/laws tests/context tests/dialects tests/log tests/policy \
	tests/prompt tests/recall tests/summaries tests/text tests/tokens tests/window

.PHONY: install format lint types imports check test test-core test-core-here test-all lanes docs docs-test \
	agent-docs cli-docs llms screens bench-quick thorough thorough-tests thorough-laws \
	thorough-benchmarks all

install:
	@# The first pip that reads dependency groups.
	$(PYTHON) -m pip install --disable-pip-version-check --quiet 'pip>=25.1'
	$(PYTHON) -m pip install --quiet -c constraints.txt -e . --group dev

format:
	$(PYTHON) -m ruff format .
	$(PYTHON) -m ruff check --fix .

lint:
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m ruff check .
	$(PYTHON) -m tests.contracts.plain_words

types:
	$(PYTHON) -m pyright --pythonpath $(shell command -v $(PYTHON))
	@# Programs of a user, under both checkers.
	$(PYTHON) -m pytest -q tests/typing

imports:
	$(BIN)lint-imports

check: lint imports types

test:
	$(PYTEST) -m 'not process and not postgres and not slow and not soak'

# An environment of its own, in which there is nothing else.
test-core:
	$(PYTHON) -m venv build/core
	build/core/bin/python -m pip install --disable-pip-version-check --quiet -c constraints.txt \
		pytest hypothesis
	$(MAKE) --no-print-directory test-core-here PYTHON=build/core/bin/python

# The same in an environment that is there already, and on systems whose environments look different.
test-core-here:
	PYTHONPATH=src $(PYTHON) -m pytest -q -m 'not process and not soak' $(CORE)

test-all:
	$(PYTEST) -m 'not soak'

lanes:
	@$(PYTHON) -m pytest --collect-only -qq | grep '^lanes: '

docs:
	$(PYTHON) -m sphinx -q -W --keep-going -b html docs build/docs
	@echo 'open build/docs/index.html'

docs-test:
	$(PYTHON) -m pytest -m 'not postgres' tests/contracts/test_docs.py \
		tests/contracts/test_cookbook.py tests/contracts/test_examples.py

agent-docs:
	$(PYTHON) -m tests.contracts.agent_page

cli-docs:
	$(PYTHON) -m tests.contracts.cli_page

llms:
	$(PYTHON) -m tests.contracts.llms_page

screens:
	$(PYTHON) -m trimtab.cli demo --fast --svg docs/img/demo.svg
	$(PYTHON) -m benchmarks.telegram_picture docs/img/telegram.png

bench-quick:
	$(PYTHON) -m benchmarks --quick

# Everything that .ci/run has no time for; hours on two cores. Each part can be run alone.
thorough: check thorough-tests thorough-laws thorough-benchmarks

# The plugin sees to it that every test that docs/conformance.md names was run.
thorough-tests:
	TRIMTAB_LAWS=long $(PYTEST) -p tests.contracts.ran

thorough-laws:
	TRIMTAB_LAWS=thorough $(PYTEST) tests/laws

thorough-benchmarks:
	$(PYTHON) -m benchmarks
	$(PYTHON) -m benchmarks.mutations

all: check test
