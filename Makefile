# Each target works from a clean clone with python3, make and the package managers alone.

VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= python3

.PHONY: help install serve chat test test-fast check format bench train-brooklet clean

help: ## Show the targets.
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

$(VENV)/.base: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/pip install --quiet -c constraints.txt torch
	$(BIN)/pip install --quiet -c constraints.txt -e .
	touch $@

$(VENV)/.dev: $(VENV)/.base
	$(BIN)/pip install --quiet -c constraints.txt --group dev
	touch $@

install: $(VENV)/.base ## Create .venv with everything that the server needs.

serve: install ## Serve the built-in model on http://127.0.0.1:8000.
	$(BIN)/streamwell serve

chat: install ## Talk to the built-in model in the terminal.
	$(BIN)/streamwell chat

test: $(VENV)/.dev ## Run all tests.
	$(BIN)/python -m pytest

test-fast: $(VENV)/.dev ## Run the tests that start no process and load no model.
	$(BIN)/python -m pytest -m "not slow"

check: $(VENV)/.dev ## Check format, lint, types, layers and house rules.
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q tests/house

format: $(VENV)/.dev ## Format the code and mend what the linter can.
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

$(VENV)/.bench: $(VENV)/.dev
	$(BIN)/pip install --quiet -c constraints.txt --group bench
	touch $@

bench: $(VENV)/.bench ## Measure the engine and the server next to Transformers; prints tables.
	$(BIN)/python -m bench.engine
	$(BIN)/python -m bench.server

train-brooklet: $(VENV)/.dev ## Train the built-in model again.
	$(BIN)/python -m training.brooklet.train

clean: ## Remove everything that was installed or built.
	rm -rf $(VENV) dist .pytest_cache .mypy_cache .ruff_cache
