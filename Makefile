# Two commands do all the set-up: `make demo` and `make test`. Everything is installed into .venv.
PYTHON ?= python3
BIN    := .venv/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt

.DEFAULT_GOAL := help
.PHONY: help install dev demo test check format bench bench-tokenizer bench-generate bench-look test-tokenizer test-peers test-kernels test-gpu test-long test-faults test-serve depth length tokenizers busy first-words defaults docs clean

help:  ## what can be made
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## /  make \1\t/' | expand -t 20

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "glassformer needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) --version 2>&1)." \
	         "Name another one: make demo PYTHON=python3.12"; exit 1; }
	@echo "Creating .venv …"
	@$(PYTHON) -m venv .venv || { echo "No virtual environment could be made: install Python's venv module" \
	  "(on Debian and Ubuntu: apt-get install python3-venv), then run make again."; rm -rf .venv; exit 1; }

# torch goes first and alone, so that nothing else chooses its version.
.venv/.installed: pyproject.toml constraints.txt | .venv/bin/python
	@echo "Installing glassformer and what it needs (PyTorch is the big one) …"
	@$(PIP) torch
	@$(PIP) --editable .
	@touch $@

.venv/.installed-dev: .venv/.installed
	@echo "Installing the test tools …"
	@$(PIP) --editable '.[dev]'
	@touch $@

install: .venv/.installed  ## create .venv and install glassformer into it
dev: .venv/.installed-dev  ## the same, with the test tools

demo: .venv/.installed  ## train on the embedded default, measure it, let it talk
	@rm -rf runs/demo
	$(BIN)/glassformer train --recipe pydocs --out runs/demo
	$(BIN)/glassformer eval runs/demo
	$(BIN)/glassformer generate runs/demo "The \"if\" statement" --tokens 120 --seed 2

test: .venv/.installed-dev  ## the tests
	$(BIN)/python -m pytest -n 2

check: .venv/.installed-dev  ## formatting, lint and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/basedpyright --warnings

format: .venv/.installed-dev  ## format the code and sort the imports
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: .venv/.installed-dev  ## the figures of the README, measured here
	$(BIN)/python benchmarks/shakespeare_char_small.py

bench-tokenizer: .venv/.installed-dev  ## the tokenizer beside rustbpe, tiktoken and Hugging Face; five minutes
	$(BIN)/glassformer bench tokenizer --repeats 3

# llama.cpp is compiled here, so it gets an environment of its own.
.venv-llama/.installed:
	@$(PYTHON) -m venv .venv-llama
	@.venv-llama/bin/python -m pip --disable-pip-version-check install --quiet llama-cpp-python==0.3.36 gguf==0.19.0
	@touch $@

bench-generate: .venv/.installed-dev .venv-llama/.installed  ## tokens a second beside transformers and llama.cpp; twenty minutes
	$(BIN)/glassformer bench generate --streams 1 --streams 8 --top-k 50 --llama .venv-llama/bin/python

bench-look: .venv/.installed  ## what recording, reading one site and no tap at all cost
	$(BIN)/python benchmarks/looking.py

test-tokenizer: .venv/.installed-dev  ## the tokenizer at length: 100,000 made-up strings, a million random ones
	GLASSFORMER_EXAMPLES=100000 $(BIN)/python -m pytest -n 2 tests/tokenizers/test_bpe*.py

# TransformerLens brings its own versions of much, so it gets an environment of its own.
.venv-peers/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -m venv .venv-peers
	@.venv-peers/bin/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt torch
	@.venv-peers/bin/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt \
	  --editable . pytest hypothesis 'transformer-lens<4'
	@touch $@

test-peers: .venv-peers/.installed  ## looking inside, beside TransformerLens
	.venv-peers/bin/python -m pytest tests/peers

# Triton's interpreter needs an older NumPy than the rest.
.venv-kernels/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -m venv .venv-kernels
	@.venv-kernels/bin/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt torch
	@grep -v '^numpy' constraints.txt > .venv-kernels/constraints.txt
	@.venv-kernels/bin/python -m pip --disable-pip-version-check install --quiet --constraint .venv-kernels/constraints.txt \
	  --editable . pytest pytest-xdist hypothesis triton==3.6.0 'numpy<2.4'
	@touch $@

test-kernels: .venv-kernels/.installed  ## the kernels of a GPU without one: in Triton's interpreter, and compiled
	GLASSFORMER_KERNELS=interpreted TRITON_INTERPRET=1 .venv-kernels/bin/python -m pytest -n 2 tests/kernels
	GLASSFORMER_KERNELS=compiled .venv-kernels/bin/python -m pytest -n 2 tests/kernels

test-gpu: .venv/.installed-dev  ## kernels, the fused step and its resuming on a GPU
	GLASSFORMER_KERNELS=gpu $(BIN)/python -m pytest tests/kernels

test-long: .venv/.installed-dev  ## the few tests that take a minute each
	GLASSFORMER_LONG=1 $(BIN)/python -m pytest -n 2 -m long

test-faults: .venv/.installed-dev  ## 200 kills, 50 terminations, 50 killed ranks, 1,000 flipped bits, 2,000 damaged files; an hour
	GLASSFORMER_KILLS=200 GLASSFORMER_TERMS=50 GLASSFORMER_FLIPS=1000 GLASSFORMER_RANK_KILLS=50 GLASSFORMER_CACHE_FLIPS=1000 GLASSFORMER_FUZZ=2000 \
	  $(BIN)/python -m pytest -n 2 -s tests/faults

test-serve: .venv/.installed-dev  ## the server at length: 64 streams and 16 slow clients for 10 minutes, 50,000 made-up requests; 40 minutes
	GLASSFORMER_SOAK_SECONDS=600 GLASSFORMER_SCHEMATHESIS=50000 $(BIN)/python -m pytest -s tests/serving

depth: .venv/.installed  ## how deep a stack can be trained, with which norms; half an hour on a CPU
	$(BIN)/python benchmarks/depth.py

length: .venv/.installed  ## what each family can copy over growing lengths; LSTM and transformer as sizes grow (a GPU, or hours)
	$(BIN)/python benchmarks/length.py copy --jobs 2
	$(BIN)/python benchmarks/length.py overtake

tokenizers: .venv/.installed  ## six ways to cut a text, compared by what they do to translation; about a quarter of an hour
	$(BIN)/glassformer train --recipe multi30k-tokenizers --sweep training.seed=0 --out runs/tokenizers

busy: .venv/.installed  ## what training keeps of its speed beside other programs; ten minutes on a quiet machine
	$(BIN)/python benchmarks/busy.py --wait ours,system

first-words: .venv/.installed-dev  ## how long a user waits for the first words, and for an error; a minute
	$(BIN)/python benchmarks/first_words.py

defaults: .venv/.installed  ## the defaults for labels, tags and pairs on 17 small sets (25 MB of downloads); half an hour on two cores
	$(BIN)/python benchmarks/defaults_data.py .defaults
	$(BIN)/python benchmarks/defaults.py run .defaults
	$(BIN)/python benchmarks/defaults.py show

docs: .venv/.installed  ## the pages of docs/ that are made from the code
	$(BIN)/python docs/make_settings.py
	$(BIN)/python docs/make_layout.py
	$(BIN)/python benchmarks/curves.py draw
	$(BIN)/python benchmarks/fp8.py draw

clean:  ## remove the virtual environment and the caches (runs stay)
	rm -rf .venv .pytest_cache .ruff_cache .hypothesis
