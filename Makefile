# Every target sets up what it needs; `make` alone explains them.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# Two tests at a time, each with one thread of PyTorch's: with more on two cores, those that train take
# several times as long. Python keeps what it compiles, even where it is told not to: many tests start
# processes that import all of it again.
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q
# The tests of a file in one process, as they share what they compile.
PARALLEL := -n 2 --dist loadfile --no-loadscope-reorder
# Other kernels for PyTorch than this processor's, as other processors have them: what hangs on rounding
# fails with one of them. Those of onnxruntime follow the processor alone.
PLAIN := ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41 OMP_NUM_THREADS=1
AVX2 := ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 OMP_NUM_THREADS=2
NUMERIC := $(BIN)/python -m pytest -q -m 'numeric and not long' --timeout 900

.DEFAULT_GOAL := help
.PHONY: help setup demo digits letters samba pybuda check format test test-long test-numeric slow conformance bench bench-device fit-device schema golden clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-13s %s\n", $$1, $$2}'

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

letters: $(READY)  ## train a transformer on this project's pages, and let it write with a cache
	PATH="$(CURDIR)/$(BIN):$$PATH" sh examples/letters/run.sh build/letters

samba: $(READY)  ## a SambaFlow application with handwritten digits: compile, run, test, measure, infer
	PATH="$(CURDIR)/$(BIN):$$PATH" sh examples/samba_digits/run.sh build/samba

pybuda: $(READY)  ## the same pictures through PyBuda: train, save, evaluate with several formats
	mkdir -p build/pybuda
	$(BIN)/python examples/pybuda_digits/app.py --save build/pybuda/digits.pt

check: $(READY)  ## formatting, lint, types, import rules, generated code
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python schema/regenerate.py --check

format: $(READY)  ## rewrite the code in the project's format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

test: $(READY)  ## every test but slow ones and the long sweeps
	$(PYTEST) $(PARALLEL) -m 'not long and not slow'

test-long: $(READY)  ## slow tests, the long sweeps, and `make test-numeric`
	$(PYTEST) $(PARALLEL) -m 'slow and not long' --ignore tests/property
	$(PYTEST) -n 2 -m long --timeout 900
	$(PYTEST) $(PARALLEL) -m 'not long' --timeout 900 --hypothesis-profile whole tests/property
	$(MAKE) test-numeric

test-numeric: $(READY)  ## the numeric tests twice again, with other kernels and threads of PyTorch
	$(PLAIN) $(NUMERIC) $(PARALLEL)
	@if grep -qs avx512f /proc/cpuinfo; then $(AVX2) $(NUMERIC) -n 1; \
	else echo 'A processor without AVX-512 has computed with these kernels in `make test`.'; fi

slow: $(READY)  ## measure all tests but the long sweeps, and list those that `make test` leaves out
	$(PYTEST) $(PARALLEL) -m 'not long' --junitxml build/tests.xml
	$(BIN)/python tests/support/slow.py build/tests.xml

conformance: $(READY)  ## rewrite docs/conformance.md after a wanted change; review the diff
	$(BIN)/python tests/conformance table

golden: $(READY)  ## rewrite the golden files after a wanted change; review the diff
	$(PYTEST) tests/golden --update-golden

bench: $(READY)  ## speed, memory and compile-time comparisons, written to benchmarks/results
	$(BIN)/python -m benchmarks

bench-device: $(READY)  ## what the modelled devices predict beside published measurements
	$(BIN)/python -m benchmarks device

fit-device: $(READY)  ## fit the constants of devices to them again; review the diff
	$(BIN)/python -m benchmarks.device_fit

schema: $(READY)  ## regenerate the FlatBuffers code from schema/pef/pef.fbs
	$(BIN)/python schema/regenerate.py

clean:  ## remove the environment and caches
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
