# `make quickstart` and `make test` need Python >= 3.11 and make, nothing else: each makes .venv by itself.
# Another Python: make test PYTHON=python3.12

PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed

.PHONY: quickstart test check wheel clean

quickstart: $(INSTALLED)
	$(BIN)/msgrpo train --preset quickstart --output-dir runs/quickstart --resume

test: $(INSTALLED)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 3 --dist worksteal

check: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

wheel: $(INSTALLED)
	rm -rf dist
	$(BIN)/python -m pip wheel --no-deps --wheel-dir dist .

clean:
	rm -rf .venv build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis

# One resolver call with torch in it, so that exactly the pinned torch comes, and comes once.
$(INSTALLED): pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt torch -e '.[dev]'
	@touch $@

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	{ echo "no Python 3.11 or newer under the name '$(PYTHON)': name one, as in: make $(or $(MAKECMDGOALS),quickstart) PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -m venv .venv
