.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
FLOWER := $(VENV)-flower
DOCS := $(VENV)-docs
GPU_PYTHON ?= python3
GPU_PACKAGES ?=
GPU_WITHIN ?= 300

.PHONY: help setup demo federation-demo test test-nightly test-flower flower-check test-ray test-lora test-trackers test-kernels test-gpu check lint bench bench-gpu proto docs dist check-dist clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-16s %s\n", $$1, $$2}'

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $(STAMP)

setup: $(STAMP) ## make .venv with everything in it

demo: $(STAMP) ## compare TimelyFL, FedBuff and SyncFL on 64 phones; table and figure at the end
	$(BIN)/fedpace compare configs/demo.toml --out runs/demo --overwrite

federation-demo: $(STAMP) ## a server and six uneven clients, for real: TimelyFL and FedCompass against waiting
	$(BIN)/python tools/federation_demo.py

test: $(STAMP) ## run the tests
	$(BIN)/python -m pytest -n auto

test-nightly: $(STAMP) ## the same properties at their large sizes: a million events, thousands of rounds
	$(BIN)/python -m pytest -n auto -m nightly

# An environment of its own: Flower wants older packages.
$(FLOWER)/.installed: pyproject.toml
	$(PYTHON) -m venv $(FLOWER)
	$(FLOWER)/bin/python -m pip install --quiet --disable-pip-version-check 'torch==2.13.0' -e '.[flower]' pytest pytest-xdist hypothesis
	@touch $@

test-flower: $(FLOWER)/.installed ## the tests against a real SuperLink and two SuperNodes
	$(FLOWER)/bin/python -m pytest tests/flower

flower-check: ## one run over a real SuperLink, where Flower can be installed
	@if $(MAKE) --no-print-directory $(FLOWER)/.installed; then \
	  $(FLOWER)/bin/python -m pytest tests/flower/test_flower.py -k as_they_come; \
	else echo 'Flower cannot be installed here: its tests are skipped'; fi

test-ray: ## the tests on a local Ray cluster of two workers, in an environment of their own
	$(PYTHON) -m venv $(VENV)-ray
	$(VENV)-ray/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,ray]'
	$(VENV)-ray/bin/python -m pytest tests/learn/many/test_ray.py tests/learn/many/test_ray_nodes.py tests/runs/comparison/test_ray_runs.py

test-lora: ## the example with transformers and peft, in an environment of its own
	$(PYTHON) -m venv $(VENV)-lora
	$(VENV)-lora/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,lora]'
	$(VENV)-lora/bin/python -m pytest tests/test_lora_example.py

test-trackers: ## what TensorBoard, MLflow and W&B read back, in an environment of their own
	$(PYTHON) -m venv $(VENV)-trackers
	$(VENV)-trackers/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,tensorboard,mlflow,wandb]'
	$(VENV)-trackers/bin/python -m pytest tests/report/trackers tests/runs/test_tracking.py tests/cli/test_export.py

test-kernels: ## the kernels for GPUs in Triton's interpreter, in an environment of their own
	$(PYTHON) -m venv $(VENV)-kernels
	$(VENV)-kernels/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]' triton
	TRITON_INTERPRET=1 $(VENV)-kernels/bin/python -m pytest -n auto tests/learn/many/test_kernels.py tests/learn/many/test_norm_kernels.py

lint: $(STAMP) ## style, types and the directions between rooms
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

check: $(STAMP) ## what CI runs
	@$(MAKE) --no-print-directory -j2 lint flower-check
	@$(MAKE) --no-print-directory test

bench: $(STAMP) ## measure ratios; nothing here is a test
	$(BIN)/python -m benchmarks

# Both by the machine's own Python and torch, without an installation. GPU_PACKAGES: folders with what it lacks.
test-gpu: ## the tests that need a GPU, from a checkout: GPU_PYTHON, GPU_PACKAGES, GPU_WITHIN (seconds)
	PYTHONPATH=src:.:$(GPU_PACKAGES) $(GPU_PYTHON) tools/test_gpu.py --within $(GPU_WITHIN) --out build/test-gpu.json

bench-gpu: ## measure on a GPU, from a checkout, into build/gpu.json: variables as for test-gpu
	PYTHONPATH=src:.:$(GPU_PACKAGES) $(GPU_PYTHON) -m benchmarks.gpu --within $(GPU_WITHIN) --out build/gpu.json

# An environment of its own: nothing else needs mkdocs. It reads the code without importing it.
$(DOCS)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(DOCS)
	$(DOCS)/bin/python tools/site/requirements.py > $(DOCS)/requirements.txt
	$(DOCS)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -r $(DOCS)/requirements.txt
	@touch $@

docs: $(STAMP) $(DOCS)/.installed ## build the documentation as a site that opens from disk: build/site/index.html
	$(BIN)/python tools/site/commands.py build/reference
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/python -m mkdocs build --strict --quiet
	@echo build/site/index.html

dist: $(STAMP) ## build wheel and sdist into dist/ and check what is in them
	rm -rf dist
	$(BIN)/python -m hatchling build
	$(BIN)/python tools/check_dist.py dist

check-dist: dist ## install the wheel into an empty environment, with all it needs, and run a study from it
	$(PYTHON) tools/check_dist.py dist --install

proto: ## make the messages' code from federation.proto, by a generator whose code old and new protobuf read
	$(PYTHON) -m venv $(VENV)/proto
	$(VENV)/proto/bin/python -m pip install --quiet 'grpcio-tools==1.76.0'
	$(VENV)/proto/bin/python -m grpc_tools.protoc -Isrc --python_out=src --pyi_out=src src/fedpace/net/federation.proto

clean: ## remove what setup and runs left behind
	rm -rf $(VENV) $(FLOWER) $(DOCS) $(VENV)-ray $(VENV)-lora $(VENV)-trackers $(VENV)-kernels runs build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
