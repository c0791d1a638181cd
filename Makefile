# Every target makes its own set-up: the only things it needs are Python 3.11, pip, venv and make.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

MODEL   ?= resnet50
SEED    ?= 1
MINUTES ?= 10
BASE    ?= HEAD
LIGHT    = $$($(BIN)/python -c 'from pathlib import Path; import onnx; \
print(Path(onnx.__file__).parent / "backend/test/data/light")')

.PHONY: help run test every train lowest lint fuzz soak replay ptx real bench pictures clean
.NOTPARALLEL:

help:
	@echo 'make run       ResNet-50 on generated kernels, against the recorded output and ONNX Runtime'
	@echo 'make test      the test suite'
	@echo 'make every     all cases of all tests, of which make test runs a sample'
	@echo 'make lowest    the command line with every dependency at its lower bound'
	@echo 'make lint      ruff, mypy and the subjects of commits since main'
	@echo 'make fuzz      search for failures for MINUTES, other ones for each SEED'
	@echo 'make bench     speed beside oneDNN, PyTorch and ONNX Runtime'
	@echo 'make train     two networks of PyTorch beside eager; build/train.png shows their losses'
	@echo 'make soak      MINUTES of all that a process does; build/soak.png shows what must not grow'
	@echo 'make replay    which kernels are written differently than at the revision BASE'
	@echo 'make ptx       what ptxas says of the kernels for NVIDIA devices: registers, spills, memory'
	@echo 'make real      networks as packages ship them, beside ONNX Runtime'
	@echo 'make pictures  draw the pictures of docs/layouts.md'
	@echo 'make clean     remove what these made'

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# One stamp for each extra of pyproject.toml.
$(VENV)/%.stamp: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[$*]'
	@touch $@

# First the untouched model against its recorded output; its constant weights hide layout
# mistakes, so then the same model with random weights against ONNX Runtime.
run: $(VENV)/onnx.stamp $(VENV)/compare.stamp
	@light=$(LIGHT); \
	set -x; $(BIN)/dnnl run "$$light/light_$(MODEL).onnx" --expect "$$light/light_$(MODEL)_output_0.pb" && \
	$(BIN)/dnnl run "$$light/light_$(MODEL).onnx" --random-weights $(SEED) --compare onnxruntime

# Without packages for this system the tests of SYCL devices are skipped.
$(VENV)/sycl.tried: pyproject.toml | $(BIN)/python
	-$(BIN)/python -m pip install --quiet --editable '.[sycl]'
	@touch $@

test: $(VENV)/dev.stamp $(VENV)/sycl.tried
	$(BIN)/python -m pytest -n auto

every: $(VENV)/dev.stamp $(VENV)/sycl.tried
	$(BIN)/python -m pytest -n auto --every-case

# What the bounds of pyproject.toml promise. Old packages may use what newer ones deprecate.
LOWEST   := build/lowest
COMMANDS := tests/framework/test_run_command.py tests/tools/test_info.py tests/tools/test_layout.py \
	tests/tools/test_run_page.py tests/tools/bench/test_page.py tests/test_readme.py

lowest:
	$(PYTHON) -m venv --clear $(LOWEST)
	$(PYTHON) tests/lowest.py > $(LOWEST)/constraints.txt
	$(LOWEST)/bin/python -m pip install --quiet --constraint $(LOWEST)/constraints.txt \
		--editable '.[onnx,compare,report]' pytest
	$(LOWEST)/bin/python -m pytest -q -W ignore::DeprecationWarning $(COMMANDS)
	$(LOWEST)/bin/dnnl bench --matmul --dt=f32,bf16,u8:s8:s32 20x30:30x17

lint: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m tests.commits

fuzz: $(VENV)/dev.stamp
	$(BIN)/python -m tests.fuzz --minutes $(MINUTES) --seed $(SEED)

bench: $(VENV)/bench.stamp
	$(BIN)/python -m bench

train: $(VENV)/dev.stamp
	$(BIN)/python examples/train_torch.py --steps 300 --picture build/train.png \
		$(if $(shell command -v g++),--inductor)

soak: $(VENV)/dev.stamp
	$(BIN)/python -m tests.soak --minutes $(MINUTES) --seed $(SEED)

replay: $(VENV)/dev.stamp
	$(BIN)/python -m tests.replay $(BASE)

ptx: $(VENV)/dev.stamp $(VENV)/ptx.stamp
	$(BIN)/python -m tests.ptx

# Their model files are all that is used of the packages, so nothing that these need is installed.
real: $(VENV)/dev.stamp
	$(BIN)/python -m pip install --quiet --no-deps magika==1.0.3 rapidocr-onnxruntime==1.4.4 \
		silero-vad==6.2.3
	$(BIN)/python -m pytest tests/real

# The document itself says how each is drawn.
pictures: $(VENV)/onnx.stamp
	sed -n 's|^    dnnl layout |$(BIN)/dnnl layout |p' docs/layouts.md | sh -ex

clean:
	rm -rf $(VENV) build dist src/*.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find src tests bench examples -name __pycache__ -type d -exec rm -rf {} +
