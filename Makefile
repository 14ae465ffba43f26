# SPDX-License-Identifier: MIT
# The front door: `make help` lists what it opens. Nothing is installed outside of .venv, and what
# is built goes to _build.

PYTHON ?= python3
VENV := .venv
PY ?= $(VENV)/bin/python
ARGS ?=

# The chapters measure, so nothing runs beside anything else, whatever -j says.
.NOTPARALLEL:
.DEFAULT_GOAL := help
.PHONY: help book html pdf slides test check releases style lab labs kernels record doctor bench clean distclean

# Start-up files in a reader's IPython profile are not part of the book.
export IPYTHONDIR := $(CURDIR)/_build/ipython

help: ## this list
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' Makefile | expand -t 18

book: $(VENV)/.book html ## install what the book needs, run the chapters, render the pages

# The tests build the book with this rule and their own Python (PY=...), so there is one command.
html:
	@"$(PY)" -m contended.book $(ARGS)

# Two at a time: no two measurements run at once (contended.measure.runner sees to it), and none is judged
# by its time alone.
# What takes longest is begun first (tests/conftest.py).
TWO := -n 2 --dist loadfile --no-loadscope-reorder
SLOWEST := --durations 30 --durations-min 5

pdf: book ## the same, and each chapter as a PDF in _build/pdf, printed by Chromium
	$(PY) tools/pdf.py _build/$(if $(findstring --recorded,$(ARGS)),recorded/,)html _build/pdf

slides: book ## the same, and each chapter as slides in _build/slides, pages that need nothing else
	$(PY) -m contended.book.slides $(filter --recorded,$(ARGS))

test: $(VENV)/.dev style ## style, types, all tests of some minutes or less (ARGS='-k word')
	$(PY) -m pytest $(TWO) -m 'not check and not release' $(ARGS)

check: $(VENV)/.dev style ## the same, and all the rest: chapters run, kernels built and booted, labs graded
	$(PY) -m pytest $(TWO) $(SLOWEST) -m 'not release' $(ARGS)

releases: $(VENV)/.dev ## is a later release's kernel, built now, as the record of it says (20 minutes)
	$(PY) -m contended.cli kernel source --release 6.12
	$(PY) -m pytest tests/kernel -m release $(ARGS)

style: $(VENV)/.dev
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	PYTHONPATH=src $(PY) -c 'from importlinter import cli; cli.lint_imports_command()' --no-cache

# The server's root is the whole tree, so that the models' C can be edited beside the chapters.
lab: $(VENV)/.book ## open the chapters in JupyterLab
	$(PY) -m jupyterlab --ServerApp.root_dir=. --LabApp.default_url=/lab/tree/notebooks $(ARGS)

labs: $(VENV)/.dev ## prove the course's labs: solutions pass, stubs and wrong ones do not (ARGS=LAB)
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" $(PY) -m contended.cli course prove $(ARGS)

kernels: $(VENV)/.book ## build all kernels of the kernel lab (half an hour; goes on where it was)
	$(PY) -m contended.cli kernel build $(ARGS)

record: $(VENV)/.book ## run the chapters and keep what they measure as reference runs in results/
	CONTENDED_RECORD=1 $(PY) -m nbconvert --execute --to notebook --output-dir _build/record \
	  notebooks/*.ipynb

doctor: ## what this machine has, what it lacks, and the command that adds it
	@PYTHONPATH=src "$(PYTHON)" -m contended.doctor $(ARGS)

bench: $(VENV)/.dev ## measure how fast all this is (leave the machine alone)
	@bad=0; for script in benchmarks/*.py; do \
	  echo "== $$script"; $(PY) $$script || bad=1; done; exit $$bad

clean: ## remove the built book and the tools' caches
	rm -rf _build .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests -name __pycache__ -prune -exec rm -rf {} +

distclean: clean ## the same, and .venv
	rm -rf $(VENV) src/*.egg-info

# One environment, filled in two steps, each with a stamp that is newer than what it depends on:
# a reader of the book does not wait for browser drivers and type checkers, and whoever tests gets
# everything in one run of pip. Build isolation is off so that the build backend is pinned as well.
# Not made again when the script changes: that would delete an environment that works.
$(VENV)/.made: | tools/venv.sh
	@test -w . || { echo "Cannot write to $(CURDIR): make needs a tree that you may write to; copy it to one." >&2; exit 1; }
	@tools/venv.sh "$(PYTHON)" $(VENV)
	@touch $@

$(VENV)/.book: $(VENV)/.made pyproject.toml constraints.txt
	$(call install,book)
	@touch $@

$(VENV)/.dev: $(VENV)/.made pyproject.toml constraints.txt
	$(call install,book$(comma)course$(comma)dev)
	@touch $(VENV)/.book $@

comma := ,
pip = $(VENV)/bin/python -m pip --disable-pip-version-check install --quiet -c constraints.txt
define install
@echo "Installing the pinned packages ($(1)) into $(VENV): a minute or two the first time"
@$(pip) setuptools
@$(pip) --no-build-isolation -e '.[$(1)]'
endef
