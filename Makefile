# Two commands do all set-up themselves: `make demo` and `make test`. Both are re-runnable without downloads.
# VENV (and VENV313, VENV214) may point outside the clone, so that several clones share one set of packages.
SHELL := /bin/bash
PYTHON ?= python3
VENV ?= .venv
VENV313 ?= $(VENV)-py313
VENV214 ?= $(VENV)-torch214
JOBS ?= 2
PROGRAMS ?= 10000
DRAWS ?= 20000
PY := $(VENV)/bin/python
export PYTHONPATH := $(CURDIR)
export JAX_PLATFORMS ?= cpu

.PHONY: setup demo test lint types unit compat mlx torch conformance docs-test py313 torch214 test-slow test-cuda fuzz fuzz-files bench docs matrix audit clean

setup:
	@PYTHON="$(PYTHON)" tools/venv.sh "$(VENV)" constraints.txt .[mlx,torch,quabla,cli,docs,dev] -r requirements-test.txt

demo: setup
	@$(PY) -m quabla_jax demo

test: setup
	@JOBS=$(JOBS) VENV="$(VENV)" VENV313="$(VENV313)" VENV214="$(VENV214)" tools/test.sh

lint types unit compat mlx torch conformance docs-test py313 torch214: setup
	@JOBS=$(JOBS) VENV="$(VENV)" VENV313="$(VENV313)" VENV214="$(VENV214)" tools/test.sh $@

test-slow: setup
	@$(PY) -m pytest tests -m slow -n $(JOBS)

test-cuda: setup
	@$(PY) tools/test_cuda.py

fuzz: setup
	@mkdir -p build && $(PY) -m conformance.fuzz --programs $(PROGRAMS) --state build/fuzz.jsonl

fuzz-files: setup
	@FILE_DRAWS=$(DRAWS) $(PY) -m pytest -s tests/fuzz/test_files_fuzz.py

matrix: setup
	@$(PY) tools/matrix.py $(VENV)-matrix

audit: setup
	@$(PY) tools/audit.py

bench: setup
	@$(PY) -m quabla_jax bench

docs: setup
	@$(PY) -m mkdocs build --strict

clean:
	rm -rf .venv .venv-py313 .venv-torch214 demo-output build dist site
