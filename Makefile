# `make study` and `make test` work from nothing on a fresh Linux machine with Python 3.11 to 3.13, git and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# stages call `python`, so the environment comes first on the path
RUN := PATH="$(CURDIR)/$(BIN):$$PATH"
BASELINE ?= no
# an index that torch and torchvision come from, such as PyTorch's own of CPU builds
TORCH_INDEX ?=
STATE := dvc.lock params.yaml
SAME := git diff --quiet HEAD -- $(STATE)

.PHONY: help setup study test test-all lint

help:            ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/'

setup: $(VENV)/.ready            ## make .venv with the pinned dependencies of study, sweeps and tests

$(VENV)/.study: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14) and "error: Python 3.11 to 3.13 is needed, this is " + sys.version.split()[0] + "; try make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	@test -z "$(TORCH_INDEX)" || $(BIN)/python -m pip install --quiet torch torchvision --index-url "$(TORCH_INDEX)" --constraint constraints.txt
	$(BIN)/python -m pip install --quiet --editable ".[study]" --constraint constraints.txt
	touch $@

$(VENV)/.ready: $(VENV)/.study
	$(BIN)/python -m pip install --quiet --editable ".[dev]" --constraint constraints.txt
	touch $@

study: $(VENV)/.study            ## run the whole study; BASELINE=yes commits what dvc metrics diff compares with
	$(RUN) dvc repro
	@test "$(BASELINE)" != yes || $(SAME) || git commit --quiet -m "The study on this machine" $(STATE) || true
	@$(SAME) || echo "to compare later runs with this one: git commit -m 'The study on this machine' $(STATE)"
	@echo "report: reports/index.html    runs: $(BIN)/mlflow ui"

test: setup            ## run the tests: about 5 minutes on 2 cores
	$(RUN) $(BIN)/python -m pytest -q -n 3 --no-loadscope-reorder --durations 12 --durations-min 5 -m "not slow"

test-all: setup            ## run the slow tests as well (kills, hosts, sweeps, studies)
	$(RUN) $(BIN)/python -m pytest -q -n 4 --no-loadscope-reorder --durations 12 --durations-min 5

lint: setup            ## run ruff and mypy
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy
