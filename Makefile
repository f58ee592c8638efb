# `make` alone creates .venv, which the other targets use if no virtual environment is active. Another
# interpreter: make test PYTHON=path/to/python
PYTHON ?= $(if $(VIRTUAL_ENV),python,$(firstword $(wildcard .venv/bin/python) python))
BIN = $(dir $(shell command -v $(PYTHON)))
# What installs packages; it must read dependency groups, as pip does since 25.1.
INSTALL ?= $(PYTHON) -m pip install
# Plain processes, divided by folder.
TESTS = PYTHON=$(PYTHON) .ci/tests
# What imports the standard library alone, and is tested with nothing but pytest and Hypothesis.
CORE = tests/provider_rules tests/laws tests/context tests/dialects tests/engine tests/models

# Every block of every page: Python is run, YAML loaded, shell parsed.
PAGE_TESTS = $(addprefix tests/contracts/test_,docs.py cookbook.py page_blocks.py commands.py)

.PHONY: first install format lint types types-all imports check test test-core test-core-here test-all lanes docs docs-test \
	agent-docs cli-docs llms screens bench-quick thorough thorough-tests thorough-laws \
	thorough-frameworks thorough-oldest thorough-wheels thorough-benchmarks all

# What a newcomer needs, from nothing to the quick tests.
first:
	python3 -m venv .venv
	$(MAKE) --no-print-directory install test PYTHON=.venv/bin/python

install:
	$(INSTALL) --quiet 'pip>=25.1'
	$(INSTALL) --quiet -c constraints.txt -e packages/trimtab -e packages/trimtab-serve \
		--group dev

format:
	$(PYTHON) -m ruff format .
	$(PYTHON) -m ruff check --fix .

lint:
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m ruff check .

types:
	$(PYTHON) -m pyright --pythonpath $(shell command -v $(PYTHON)) packages

# Strict types of tests and benchmarks as well.
types-all:
	$(PYTHON) -m pyright --pythonpath $(shell command -v $(PYTHON))

imports:
	$(BIN)lint-imports

check: lint imports types

test:
	$(TESTS) -m 'not process and not postgres and not slow and not soak'

# An environment of its own, in which there is nothing else.
test-core:
	$(PYTHON) -m venv build/core
	build/core/bin/python -m pip install --disable-pip-version-check --quiet -c constraints.txt \
		pytest hypothesis
	$(MAKE) --no-print-directory test-core-here PYTHON=build/core/bin/python

# The same in an environment that is there already, and on systems whose environments look different.
test-core-here:
	PYTHONPATH=packages/trimtab/src $(PYTHON) -m pytest -q -m 'not process and not soak' $(CORE)

test-all:
	$(TESTS) -m 'not soak'

lanes:
	@$(PYTHON) -m pytest --collect-only -qq | grep '^lanes: '

docs:
	$(PYTHON) -m sphinx -q -W --keep-going -b html docs build/docs
	@echo 'open build/docs/index.html'

docs-test:
	$(PYTHON) -m pytest -m 'not postgres' $(PAGE_TESTS) tests/contracts/test_examples.py

agent-docs:
	$(PYTHON) -m tests.contracts.agent_page

cli-docs:
	$(PYTHON) -m tests.contracts.cli_page

llms:
	$(PYTHON) -m tests.contracts.llms_page

screens:
	$(PYTHON) -m benchmarks.telegram_picture docs/img/telegram.png

bench-quick:
	$(PYTHON) -m benchmarks --quick

# Everything that .ci/run has no time for; hours on two cores. Each part can be run alone.
thorough: check types-all thorough-tests thorough-laws thorough-frameworks thorough-oldest \
	thorough-wheels thorough-benchmarks

# The plugin sees to it that every test that tests/conformance.md names was run.
thorough-tests:
	TRIMTAB_LAWS=long $(TESTS) -p tests.contracts.ran

thorough-laws:
	ls tests/laws/test_*.py | TRIMTAB_LAWS=thorough xargs -n 1 -P $$(nproc) $(PYTHON) -m pytest -q

# Each framework with its newest version, in an environment of its own; says what broke.
thorough-frameworks:
	$(PYTHON) -m tests.integrations.newest

# The oldest versions that the packages allow, in environments of their own; says what broke.
thorough-oldest:
	$(PYTHON) -m tests.oldest

# What a release publishes, with each extra in an empty environment.
thorough-wheels:
	$(PYTHON) -m tests.wheels

thorough-benchmarks:
	$(PYTHON) -m benchmarks

all: check test
