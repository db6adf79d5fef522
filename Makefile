# Needs Python 3.11+ and make. `make demo` and `make test` set everything up themselves, in .venv.

PYTHON ?= $(firstword $(foreach name,python3 python3.14 python3.13 python3.12 python3.11 python,$(shell $(name) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $(name))))
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PACKAGES := pulsar_admin store commands
# Without .pyc files every process of the tests compiles what it imports again, and pytest rewrites every module's asserts.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup test lint check docs screenshots site man demo demo-spark test-live test-deep test-spark test-browser fuzz fuzz-lines bench bench-peers constraints wheel wheelhouse sdist clean

help:
	@echo "make demo       the main jobs on small real data, step by step; make demo-spark: the bulk work on Spark"
	@echo "make test       the test suite but for what starts Spark, on all cores (one test: .venv/bin/python -m pytest tests/FILE -k NAME)"
	@echo "make check      make lint (lint, format, types), architecture, generated docs and protos"
	@echo "make docs       write the generated pages of docs/ again"
	@echo "make site       the documentation as a site, into site/; make man: as manual pages, into man/"
	@echo "make screenshots  draws the pictures of docs/images again, and screens and pages into build/pictures (it says what it needs)"
	@echo "make test-live  against a real Pulsar (needs Maven and Java); ALL=1: and every rule of the doctor that is tried on one"
	@echo "make test-spark  on Spark (needs Java): here, and on a cluster whose workers do not see the checkout (root, for unshare);"
	@echo "                ALL=1: all of the cluster's"
	@echo "make test-browser  the page of doctor --html in Chromium, which has to be installed"
	@echo "make test-deep  the slow properties, and every fault at every step (hours)"
	@echo "make fuzz       fuzz every decoder and reader, SECONDS=60 each; ONLY=journal,avro for some (docs/fuzzing.md)"
	@echo "make fuzz-lines run LINES=20000 hostile command lines on a small store"
	@echo "make bench      measure all, beside cat, an interpreter that imports click, and Spark (an hour, 20 GB)"
	@echo "make bench ONLY=cold,scan  a part of it: cold large metadata scan import import10m generate growth spark memory"
	@echo "                dump delayed compaction; docs/benchmarks.md says what each measures and takes"
	@echo "make bench-peers  in turn with Pulsar's own tools, at 1 and 4 million entries (needs Maven and Java; 10 GB)"
	@echo "make wheelhouse all wheels in one archive, for a host without network"
	@echo "make clean      remove what make made (compiled code stays in ~/.cache/pulsar-admin-toolkit)"

setup: $(READY)

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "error: no Python 3.11 or newer on PATH; name one: make PYTHON=/path/to/python3" >&2; exit 7; }
	@$(PYTHON) -m venv $(VENV) || { echo "error: $(PYTHON) cannot make an environment: install its venv package (python3-venv)" >&2; exit 7; }

$(READY): pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	$(BIN)/python -m compileall -q $(PACKAGES)
	@touch $@

# What the demo needs: the packages of the program alone; pip's lines but for what it downloads are left out.
$(VENV)/.base: SHELL := bash
$(VENV)/.base: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Setting up $(VENV) with $(PYTHON): about 175 MB of packages, 630 MB on disk; make clean removes it"
	@set -o pipefail; $(BIN)/python -m pip install --disable-pip-version-check --progress-bar off -c constraints.txt -e '.[plots]' \
		| sed -un '/metadata/d; s/^ *\(Downloading\|Using cached\) \([^ ]*\) /  \1 \2 /p; s/^Installing collected.*/  Installing .../p'
	@touch $@

test: setup
	$(BIN)/python -m pytest -m "not live and not deep and not cluster and not spark and not browser" -n auto --maxprocesses 8 --dist loadfile --no-loadscope-reorder

lint: setup
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m mypy
	$(BIN)/basedpyright

check: lint
	$(BIN)/python -m pytest tests/test_architecture.py tests/test_docs.py tests/test_protos_fresh.py

docs: setup
	$(BIN)/python docs/generate.py

site: setup
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[site]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict
	@echo "site/index.html"

screenshots: site
	$(BIN)/python docs/screenshots.py

man: setup
	$(BIN)/python docs/manpages.py man

demo: $(if $(wildcard $(READY)),$(READY),$(VENV)/.base)
	PATH="$(CURDIR)/$(BIN):$$PATH" bash docs/demo.sh

demo-spark: $(if $(wildcard $(READY)),$(READY),$(VENV)/.base)
	@command -v java >/dev/null || { echo "error: no java on PATH: Spark needs Java 17 or newer" >&2; exit 7; }
	$(if $(wildcard $(READY)),,$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[plots,spark]')
	PATH="$(CURDIR)/$(BIN):$$PATH" bash docs/demo.sh spark

test-live: setup
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r tests/live/requirements.txt
	$(BIN)/python -m tests.live.distribution
	$(BIN)/python -m pytest -m live -n auto --maxprocesses 2 --dist loadfile --no-loadscope-reorder tests/live

test-spark: setup
	$(BIN)/python -m pytest -m "spark and not deep" tests/spark
	@unshare -m true 2>/dev/null || { echo "not tested on a cluster: unshare needs root" >&2; exit 0; }; \
		set -x; $(BIN)/python -m pytest -m cluster $(if $(ALL),tests/spark/test_equal_answers.py,-k "killed or packages") tests/spark/test_cluster.py

test-browser: setup
	$(BIN)/python -m pip install --quiet --disable-pip-version-check playwright==1.65.2
	$(BIN)/python -m pytest -m browser tests/page

test-deep: setup
	$(BIN)/python -m pytest -m deep
	$(BIN)/python -m pytest -p tests.doctor.agreeing_everywhere tests/cures tests/doctor tests/nacks tests/rules tests/test_check.py \
		tests/test_copies.py tests/test_scalable.py tests/test_starts.py

fuzz: setup
	-$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[fuzz]'
	$(BIN)/python -m tests.fuzz --seconds $(or $(SECONDS),60) $(if $(ONLY),--targets $(ONLY))

fuzz-lines: setup
	$(BIN)/python -m tests.fuzz.command_lines --lines $(or $(LINES),20000)

bench: setup
	$(BIN)/python -m bench $(if $(ONLY),--only $(ONLY))
	$(if $(ONLY),,$(BIN)/python -m bench.nacks --quick)

bench-peers: setup
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r tests/live/requirements.txt
	$(BIN)/python -m bench --only peers --peers .benchmarks/peers

constraints: setup
	$(BIN)/python -m pip freeze --exclude-editable --disable-pip-version-check | grep -E '^[A-Za-z0-9._-]+==' > constraints.txt.new
	mv constraints.txt.new constraints.txt

sdist: setup
	$(BIN)/python -m pip install --quiet --disable-pip-version-check hatchling
	$(BIN)/python -m hatchling build -t sdist -d dist

# pip brings what builds the wheel; nothing of the project's own environment is needed.
wheel: | $(BIN)/python
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .

# For a host without network: all wheels for this Python and machine, and their checksums; EXTRAS=[plots,sql] adds what extras need.
wheelhouse: | $(BIN)/python
	rm -rf dist/wheelhouse
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check -c constraints.txt --wheel-dir dist/wheelhouse '.$(EXTRAS)'
	cd dist/wheelhouse && sha256sum *.whl > SHA256SUMS
	tar -C dist -cf dist/wheelhouse.tar wheelhouse
	@echo "dist/wheelhouse.tar: unpack it, sha256sum -c SHA256SUMS, pip install --no-index --find-links . pulsar-admin-toolkit"

clean:
	rm -rf $(VENV) dist build site man .mypy_cache .ruff_cache .pytest_cache .hypothesis .benchmarks .demo .cache
	find $(PACKAGES) tests docs -name __pycache__ -type d -prune -exec rm -rf {} +
