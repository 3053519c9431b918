# Every target sets up what it needs; `make` alone explains them.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# Two tests at a time, each with one thread of PyTorch's: with more on two cores, those that train take
# several times as long.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q

.DEFAULT_GOAL := help
.PHONY: help setup demo digits samba check format test test-long conformance bench schema golden clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-11s %s\n", $$1, $$2}'

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt hatchling editables
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-build-isolation -e '.[dev,bench,torch]'
	@touch $@

setup: $(READY)  ## create .venv with everything pinned in constraints.txt

demo: $(READY)  ## compile a real network, run it, show sections, memory and the result
	$(BIN)/python examples/demo.py

digits: $(READY)  ## train on handwritten digits from the command line, evaluate, plot the loss
	PATH="$(CURDIR)/$(BIN):$$PATH" sh examples/digits/run.sh build/digits

samba: $(READY)  ## a SambaFlow application with handwritten digits: compile, run, test, measure, infer
	PATH="$(CURDIR)/$(BIN):$$PATH" sh examples/samba_digits/run.sh build/samba

check: $(READY)  ## formatting, lint, types, import rules, generated code
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python schema/regenerate.py --check

format: $(READY)  ## rewrite the code in the project's format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

test: $(READY)  ## every test but the long sweeps
	$(PYTEST) -n 2 -m 'not long'

test-long: $(READY)  ## the long sweeps
	$(PYTEST) -n 2 -m long --timeout 900

conformance: $(READY)  ## rewrite docs/conformance.md after a wanted change; review the diff
	$(BIN)/python tests/conformance table

golden: $(READY)  ## rewrite the golden files after a wanted change; review the diff
	$(PYTEST) tests/golden --update-golden

bench: $(READY)  ## speed, memory and compile-time comparisons, written to benchmarks/results
	$(BIN)/python -m benchmarks

schema: $(READY)  ## regenerate the FlatBuffers code from schema/pef/pef.fbs
	$(BIN)/python schema/regenerate.py

clean:  ## remove the environment and caches
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
