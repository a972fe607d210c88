# Two commands on a fresh machine with Python 3.11: `make demo` and `make test`.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
# Two test processes with one thread each; a file's tests stay together because they share what they prepare.
PARALLEL := -n 2 --dist loadfile

.PHONY: help install demo weights test nightly mutants lint types format clean
help:            ## show this help
	@grep -E '^[a-z]+: .*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 12

install: $(STAMP) ## create .venv and install everything

$(STAMP): requirements.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade-strategy only-if-needed -r requirements.txt
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	touch $@

# Small enough for five minutes on two cores. The study resumes, so an interrupted demo continues where it was.
# Its patients are other hearts on other scanners than those that the shipped weights were trained on.
demo: $(STAMP)   ## phantom hospitals -> federated pre-training -> fine-tuning -> demo_output/local/report.html
	$(BIN)/fclseg study local --preset demo --methods random,shipped,fclopt_dp --labels 0,1,2 --folds 1 --sites 3 \
	    --patients 5 --rounds 12 --set images.size=64 --set images.pixel_scale=2.4 --set finetuning.epochs=60 \
	    --set finetuning.refined=true --out demo_output

weights: $(STAMP) ## train the weights that the bundles ship, on phantoms alone (about 15 minutes on one idle core)
	OMP_NUM_THREADS=1 $(BIN)/python -m fclseg.finetune.weights

test: lint types ## style, types, and all but the nightly tests (under 9 minutes on 2 cores)
	$(BIN)/python -m pytest $(PARALLEL)

nightly: $(STAMP) ## only the tests that are too long for every run
	$(BIN)/python -m pytest -m nightly $(PARALLEL)

mutants: $(STAMP) ## apply each of the deliberate faults to a copy and see that the tests notice (nightly; 25 minutes)
	$(BIN)/python tests/mutants/run.py --jobs 2

lint: $(STAMP)   ## style and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)  ## static types
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff format . && $(BIN)/ruff check --fix .

clean:           ## remove the environment and everything the demo made
	rm -rf $(VENV) demo_output
