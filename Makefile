# Every target sets up what it needs: `make serve` and `make test` are all that a fresh machine has to know.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: serve test lint fix gates bench soak foreign clean

serve: $(VENV)/.serve
	$(BIN)/soloist serve $(ARGS)

test: $(VENV)/.test
	$(BIN)/python -m pytest -q $(ARGS)

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

fix: $(VENV)/.test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

gates: $(VENV)/.test
	$(BIN)/python tests/run_gates.py $(ARGS)

bench: $(VENV)/.serve
	$(BIN)/soloist bench $(ARGS)

soak: $(VENV)/.serve
	$(BIN)/soloist bench --soak $(ARGS)

foreign: $(VENV)/.serve
	$(BIN)/soloist bench --foreign $(ARGS)

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.serve: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable . --constraint constraints.txt
	touch $@

$(VENV)/.test: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test]' --constraint constraints.txt
	touch $@ $(VENV)/.serve

clean:
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .pytest_cache
