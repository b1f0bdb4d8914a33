# Two commands on a fresh machine with Python 3.11 and make: `make demo` and `make test`.
PYTHON ?= python3.11
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -q

.PHONY: demo test lint format docs bench attack clean

demo: .venv/.core
	$(BIN)/heat-ood demo

test: lint docs
	$(BIN)/python -m pytest -n 2

lint: .venv/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict src

format: .venv/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Not with --quiet, which counts no warnings, so that nothing is strict. The variable silences an advertisement.
docs: .venv/.dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

bench: .venv/.dev
	for script in fit scoring scaling large methods deep guard resolution paper_fit export serving shards; do echo "== $$script"; $(BIN)/python benchmarks/$$script.py || exit 1; done

# Everything that docs/reliability.md promises, attacked: under an hour on two cores. TRIES=2000 is a short one;
# MORE="--write docs/reliability.md" puts the tables into the page, MORE="--only files" leaves out the rest.
TRIES ?= 50000
attack: .venv/.dev
	$(BIN)/python tests/attack/run.py --tries $(TRIES) $(MORE)

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/.core: .venv/bin/python pyproject.toml constraints.txt
	$(PIP) install -c constraints.txt -e .
	touch $@

.venv/.dev: .venv/bin/python pyproject.toml constraints.txt
	$(PIP) install -c constraints.txt -e '.[dev]'
	touch .venv/.core $@

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis heat-ood-demo site
