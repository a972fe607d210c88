# Two commands on a fresh machine with Python 3.11: `make demo` and `make test`.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
# Two test processes with one thread each. The tests of a file stay together because they share fixtures.
PARALLEL := -n 2 --dist loadfile

.PHONY: help install demo weights test nightly bench mutants docs wheel sbom lock lint types format clean
help:            ## show this help
	@grep -E '^[a-z]+: .*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 12

install: $(STAMP) ## create .venv and install everything

$(STAMP): requirements.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade-strategy only-if-needed -r requirements.txt
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	touch $@

# Takes 13 CPU minutes on two slow cores (2.5 GHz), and less than half of that on newer ones. Studies can be
# resumed, so an interrupted demo continues where it stopped.
# Its patients have different hearts and scanners than those used to train the shipped weights. `make demo SEED=1` has
# other patients, pre-trainings and labelled patients. The mean teacher starts from the shipped weights, which are a row
# of their own, and need fewer steps from there. From random weights fine-tuning must not be shorter: with 150 steps at a
# rate of 0.004 they learnt no wall.
SEED ?= 0
demo: $(STAMP)   ## phantom hospitals pre-train together and label a little -> demo_output/federated/report.html
	$(BIN)/fclseg study federated --preset demo --methods random,shipped,mean_teacher --labels 0,1,2 --folds 3 \
	    --sites 3 --patients 6 --set images.size=64 --set images.pixel_scale=2.4 --set finetuning.epochs=400 \
	    --set finetuning.steps=240 --set finetuning.rounds=10 --set finetuning.lr=0.01 --set finetuning.refined=true \
	    --set finetuning.model_steps=60 --set finetuning.model_fewest_epochs=15 \
	    --first-seed $(SEED) --out demo_output

weights: $(STAMP) ## train the weights of the bundles, only on phantoms (half an hour on one core with bfloat16, 2 hours without)
	OMP_NUM_THREADS=1 $(BIN)/python -m fclseg.finetune.weights

test: lint types ## style, types, and all tests except the nightly ones (5 minutes on 2 cores)
	$(BIN)/python -m pytest $(PARALLEL)

nightly: $(STAMP) ## only the tests that are too long for every run
	$(BIN)/python -m pytest -m nightly $(PARALLEL)

mutants: $(STAMP) ## apply each deliberate bug to a copy and check that the tests notice it (10 minutes)
	$(BIN)/python tests/mutants/run.py --jobs 2 --out docs/results/mutants.csv

bench: $(STAMP)  ## measure each part beside a reference -> docs/results/performance.csv
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/ratios.py --write docs/results/performance.csv

docs: $(STAMP)   ## the documentation -> build/docs/index.html; any warning and any broken link between pages is an error
	$(BIN)/python -m sphinx -W --keep-going -n -q -b html docs build/docs
	@echo "open build/docs/index.html"

# The build folder of setuptools keeps files that are gone from the tree, and they would end up in the wheel.
wheel: $(STAMP)  ## a wheel with bundles and jobs -> dist/
	rm -rf build/lib build/bdist.*
	$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .
	@ls dist/*.whl

# In an environment of its own: what the tool needs would be listed, and makes every import of MONAI 3 s slower.
sbom: $(STAMP)   ## the packages of this environment, their versions and licences (CycloneDX) -> dist/sbom.json
	mkdir -p dist && $(PYTHON) -m venv build/sbom
	build/sbom/bin/python -m pip install --quiet "cyclonedx-bom>=7,<8"
	build/sbom/bin/cyclonedx-py environment $(BIN)/python --pyproject pyproject.toml --mc-type library --of JSON \
	    -o dist/sbom.json

lock: $(STAMP)   ## write the versions of this environment to requirements.txt (after an update and `make test`)
	mkdir -p build && grep '^#' requirements.txt > build/lock
	$(BIN)/python -m pip freeze --all --exclude-editable --exclude pip | sed 's/+cpu$$//' >> build/lock
	mv build/lock requirements.txt

lint: $(STAMP)   ## style and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)  ## static types
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff format . && $(BIN)/ruff check --fix .

clean:           ## remove the environment and the demo's output
	rm -rf $(VENV) demo_output build dist
