# `make run` and `make test` do all of their own set-up. Everything lands in .venv; nothing else of the machine changes,
# except that `make test` installs Debian packages for its servers and its browser where it may.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.PHONY: run serve test lint browser bench recording lock clean

run: $(STAMP)          ## Start the gateway with its defaults: terminal chat and web page.
	@$(BIN)/ethos serve

test: $(STAMP) lint    ## Install what the tests need, and run them all but the browser's.
	@deploy/install-test-packages
	$(BIN)/pytest -m "not browser"

browser: $(STAMP)      ## The tests in a real browser.
	@deploy/install-test-packages
	$(BIN)/pytest -m browser

lint: $(STAMP)         ## Style, types and layers.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(STAMP)        ## The numbers of the README.
	$(BIN)/python -m benchmarks.start
	$(BIN)/python -m benchmarks.turn_overhead
	$(BIN)/python -m benchmarks.memory_writers
	$(BIN)/python -m benchmarks.search

recording: $(STAMP)    ## Make the pictures of the README anew.
	@deploy/install-test-packages
	$(BIN)/python docs/make_recording.py
	$(BIN)/python docs/make_screenshots.py

# The newest versions that the constraints admit, for every platform and Python version at once.
lock: $(STAMP)
	$(BIN)/pip install -q uv
	$(BIN)/uv pip compile --universal --python-version 3.11 --all-extras --group dev --generate-hashes --upgrade \
	  --no-emit-index-url --no-header --no-annotate pyproject.toml -o requirements.lock

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Ethos Gateway needs Python 3.11 or newer; this is $$($(PYTHON) --version). Try: make PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { echo "Python's venv is missing. On Debian: apt-get install python3-venv"; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@$(BIN)/python -m compileall -q gateway adapters
	@touch $@

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache
