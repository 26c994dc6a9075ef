# `make search` and `make test` are all that a newcomer needs; both set up .venv first.

VENV := .venv
BIN := $(VENV)/bin
PROBLEM ?= scale_gelu_residual
# The first Python of 3.11 or newer on PATH.
PYTHON ?= $(shell for p in python3 python3.11 python3.12 python3.13 python3.14; do \
	command -v $$p >/dev/null 2>&1 && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	&& { echo $$p; break; }; done)

.PHONY: search test lint gpu-test clean

search: $(VENV)/.installed compiler
	$(BIN)/python -m kernelpro search $(PROBLEM) --time 90s

test: $(VENV)/.installed compiler
	$(BIN)/python -m pytest -m "not gpu" -n logical --maxprocesses 4 --dist worksteal

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

gpu-test:
	python3 -m pytest -m gpu

$(VENV)/.installed: pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "kernelpro needs Python 3.11 or newer, but found none on PATH: apt install python3 python3-venv (Debian, Ubuntu) or dnf install python3 (Fedora)" >&2; exit 2; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "kernelpro needs Python's venv module: apt install python3-venv (Debian, Ubuntu)" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@

.PHONY: compiler
compiler:
	@command -v "$${CXX:-g++}" >/dev/null 2>&1 || command -v clang++ >/dev/null 2>&1 || { echo "kernelpro needs a C++ compiler, but found neither g++ nor clang++: apt install g++ (Debian, Ubuntu) or dnf install gcc-c++ (Fedora)" >&2; exit 2; }

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache
