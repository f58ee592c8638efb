# Run inside a virtual environment, or say which interpreter: make test PYTHON=.venv/bin/python
PYTHON ?= python
BIN = $(dir $(shell command -v $(PYTHON)))

.PHONY: install format lint types imports test docs-test cli-docs bench-quick all

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

docs-test:
	$(PYTHON) -m pytest tests/contracts/test_docs.py

cli-docs:
	$(PYTHON) -m tests.contracts.cli_page

bench-quick:
	@if [ -f benchmarks/__main__.py ]; then $(PYTHON) -m benchmarks --quick; \
	else echo 'no benchmarks yet'; fi

all: lint types imports test
