# Every target does the set-up it needs, in .venv of this folder; `make setup` alone does nothing else.
# PYTHON names another interpreter: make setup PYTHON=python3.12

PYTHON ?= python3
BIN := .venv/bin
KERNELS := $(shell find marl_sched -path '*kernel*' -name '*.py')

.PHONY: setup demo test test-federation test-compare soak lint format docs proto clean
.DELETE_ON_ERROR:

setup: .venv/.kernels

demo: setup
	$(BIN)/marl-sched demo

test: setup
	$(BIN)/python -m pytest -n 2

# Whole federated runs, and what is done to them: kill -9, strangers, full disks, stock Flower.
test-federation: setup
	$(BIN)/python -m pytest -n 3 -m 'processes and not slow' --durations=5 \
	  --ignore tests/commands/test_compare_command.py --ignore tests/commands/test_capacity_command.py

# Whole comparisons: killed and gone on with, failing jobs, Ctrl-C.
test-compare: setup
	$(BIN)/python -m pytest -n 2 -m processes tests/commands/test_compare_command.py \
	  tests/commands/test_capacity_command.py

# Too long for the gate: the page under 64 zones of 200 machines for ten minutes, and a whole demo.
soak: setup
	$(BIN)/python benchmarks/dashboard_soak.py
	$(BIN)/marl-sched demo --out runs/soak-demo

lint: .venv/.installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: .venv/.installed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# The pages that are written from the code; tests fail when they are stale.
docs: .venv/.installed
	$(BIN)/python -m marl_sched.config.reference > docs/configuration.md
	$(BIN)/marl-sched show-config --schema > docs/config.schema.json
	$(BIN)/python -m marl_sched.reference_pages metrics > docs/metrics.md
	$(BIN)/python -m marl_sched.reference_pages observation > docs/observation.md
	$(BIN)/python -m marl_sched.reference_pages trace-formats > docs/trace-formats.md
	$(BIN)/python -m marl_sched.reference_pages column-mapping > docs/column-mapping.md
	$(BIN)/python -m marl_sched.results > docs/results.md

# The code of the protocols between processes; a test fails when it is stale.
proto: .venv/.installed
	$(BIN)/python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. --grpc_python_out=. \
	  zones/proto/*.proto

clean:
	rm -rf .venv build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

.venv/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version.split()[0]; \
	  sys.exit(f"marl-sched needs Python 3.11 or newer, {sys.executable} is {v}" \
	  if sys.version_info < (3, 11) else 0)'
	@echo "Installing into .venv (a few minutes the first time, PyTorch is large) ..."
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -e '.[dev]' -c constraints.txt
	@$(BIN)/python -m pip check
	@touch $@

.venv/.kernels: .venv/.installed $(KERNELS)
	@$(BIN)/marl-sched compile
	@touch $@
