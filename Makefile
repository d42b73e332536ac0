# make demo: set up, compile, run and draw one real model.   make test: set up and run the test suite.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test lint setup schemas clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints-dev.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -c constraints-dev.txt "torch>=2.11"
	$(BIN)/python -m pip install --quiet -c constraints-dev.txt -e ".[runtime,study,dev]"
	touch $(STAMP)

demo: setup
	$(BIN)/python examples/demo.py

test: setup
	$(BIN)/python -m pytest

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

schemas: setup
	$(BIN)/python -m octoplan_schemas.json_schema schemas/json

clean:
	rm -rf $(VENV) out build dist *.egg-info
