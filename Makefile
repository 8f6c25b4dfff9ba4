# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# Needs Python 3.11 or newer, git and GNU make. Writes to .venv/, .cache/ and, for the demo, graceful-reports/.

PYTHON ?= python3
ARGS ?=

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

TOOLS := "$(CURDIR)/tests/tools"
MAKE_ENV := $(PYTHON) $(TOOLS)/environments.py make
RUN := $(PYTHON) $(TOOLS)/environments.py run
COPY := .cache/collections/ansible_collections/graceful/azure
# Runs $(2) with each environment in $(1) and fails if one of them failed.
each = status=0; for name in $(1); do ($(2)) || status=1; done; exit $$status
# As `each`, for all environments but that which make test uses.
others = best=$$($(PYTHON) $(TOOLS)/environments.py best); $(call each,lowest main newest,[ "$$name" = "$$best" ] || { $(1); })
# What make test does, then the targets $(1), and what was skipped. Tests one after the other: each uses both processors, and
# some wait for answers. Lint and types give way to them.
parts = rm -rf .cache/skipped; status=0; \
	nice $(MAKE) --keep-going --jobs=2 --output-sync=target types lint & beside=$$!; \
	$(MAKE) --keep-going integration-quick unit-best $(1) || status=$$?; \
	wait $$beside || status=$$?; \
	echo; echo "== skipped, and why"; cat .cache/skipped/* 2>/dev/null | grep . || echo nothing; \
	if [ $$status != 0 ]; then echo "== failed: see above"; exit $$status; fi; echo "== all passed"
# What make test-all does beside make test, the longest first.
MATRIX := integration sanity unit-others docs-lint tarball

.PHONY: help
help: ## Say what can be made
	@sed -nE 's/^([a-z][a-z-]*):.*## (.*)/\1|\2/p' Makefile | while IFS='|' read -r name text; do printf '  %-17s %s\n' "$$name" "$$text"; done

.PHONY: demo
demo: main copy ## Play a maintenance from notice to restore against the emulator
	@$(RUN) main python examples/demo/run.py $(ARGS)

.PHONY: test
test: best copy ## What a change has to pass, in a few minutes: unit tests, a choice of the others, lint and types
	@$(call parts)

.PHONY: test-all
test-all: versions copy ## The same and the whole matrix: each ansible-core, all integration tests, sanity, tarball, docs
	@$(call parts,$(MATRIX))

.PHONY: matrix
matrix: $(MATRIX) ## What test-all does beside test

.PHONY: lint
lint: main copy ## Lint playbooks and roles (ansible-lint, production), YAML and Python's style
	@$(RUN) main ruff check .
	@$(RUN) main ruff format --check .
	@$(RUN) main yamllint --strict .
	@$(RUN) main ansible-lint

.PHONY: types
types: main copy ## Check the types of all Python (mypy --strict)
	@cd .cache/collections && $(RUN) main mypy --strict --cache-dir ../mypy --config-file ansible_collections/graceful/azure/pyproject.toml ansible_collections

.PHONY: docs-lint
docs-lint: main copy ## Check that the documentation renders and what is generated is up to date, and the changelog
	@$(RUN) main python $(TOOLS)/generate.py --check
	@# It writes a log to HOME.
	@cd $(COPY) && HOME="$(CURDIR)/.cache" $(RUN) main antsibull-docs lint-collection-docs --plugin-docs --validate-collection-refs=self .
	@$(RUN) main antsibull-changelog lint

.PHONY: unit
unit: unit-best unit-others ## Unit tests, with each ansible-core

.PHONY: unit-best
unit-best: best copy ## Unit tests, with the newest ansible-core that a Python found here can run
	@cd $(COPY) && $(RUN) best pytest tests/unit -n 6 --dist loadfile $(ARGS)

.PHONY: unit-others
unit-others: versions copy ## Unit tests, with the others (emulator and watcher know nothing of Ansible: once is enough)
	@$(call others,cd $(COPY) && nice $(RUN) "$$name" pytest tests/unit --ignore=tests/unit/emulator --ignore=tests/unit/watcher -n 2 --dist loadfile $(ARGS))

.PHONY: integration
integration: versions copy ## All integration tests against the emulator, with the lowest and the newest ansible-core
	@$(call each,lowest newest,cd $(COPY) && $(RUN) "$$name" pytest tests/integration -n 2 --dist loadgroup $(ARGS))
	@# Every other suite uses the middle one. The engine knows nothing of Ansible: once is enough.
	@cd $(COPY) && $(RUN) main pytest tests/contract -n 2 $(ARGS)

.PHONY: integration-quick
integration-quick: best copy ## A choice of them, and of the cycle's, that touches every module and role
	@cd $(COPY) && $(RUN) best pytest tests/integration tests/cycle -m quick -n 4 --dist loadgroup $(ARGS)

.PHONY: cycle
cycle: main copy ## The maintenance cycle end to end, under faults and with the controller killed
	@# More than there are cores: hosts and events are waited for, too.
	@cd $(COPY) && $(RUN) main pytest tests/cycle -n 4 --dist worksteal $(ARGS)

.PHONY: cycle-others
cycle-others: versions copy ## The same in short, with the lowest ansible-core; make test does so with the newest one
	@cd $(COPY) && $(RUN) lowest pytest tests/cycle -n 2 -m quick $(ARGS)

.PHONY: services
services: main copy ## Drains and checkpoints against real HAProxy, Redis, Patroni, Pacemaker and PostgreSQL from Debian's packages
	@cd $(COPY) && $(RUN) main pytest tests/services -n 3 --dist loadfile $(ARGS)

.PHONY: test-awx
test-awx: main copy ## The playbook awx with the modules of awx.awx (a download), and what ansible-builder makes of our files
	@cd $(COPY) && $(RUN) main pytest tests/awx $(ARGS)

.PHONY: test-eda
test-eda: eda copy ## Event sources and rulebooks with the real ansible-rulebook and ansible-runner (Java 17)
	@cd $(COPY) && $(RUN) eda pytest tests/eda $(ARGS)

.PHONY: campaign
campaign: main copy ## Random fleets, events and faults; RUNS=… for longer, SEED=… ONLY=… to replay
	@cd .cache/collections && $(RUN) main python -m ansible_collections.graceful.azure.tests.campaign --directory ../campaign \
		$(if $(SEED),--seed "$(SEED)") $(if $(RUNS),--runs "$(RUNS)") $(if $(ONLY),--only "$(ONLY)") $(ARGS)

.PHONY: test-lab
test-lab: main copy ## Molecule scenarios on machines that really reboot (root on Linux); ends with the figures
	@cd $(COPY) && GRACEFUL_LAB_CACHE="$(CURDIR)/.cache/lab" $(RUN) main python tests/lab/scenarios.py $(ARGS)

.PHONY: test-lab-all
test-lab-all: eda ## All of the scenarios
	@$(MAKE) test-lab ARGS="--all $(ARGS)"

.PHONY: lab
lab: main copy ## A shell in an empty lab
	@cd $(COPY) && GRACEFUL_LAB_CACHE="$(CURDIR)/.cache/lab" $(RUN) main python tests/lab/lab.py enter

.PHONY: test-windows
test-windows: main copy ## The modules for Windows on a real PowerShell under Wine (root on Debian or Ubuntu, downloads)
	@cd $(COPY) && GRACEFUL_WINDOWS_CACHE="$${GRACEFUL_WINDOWS_CACHE:-$(CURDIR)/.cache/windows}" $(RUN) main pytest tests/windows -n 2 --dist loadfile $(ARGS)

.PHONY: sanity
sanity: versions copy ## ansible-test sanity, with no exceptions
	@# It takes all the processors it gets; what waits for answers beside it goes first.
	@$(call each,main newest,nice $(RUN) "$$name" python $(TOOLS)/sanity.py $(ARGS))

.PHONY: tarball
tarball: main copy ## Build the tarball, install it elsewhere and run the modules from there
	@cd .cache/collections && $(RUN) main python -m ansible_collections.graceful.azure.tests.tools.tarball "$(CURDIR)"

.PHONY: bench
bench: main copy bench-plan ## Measure; prints ratios, and draws them (.cache/bench.svg). ARGS=--quick for less
	@cd .cache/collections && $(RUN) main python -m ansible_collections.graceful.azure.benchmarks --result ../bench.json $(ARGS)

.PHONY: bench-plan
bench-plan: main copy ## Measure the plan of 5,000 hosts only
	@cd .cache/collections && $(RUN) main python -m ansible_collections.graceful.azure.benchmarks.plan

.PHONY: bench-eda
bench-eda: eda copy ## 10,000 hosts report 100 events within a minute to one real ansible-rulebook; ARGS="--hosts 300 --events 10" for less
	@cd .cache/collections && $(RUN) eda python -m ansible_collections.graceful.azure.tests.eda.load $(ARGS)

.PHONY: format
format: main ## Format the Python code
	@$(RUN) main ruff check --fix .
	@$(RUN) main ruff format .

.PHONY: changelog
changelog: main ## For a release: turn the fragments into CHANGELOG.rst, for the version in galaxy.yml
	@$(RUN) main antsibull-changelog release

.PHONY: versions
versions: ## Make the environments and say which Python and ansible-core they have
	@$(MAKE_ENV) main lowest newest

.PHONY: generate
generate: main ## Write what is made from other files: the kinds' loaders, and tables in README files and the guide
	@$(RUN) main python $(TOOLS)/generate.py

.PHONY: best
best:
	@$(MAKE_ENV) best

.PHONY: eda
eda:
	@$(MAKE_ENV) eda

.PHONY: main
main:
	@$(MAKE_ENV) main

.PHONY: copy
copy:
	@$(PYTHON) $(TOOLS)/copy_collection.py .cache/collections

.PHONY: clean
clean: ## Remove what the above made
	rm -rf .ansible .cache .venv graceful-reports tests/output
