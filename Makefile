# `make demo` and `make test` need Python 3.11 or newer and make; they set up everything else in .venv.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test learn check format clean

demo: $(VENV)/.installed
	$(BIN)/statewise compare

test: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -n 2 --dist worksteal

learn: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -m slow -s -q tests/learning/test_recipes.py

check: $(VENV)/.installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(MAKE) test

format: $(VENV)/.installed-dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) dist .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "statewise needs Python 3.11 or newer; try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 2; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(VENV)/bin/python pyproject.toml constraints.txt
	@echo "Installing statewise into $(VENV) (once; PyTorch is the large part) ..."
	$(PIP) --editable .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/bin/python pyproject.toml constraints.txt
	@echo "Installing statewise and its test tools into $(VENV) (once; PyTorch is the large part) ..."
	$(PIP) --editable '.[dev]'
	@touch $@ $(VENV)/.installed
