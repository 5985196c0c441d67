# Everything here is plain pip and python; the README shows the same lines for people without make.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin

.PHONY: run test check screenshots

run: .venv/installed
	$(BIN)/python app.py fetch
	$(BIN)/python app.py

test: .venv/installed-test
	$(BIN)/python app.py fetch
	$(BIN)/python -m pytest

check: .venv/installed-test
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

screenshots: .venv/installed-test
	$(BIN)/python app.py fetch
	$(BIN)/python -m benchmarks.screenshots

# The stamps are newer than pyproject.toml once its dependencies are in: then nothing is installed.
.venv/installed: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --disable-pip-version-check -e .
	touch $@

.venv/installed-test: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --disable-pip-version-check -e ".[test]"
	touch $@ .venv/installed

.venv/bin/python:
	$(PYTHON) -c "import sys; sys.exit('Pageturn needs Python 3.11 or newer; give one with: make run PYTHON=...' if sys.version_info < (3, 11) else 0)"
	$(PYTHON) -m venv .venv
