# pagebench: `make help` lists the targets. Every target does its own set-up.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
# Without it, a folder named kernels/ in the current directory could be imported by accident.
export PYTHONSAFEPATH := 1

TORCH ?= torch==2.13.0
HAS_GPU := $(shell nvidia-smi -L >/dev/null 2>&1 && echo yes)
# A GPU machine without a package index: the bundle brings what its own Python lacks.
OFFLINE := $(and $(HAS_GPU),$(wildcard .gpubox/enter.sh))
empty :=
space := $(empty) $(empty)

ifdef OFFLINE
  READY := .gpubox/enter.sh
  ENTER := . .gpubox/enter.sh &&
  BIN :=
else
  # Another torch is another environment: the stamp bears its name.
  READY := .venv/.ready-$(subst /,_,$(subst =,_,$(subst $(space),_,$(TORCH))))
  ENTER :=
  BIN := .venv/bin/
endif
SUITE ?= $(if $(HAS_GPU),kernels,smoke)
FLASHINFERS := 0.6.6 0.7.2.post1

CELL ?=
RUN ?=

.PHONY: help install bench ncu study test check house fix clean offline-bundle
help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 18

install: $(READY)  ## set up .venv (or, with a bundle on a GPU machine, nothing)

.venv/.ready-%: pyproject.toml
	@python3 -c 'import sys; sys.version_info >= (3, 11) or sys.exit("pagebench needs Python 3.11 or \
	newer; python3 is %d.%d: put a newer one first on the PATH" % sys.version_info[:2])'
	python3 -m venv .venv
	.venv/bin/pip install -q "$(TORCH)"
	.venv/bin/pip install -q -e ".[test,dev$(if $(HAS_GPU),$(comma)gpu)]"
	touch $@
comma := ,

bench: $(READY)  ## measure a suite and print its table (SUITE=smoke, or kernels where there is a GPU)
	$(ENTER) $(BIN)pagebench run --suite $(SUITE)
	$(ENTER) $(BIN)pagebench doctor --speed --out runs/speed.jsonl

# Asked of pagebench, which finds GPUs where nvidia-smi is not at hand.
LACKS_GPU = $(if $(HAS_GPU),,$(shell $(BIN)python -P -c "from pagebench.kernels.device import \
  find_device; print('yes' if find_device().kind == 'cpu' else '')"))
# What pagebench says without a GPU becomes make's own error: one line, not two.
ncu: $(READY)  ## count a cell's device work: make ncu CELL=xqa_shared_p16 (or several, in quotes)
	@$(if $(LACKS_GPU),$(error $(shell $(BIN)pagebench profile $(CELL) 2>&1)))
	@$(ENTER) $(BIN)pagebench profile $(CELL)

study: $(READY)  ## measure this GPU and draw runs/study.html; or draw from records: make study RUN="FILES"
	@$(ENTER) $(BIN)pagebench study $(or $(RUN),--measure)

# Two processes, a file at a time each. Where there is a GPU they would time each other's work: one.
WORKERS := $(if $(HAS_GPU),,-n 2 --dist loadfile)

test: $(READY) $(FLASHINFERS:%=build/flashinfer/%/.ready)  ## run the tests
	$(ENTER) $(BIN)pytest -q $(WORKERS)

# The real packages, unpacked beside each other: adapters' calls are bound against both.
build/flashinfer/%/.ready: harness/instruments/offline.py | $(READY)
ifdef OFFLINE
	mkdir -p $(@D) && touch $@
else
	rm -rf $(@D) && mkdir -p $(@D)
	.venv/bin/python -c "from pathlib import Path; from pagebench.harness.instruments.offline import unpack_flashinfer; \
	  unpack_flashinfer('$*', '3.11', Path('$(@D)'), sources=False)"
	rm -f $(@D)/*.whl && touch $@
endif

# The import order, the figure and its numbers, the schemas: what is written down of the code.
HELD := tests/test_imports.py tests/test_house.py tests/harness/records/test_schema.py

check: $(READY) build/types  ## ruff, strict mypy, layering, figure and schemas; changes nothing
	$(BIN)ruff check .
	$(BIN)ruff format --check .
	$(BIN)mypy
	$(BIN)pytest -q $(HELD)

house: $(READY)  ## count rooms, arrows and floors, and draw docs/house.svg
	$(BIN)python tests/house.py

fix: $(READY)  ## let ruff repair and format
	$(BIN)ruff check --fix .
	$(BIN)ruff format .

# Type checkers do not follow an editable install's import hook; a tree of links cures that.
build/types:
	mkdir -p $@/pagebench
	for room in kernels harness layouts profiles; do ln -sfn "$(CURDIR)/$$room" $@/pagebench/$$room; done

offline-bundle: $(READY)  ## make .gpubox/ for a GPU machine without a package index (ARCH=9.0a prebuilds)
	.venv/bin/python -c "from pagebench.harness.instruments.offline import main; main()"

clean:  ## remove what was built
	rm -rf .venv build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
