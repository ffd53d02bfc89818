# Every target works on a fresh clone with Python 3.11+ and make, and is quick when repeated.
PYTHON ?= python3
VENV   ?= .venv
RUN     = $(VENV)/bin/python
READY   = $(VENV)/.installed

# Numba does not notice that another file of the package changed: give every state of the sources its own cache.
export NUMBA_CACHE_DIR = $(CURDIR)/.cache/numba/$(shell $(PYTHON) tests/sources.py)

.PHONY: help install demo test test-oldest lint format bench peers results clean

help:
	@echo "make install      a virtual environment in $(VENV) with every extra but torch"
	@echo "make demo         see the sampling at work"
	@echo "make test         the test suite"
	@echo "make test-oldest  the test suite on the oldest supported dependencies"
	@echo "make lint         ruff, formatting, types"
	@echo "make format       let ruff format and fix the sources"
	@echo "make bench        the benchmarks, one after the other, on one thread"
	@echo "make peers        our fast solver beside those of other packages (hours; goes on where it was interrupted)"
	@echo "make results      the paper's figures on real data, into docs/results (goes on where it was interrupted)"
	@echo "make clean        remove the environment and all caches"

install: $(READY)

$(READY): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit("surestep needs Python 3.11 or newer; name one with make PYTHON=python3.x" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	$(RUN) -m pip install --quiet --group test --group lint --editable ".[plot,cli,dask]"
	touch $(READY)

demo: $(READY)
	$(RUN) -m surestep.cli demo

test: $(READY)
	$(RUN) -m pytest -n 2 --dist worksteal

# uv resolves "the oldest version each line of pyproject.toml allows".
test-oldest: $(READY)
	$(RUN) -m pip install --quiet uv
	$(RUN) -m uv venv --quiet --clear --python $(RUN) .venv-oldest
	$(RUN) -m uv pip install --quiet --python .venv-oldest --resolution lowest-direct --group test --editable .
	.venv-oldest/bin/python -m pytest -n 2 --dist worksteal

lint: $(READY)
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy

format: $(READY)
	$(RUN) -m ruff format .
	$(RUN) -m ruff check --fix .

bench: export OMP_NUM_THREADS = 1
bench: export OPENBLAS_NUM_THREADS = 1
bench: $(READY)
	@for script in benchmarks/bench_*.py; do $(RUN) $$script || exit 1; done

peers: $(READY)
	$(RUN) benchmarks/peers/run.py --resume

results: $(READY)
	$(RUN) benchmarks/paper_results.py

clean:
	rm -rf $(VENV) .venv-oldest .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis
