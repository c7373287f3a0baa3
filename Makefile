# make test    everything that must hold at every commit (what .ci/run calls)
# make demo    real hosts, the reference deployment, a fault restored: in a few minutes
# make lint    ruff, mypy, ansible-lint, yamllint, shellcheck
# make drills  the long ones: power cuts, kills, faults, the newest engine
# make bench   status and a second deploy beside `ansible -m command`, a forecast beside a bare
#              interpreter, as ratios
# make lock    resolve requirements.lock anew
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
ENGINES ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/opsctl/cpu-engine
export PATH := $(abspath $(BIN)):$(PATH)

.PHONY: setup lab-packages lint test demo drills bench lock clean

setup: $(VENV)/.installed

$(VENV)/.installed: requirements.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --require-hashes --requirement requirements.lock
	$(BIN)/pip install --quiet --no-deps --editable .
	touch $@

# Debian packages that booting hosts and linting need; nothing is done where all are there.
lab-packages:
	bash tools/packages.sh

lint: setup lab-packages
	ruff check .
	ruff format --check .
	mypy
	yamllint --strict .
	ansible-lint --offline --profile production
	shellcheck $$(git ls-files '*.sh') .ci/run

test: lint
	bash tools/cpu_engine.sh 0.5.9 $(ENGINES)/0.5.9
	bash tools/test.sh

demo: setup lab-packages
	bash tools/demo.sh

drills: setup lab-packages
	bash tools/packages.sh rpm createrepo-c
	bash tools/cpu_engine.sh 0.5.9 $(ENGINES)/0.5.9
	bash tools/cpu_engine.sh 0.5.23 $(ENGINES)/0.5.23
	pytest -m drill --ignore=tests/postdeploy --ignore=tests/drills/test_dnf_host.py tests

bench: setup lab-packages
	python tools/bench.py
	python tools/bench_forecast.py

lock: setup
	uv pip compile --quiet --universal --generate-hashes --no-annotate --no-header \
	    --python-version 3.11 --extra dev --output-file requirements.lock pyproject.toml

clean:
	rm -rf $(VENV) dist build
