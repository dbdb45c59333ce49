# `make demo`, `make serve` and `make test` need Python 3.11 or newer and make; they set up everything else in .venv.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
TOOLS  := $(VENV)/tools/bin
# The isolated build of the package is pinned too: by the first in old versions of pip, by the second in new ones.
PIP    := PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt \
          $(BIN)/python -m pip install --quiet --disable-pip-version-check
LOCK   := $(TOOLS)/uv pip compile --quiet --universal --python-version 3.11 --all-extras --no-annotate \
          --custom-compile-command "make lock" pyproject.toml -

# For tests of the lab's page, where npm is installed; without them these tests are skipped.
NPM    := typescript@7.0.2 axe-core@4.14.0

# Tests start many processes; without bytecode files each of them would compile the whole package again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo serve test test-book nightly learn check format book lock audit clean

demo: $(VENV)/.installed
	$(BIN)/statewise compare

serve: $(VENV)/.installed-serve
	$(BIN)/statewise serve

test: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -n 2 --dist worksteal

# The chapters with all their code and exercises, and both sites in a browser.
test-book: $(VENV)/.installed-dev
	$(BIN)/python book/build.py
	$(BIN)/python -m pytest tests/book -n 2 --dist worksteal -m "slow or not slow"

nightly: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "slow or not slow"

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

# Both sites of the book, from disk: book/_build/en/index.html and book/_build/zh/index.html.
book: $(VENV)/.installed-book
	$(BIN)/python book/build.py

# Pins for every platform, and the same with hashes. Pins that still fit stay; to renew them all, remove both files first.
lock: $(TOOLS)/uv $(VENV)/.installed-dev
	printf 'hatchling\neditables\n' | $(LOCK) --output-file constraints.txt
	printf 'hatchling\neditables\n' | $(LOCK) --constraint constraints.txt --generate-hashes --output-file requirements.lock
	$(BIN)/python benchmarks/dependencies.py --licences docs/licences.md

# Known vulnerabilities of what is pinned, for every night. Fails too where no database answers.
audit: $(TOOLS)/uv
	$(TOOLS)/pip-audit --strict --disable-pip --require-hashes --requirement requirements.lock

clean:
	rm -rf $(VENV) dist .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "statewise needs Python 3.11 or newer; try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 2; }
	$(PYTHON) -m venv $(VENV)

$(TOOLS)/uv: $(VENV)/bin/python
	$(PYTHON) -m venv $(VENV)/tools
	$(TOOLS)/python -m pip install --quiet --disable-pip-version-check uv pip-audit

$(VENV)/.installed: $(VENV)/bin/python pyproject.toml constraints.txt
	@echo "Installing statewise into $(VENV) (once; PyTorch is the large part) ..."
	$(PIP) --editable .
	@touch $@

$(VENV)/.installed-serve: $(VENV)/.installed
	$(PIP) --editable '.[serve]'
	@touch $@

$(VENV)/.installed-book: $(VENV)/.installed
	$(PIP) --editable '.[book]'
	@touch $@

$(VENV)/.installed-dev: $(VENV)/bin/python pyproject.toml constraints.txt
	@echo "Installing statewise and its test tools into $(VENV) (once; PyTorch is the large part) ..."
	$(PIP) --editable '.[dev]'
	@! command -v npm >/dev/null || npm install --silent --no-audit --no-fund --no-save --prefix $(VENV) $(NPM) \
	  || echo "npm did not install $(NPM): the tests that need them are skipped"
	@touch $@ $(VENV)/.installed
