# `make run` and `make test` do all of their own set-up. Everything lands in .venv; nothing else of the machine changes,
# except that `make test` installs Debian packages for its servers and its browser where it may.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check
RUN    := $(VENV)/.installed
DEV    := $(VENV)/.installed-for-tests

# pytest rewrites each file of tests as it loads it: once, where Python may keep what it has compiled.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run channels test slow faults audit lint browser bench recording docs lock clean

run: $(RUN)            ## Start the gateway with its defaults: terminal chat and web page.
	@$(BIN)/ethos serve

channels: $(RUN)       ## Install the libraries of all channels and memories, LGPL and GPL ones among them.
	$(PIP) --require-hashes -r requirements-channels.lock

test: $(DEV) lint      ## Install what the tests need, and run them all but the browser's and the slow ones.
	@deploy/install-test-packages
	$(BIN)/pytest -n auto --dist loadfile -m "not browser and not slow"

slow: $(DEV)           ## The long tests: kills at each step, floods, every order of events, every request that the API allows.
	@deploy/install-test-packages
	$(BIN)/pytest -n auto --dist worksteal -m slow $$(grep -rl --include='test_*.py' mark.slow tests)

browser: $(DEV)        ## The tests in a real browser.
	@deploy/install-test-packages
	$(BIN)/pytest -m browser tests/browser

faults: $(DEV)         ## Kill real gateways, 100 times at every point and 1 000 at random, and writers of each memory; what is lost?
	@deploy/install-test-packages
	$(BIN)/python -m tests.faults $(FAULTS)

audit: $(DEV)          ## The lock files against known weaknesses and licences, without a network.
	$(BIN)/pytest tests/house/test_dependencies.py

lint: $(DEV)           ## Style, types and layers.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(DEV)          ## The numbers of the README.
	$(BIN)/python -m benchmarks.start
	$(BIN)/python -m benchmarks.commands
	$(BIN)/python -m benchmarks.turn_overhead
	$(BIN)/python -m benchmarks.tool_calls
	$(BIN)/python -m benchmarks.prefix
	$(BIN)/python -m benchmarks.asking
	$(BIN)/python -m benchmarks.memory_writers
	@deploy/install-test-packages
	$(BIN)/python -m benchmarks.providers
	$(BIN)/python -m benchmarks.search
	$(BIN)/python -m benchmarks.retrieval
	$(BIN)/python -m benchmarks.excerpt
	$(BIN)/python -m benchmarks.traces
	$(BIN)/python -m benchmarks.flood
	$(BIN)/python -m benchmarks.backlog
	$(BIN)/python -m benchmarks.workers
	$(BIN)/python -m benchmarks.api
	$(BIN)/python -m benchmarks.channels

recording: $(DEV)      ## Make the pictures of the README anew.
	@deploy/install-test-packages
	$(BIN)/python docs/make_recording.py
	$(BIN)/python docs/make_screenshots.py
	$(BIN)/python -m docs.make_scenes

docs: $(DEV)           ## The pages as a site, with search, light and dark: build/docs/index.html.
	$(BIN)/python -m sphinx -b html -c docs -W --keep-going -q . build/docs
	@echo "Open build/docs/index.html"

# The newest versions that the constraints admit, for every platform and Python version at once.
LOCK := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --upgrade --no-emit-index-url \
  --no-header --no-annotate pyproject.toml

lock: $(DEV)
	$(PIP) uv
	$(LOCK) --extra models --extra keyring --group build -o requirements.lock
	$(LOCK) --all-extras --group build -o requirements-channels.lock
	$(LOCK) --all-extras --group build --group dev -o requirements-dev.lock

$(RUN): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Ethos Gateway needs Python 3.11 or newer; this is $$($(PYTHON) --version). Try: make PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { echo "Python's venv is missing. On Debian: apt-get install python3-venv"; exit 1; }
	@echo "Installing $$(grep -c '==' requirements.lock) packages into $(VENV): a minute or two, once."
	@$(PIP) --require-hashes -r requirements.lock
	@$(PIP) --no-deps --no-build-isolation -e .
	@$(BIN)/python -m compileall -q gateway adapters
	@touch $@

$(DEV): $(RUN) requirements-dev.lock
	@echo "Installing $$(grep -c '==' requirements-dev.lock) packages for the tests: a minute or two, once."
	$(PIP) --require-hashes -r requirements-dev.lock
	@touch $@

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache
