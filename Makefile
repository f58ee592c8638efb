# Run inside a virtual environment, or say which interpreter: make test PYTHON=.venv/bin/python
PYTHON ?= python
BIN = $(dir $(shell command -v $(PYTHON)))

.PHONY: install format lint types imports test docs docs-test agent-docs cli-docs screens bench-quick all

install:
	$(PYTHON) -m pip install --disable-pip-version-check --quiet -c constraints.txt -e '.[dev]'

format:
	$(PYTHON) -m ruff format .
	$(PYTHON) -m ruff check --fix .

lint:
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m ruff check .

types:
	$(PYTHON) -m pyright --pythonpath $(shell command -v $(PYTHON))

imports:
	$(BIN)lint-imports

test:
	$(PYTHON) -m pytest

docs:
	$(PYTHON) -m sphinx -q -W --keep-going -b html docs build/docs
	@echo 'open build/docs/index.html'

docs-test:
	$(PYTHON) -m pytest tests/contracts/test_docs.py

agent-docs:
	$(PYTHON) -m tests.contracts.agent_page

cli-docs:
	$(PYTHON) -m tests.contracts.cli_page

screens:
	$(PYTHON) -m trimtab.cli demo --fast --svg docs/img/demo.svg
	$(PYTHON) -m benchmarks.telegram_picture docs/img/telegram.png

bench-quick:
	@if [ -f benchmarks/__main__.py ]; then $(PYTHON) -m benchmarks --quick; \
	else echo 'no benchmarks yet'; fi

all: lint imports test
