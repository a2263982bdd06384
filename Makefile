# Everything here needs only python3 >= 3.11 with venv: each target makes the environment it uses. Paths are relative, so the folder's
# name does not matter. `make` alone lists the targets.

.DEFAULT_GOAL := help
SHELL := /bin/sh
MAKEFLAGS += --no-builtin-rules

# The first interpreter that is new enough; `make PYTHON=... test` takes another.
NEW_ENOUGH := import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do $$p -c '$(NEW_ENOUGH)' 2>/dev/null && { echo $$p; break; }; done)
JOBS ?= 2
BIN := .venv/bin
PIP_INSTALL := -m pip install --quiet --disable-pip-version-check
# A hundred tests at a time: xdist hands out a quarter of what is left at once, and with slow tests among them one process went on
# for minutes when the other had none left.
IN_JOBS := -n $(JOBS) --maxschedchunk=100
# Tests start hundreds of processes: compiling the package in each, where bytecode is not kept, takes longer than many a test.
# OpenBLAS has one thread, since JOBS processes share the cores.
PYTEST := PYTHONDONTWRITEBYTECODE= OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest

define make_venv
@test -n "$(PYTHON)" || { echo "make: no python3 >= 3.11 with venv on the PATH; name one with make PYTHON=..." >&2; exit 1; }
test -x $(1)/bin/python || $(PYTHON) -m venv $(1)
endef

.PHONY: help demo test test-without-vnni test-library test-all coverage lint types fuzz docs site wheel test-batch release-check bench bench-quick decoding models clean

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 10

demo: .venv/.base  ## compile the digits model, say what was fused, classify 360 real digits in f32 and int8
	$(BIN)/fqfuse demo

test: .venv/.dev .venv-onednn2/.ready  ## run each test on a few of its cases, in JOBS processes (default 2)
	$(PYTEST) -q $(IN_JOBS) -m 'not slow' --quick $(TEST_FLAGS) tests

# The CPU that `make test-without-vnni` pretends to be: AVX512_CORE, which is AVX-512 without VNNI, or AVX2.
ISA ?= AVX512_CORE
TESTS ?= tests

test-without-vnni: .venv/.dev .venv-onednn2/.ready .venv/without_vnni.so  ## run `make test` as an older CPU does, ISA=AVX512_CORE or AVX2; TESTS names folders
	PRETEND_CPU=$(ISA) ONEDNN_MAX_CPU_ISA=$(ISA) LD_PRELOAD=$(CURDIR)/.venv/without_vnni.so \
	$(PYTEST) -q $(IN_JOBS) -m 'not slow' --quick $(TEST_FLAGS) $(TESTS)

test-library: .venv/.dev  ## run the tests that concern oneDNN, on a few of their cases, on the library that FQFUSE_ONEDNN names
	@test -n "$(FQFUSE_ONEDNN)" || { echo "make: name a library, FQFUSE_ONEDNN=/path/of/libdnnl.so.3 (docs/deploy.md)" >&2; exit 1; }
	$(PYTEST) -q $(IN_JOBS) -m 'not slow' --quick $(TEST_FLAGS) tests/onednn tests/primitives tests/runtime tests/laws

test-all: .venv/.dev .venv-onednn2/.ready  ## run every case of every test
	$(PYTEST) -q $(IN_JOBS) $(TEST_FLAGS) tests

coverage: TEST_FLAGS := --cov --cov-report=term
coverage: test  ## run the tests of `make test` and demand the line coverage that pyproject.toml asks for

lint: .venv/.dev  ## ruff's rules and format, and the import rules between the folders
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: .venv/.dev  ## mypy --strict on the unpacked wheel
	rm -rf .venv/wheel build
	CC=false $(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation -w .venv/wheel .
	$(BIN)/python -m zipfile -e .venv/wheel/fqfuse-*.whl .venv/wheel/unpacked
	rm -rf build
	cd .venv/wheel/unpacked && MYPYPATH=. ../../bin/python -m mypy --config-file ../../../pyproject.toml --cache-dir ../../../.mypy_cache -p fqfuse

fuzz: .venv/.dev  ## run the Hypothesis tests on thousands of new examples
	$(PYTEST) $(IN_JOBS) -m hypothesis --hypothesis-profile=fuzz tests

docs: .venv/.dev  ## write what docs/ generates from the code (rules, findings, dialects, operators, options, JSON, defects), check links and the commands of the README
	PYTHONPATH=docs $(BIN)/python -m make
	PYTHONPATH=tests $(BIN)/python -m support.operator_table docs/operators.md
	$(PYTEST) tests/packaging/test_docs.py

site: .venv-site/.site  ## build the documentation as a site in site/, with the Python API, for any browser, offline
	NO_MKDOCS_2_WARNING=1 .venv-site/bin/mkdocs build --quiet
	@echo "site/index.html"

wheel: .venv/.dev  ## build a wheel for this platform in dist/, from a clean tree
	rm -rf build dist
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation -w dist .
	rm -rf build

test-batch: .venv-batch/.batch  ## the tests of data sets, on a Ray cluster of two nodes, Spark (with Java) and Dask, in an environment of its own
	OPENBLAS_NUM_THREADS=1 .venv-batch/bin/python -m pytest -q tests/batch tests/cli/test_batch.py

release-check:  ## build sdist and wheel, check them, and try each out on every Python from 3.11 to 3.14 that is found
	.ci/release

bench: .venv-bench/.bench  ## measure side by side with the peers, in an environment of its own; fifty minutes
	.venv-bench/bin/python -m fqfuse.benchmarks

bench-quick: .venv-bench/.bench  ## a look at the same in less than 5 minutes (the first time models are built, some minutes more)
	.venv-bench/bin/python -m fqfuse.benchmarks --quick

decoding: .venv-models/.models  ## hold BERT, GPT-2 and Llama of transformers, f32 and quantized, against ONNX Runtime token by token
	.venv-models/bin/python -m fqfuse.benchmarks.decoding

models: .venv-models/.models  ## train the digits models again from their seed, with PyTorch, in an environment of its own
	.venv-models/bin/python -m fqfuse.benchmarks.digits

clean:  ## remove environments, builds and caches
	rm -rf onednn/_native.* .venv .venv-batch .venv-bench .venv-models .venv-onednn2 .venv-site build dist site *.egg-info htmlcov .coverage* .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# What the extension module is compiled from. Where there is no compiler it is left out.
NATIVE := $(wildcard onednn/native/*.[ch])

.venv/.base: pyproject.toml $(NATIVE)
	$(call make_venv,.venv)
	$(BIN)/python $(PIP_INSTALL) --editable .
	touch $@

# It holds what `.base` holds: in one go, since pip takes 20 s to find out about the packages of each.
.venv/.dev: pyproject.toml $(NATIVE)
	$(call make_venv,.venv)
	$(BIN)/python $(PIP_INSTALL) --editable '.[dev]'
	touch .venv/.base $@

# Exact versions, because figures are compared over time.
.venv-bench/.bench: pyproject.toml $(NATIVE) benchmarks/requirements.txt
	$(call make_venv,.venv-bench)
	.venv-bench/bin/python $(PIP_INSTALL) -r benchmarks/requirements.txt --editable .
	touch $@

.venv-batch/.batch: pyproject.toml $(NATIVE)
	$(call make_venv,.venv-batch)
	.venv-batch/bin/python $(PIP_INSTALL) --editable '.[dev,ray]' dask pyspark
	touch $@

# The API is read from the sources, without importing them: they need a folder that is called like the package.
.venv-site/.site: docs/site/requirements.txt
	$(call make_venv,.venv-site)
	.venv-site/bin/python $(PIP_INSTALL) -r docs/site/requirements.txt
	mkdir -p .venv-site/src
	ln -sfn ../.. .venv-site/src/fqfuse
	touch $@

.venv-models/.models: pyproject.toml $(NATIVE)
	$(call make_venv,.venv-models)
	.venv-models/bin/python $(PIP_INSTALL) --editable '.[bench]'
	touch $@

.venv/without_vnni.so: tests/support/without_vnni.c .venv/.dev
	$(CC) -O2 -Wall -Wextra -Werror -shared -fPIC -o $@ $<

# oneDNN 2.6, the judge of the target onednn-v2; where the wheel does not exist those tests are skipped, and say so.
.venv-onednn2/.ready: Makefile
	$(call make_venv,.venv-onednn2)
	.venv-onednn2/bin/python $(PIP_INSTALL) numpy "onednn-cpu-gomp==2022.2.1; sys_platform == 'linux' and platform_machine == 'x86_64'"
	touch $@
