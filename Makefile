# Two commands do everything on a machine that has Python 3.11+, pip and make:
#   make demo   fit a model, print its certificate, plot the gap
#   make test   run the whole test-suite
# While editing, `make quick` runs the tests that compile next to nothing, in about a minute on two cores.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

# Tests start many processes; without bytecode each of them would compile the library's modules anew.
export PYTHONDONTWRITEBYTECODE =

.PHONY: demo test quick lint docs dist bench campaign format clean help

help:
	@echo "make demo | test | quick | lint | docs | dist | bench | campaign | format | clean"

# The stamp is younger than pyproject.toml exactly when the environment holds what the project asks for.
$(STAMP): pyproject.toml
	$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11) and 'dualnewton needs Python 3.11 or newer: make PYTHON=python3.12 ...')"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $(STAMP)

demo: $(STAMP)
	$(BIN)/python examples/demo.py

test: $(STAMP)
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist loadgroup -q

quick: $(STAMP)
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist loadgroup -q -m "not slow"

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy --strict --config-file= tests/typing_user.py

# The site is built without a network connection; a warning, such as a link that leads nowhere, is an error.
docs: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build
	@echo "The site is in docs/_build/index.html."

# A wheel and a source distribution, checked, and installed into an empty environment in which a model is fitted.
dist: $(STAMP)
	rm -rf dist build/empty
	$(BIN)/python -m pip install --quiet --disable-pip-version-check build twine
	$(BIN)/python -m build --outdir dist
	$(BIN)/python -m twine check --strict dist/*
	$(PYTHON) -m venv build/empty
	build/empty/bin/python -m pip install --quiet --disable-pip-version-check dist/*.whl
	cd build && empty/bin/dualnewton fit breast_cancer

# The peers are an extra: a comparison needs them, the library does not.
bench: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[bench]'
	$(BIN)/python -m benchmarks.run

# Random attempts to break the library, for hours; it continues where it was left, and docs/reliability.md says what is promised.
campaign: $(STAMP)
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m campaign run
	$(BIN)/python -m campaign report

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) build dist docs/_build docs/gallery docs/generated .mypy_cache .pytest_cache .ruff_cache .hypothesis demo_gap.png
