# Two commands: `make demo` shows VISTA at work, `make test` runs the tests. Both set up .venv by themselves.
# The first of these that is installed; choose another with `make PYTHON=...`.
PYTHON ?= $(firstword $(foreach name,python3.11 python3.12 python3.13 python3,$(shell command -v $(name))) python3)
BIN := .venv/bin
# Pinned versions, so that an environment can be created again.
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
TEST_EXTRAS := report,test,lightning,huggingface,accelerate,skorch,tensorboard,mlflow,wandb,trackio,onnx,tables,datasets,review,webdataset,ray,slurm

.PHONY: demo test test-faults lint types docs browser bench clean
.DEFAULT_GOAL := help

help:  ## List the targets.
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "make: $(PYTHON) is not installed, or older than 3.11; choose another: make PYTHON=python3.12 ..."; exit 1; }
	$(PYTHON) -m venv .venv

.venv/core: .venv/bin/python pyproject.toml constraints.txt
	$(INSTALL) torch
	$(INSTALL) -e '.[report,review]'
	@touch $@

# timm and its torchvision are in a folder of their own: beside a CPU build of torch they break the import of transformers.
.venv/all: .venv/core
	$(INSTALL) -e '.[$(TEST_EXTRAS),dev,docs]'
	$(INSTALL) --no-deps --target .venv/timm --upgrade timm torchvision
	@touch $@

# Its network is too small to share between threads.
demo: .venv/core  ## VISTA beside plain cross-entropy on real digits, 40 % of the labels wrong (about two minutes).
	$(BIN)/vista compare --data digits --noise symmetric:0.4 --methods ce,vista,vista-light --seeds 3 --out runs/demo --fresh
	$(BIN)/vista report runs/demo
	@echo "Here vista is $(BIN)/vista; after '. $(BIN)/activate' the command above works as it is."

# Two workers with a thread each: the networks of the tests are too small to share one.
test test-faults: export OMP_NUM_THREADS := 1
PYTEST := $(BIN)/python -m pytest -n 2 --dist loadfile

test: .venv/all  ## All tests but the long fault tests.
	$(PYTEST) -m "not faults"

test-faults: .venv/all  ## Kill, damage, fill the disk, several processes, every method on every network.
	$(PYTEST) -m faults

lint: .venv/all  ## Style.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/all  ## Types.
	$(BIN)/mypy

docs: .venv/all  ## The documentation site, into site/.
	$(BIN)/mkdocs build --strict

browser:  ## A browser for the tests of the report page (Debian and Ubuntu; needs root).
	@command -v chromium >/dev/null || { apt-get update -qq && apt-get install -y -qq chromium >/dev/null; }

bench: .venv/core  ## Time the core on this machine.
	$(BIN)/python benchmarks/core.py

clean:  ## Remove everything built here; runs stay.
	rm -rf .venv build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis
