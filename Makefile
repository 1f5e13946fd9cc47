.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: help setup demo test check lint bench proto clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-8s %s\n", $$1, $$2}'

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $(STAMP)

setup: $(STAMP) ## make .venv with everything in it

demo: $(STAMP) ## compare TimelyFL, FedBuff and SyncFL on 64 phones; table and figure at the end
	$(BIN)/fedpace compare configs/demo.toml --out runs/demo --overwrite

test: $(STAMP) ## run the tests
	$(BIN)/python -m pytest -n auto

lint: $(STAMP) ## style, types and the directions between rooms
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

check: lint test ## what CI runs

bench: $(STAMP) ## measure ratios; nothing here is a test
	$(BIN)/python -m benchmarks

proto: $(STAMP) ## make the messages' code from federation.proto
	$(BIN)/python -m grpc_tools.protoc -Isrc --python_out=src --pyi_out=src src/fedpace/net/federation.proto

clean: ## remove what setup and runs left behind
	rm -rf $(VENV) runs build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
