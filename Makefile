.DEFAULT_GOAL := help
.PHONY: help setup demo test test-long check mutants bench wheel
.DELETE_ON_ERROR:

bin := .venv/bin
pip := $(bin)/python -m pip install --disable-pip-version-check

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | while IFS="$$(printf '\t')" read -r name what; do \
		printf '  make %-9s %s\n' "$$name" "$$what"; done

setup: .venv/.full  ## everything for working on Cutaway, in .venv

demo: .venv/.core  ## set up what the demo needs, then run it
	$(bin)/cutaway demo

# Two sessions: shapes are checked in the first; the second runs the code as users do, compiled or with wrong inputs.
test: .venv/.full  ## set up, then run the tests
	CUTAWAY_TYPECHECK=1 $(bin)/pytest tests --ignore=tests/compiled --ignore=tests/model -n 2 --dist worksteal
	CUTAWAY_TYPECHECK=0 $(bin)/pytest tests/compiled tests/model -n 2 --dist worksteal

test-long: .venv/.full  ## the tests marked `long`: more instants, more draws, more models that learn
	CUTAWAY_TYPECHECK=1 $(bin)/pytest tests -m long -n 2 --dist worksteal

check: .venv/.full  ## format, lint and types
	$(bin)/ruff format --check .
	$(bin)/ruff check .
	$(bin)/mypy

mutants: .venv/.full  ## break the code line by line and see that the tests notice
	$(bin)/python tests/mutants.py -j 2

# Linux: unshare gives a process no network; who may not use it is told so by the command itself.
wheel: .venv/.core  ## build the wheel, install it into an empty environment, and translate there without a network
	rm -rf build/wheel && mkdir -p build/wheel
	$(bin)/python -m pip wheel --quiet --no-deps --wheel-dir build/wheel .
	$(bin)/python -m venv build/wheel/empty
	build/wheel/empty/bin/pip install --quiet --disable-pip-version-check "$$(grep '^torch==' constraints.txt)"
	build/wheel/empty/bin/pip install --quiet --disable-pip-version-check build/wheel/cutaway-*.whl
	cd build/wheel && unshare --map-root-user --net empty/bin/cutaway translate "Where is the station?" --model en-de --to de

bench: .venv/.full  ## list the benchmarks and run the first: our forward pass beside transformers'
	@for file in bench/*.py; do printf '  %-24s %s\n' "$$file" "$$(sed -n '1s/"""//gp' "$$file")"; done
	$(bin)/python bench/forward.py

# python3 where it will do. Each candidate is run, since a name on PATH may be a shim with nothing behind it.
.venv/bin/python:
	@for python in python3 python3.12 python3.11; do \
		if $$python -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))' 2>/dev/null; then \
			echo "$$python -m venv .venv"; exec $$python -m venv .venv; \
		fi; \
	done; \
	echo "Cutaway needs Python 3.11 or 3.12, and none is on PATH as python3, python3.12 or python3.11." >&2; exit 1

# torch first and exact: a range would resolve to the newest build, and that brings gigabytes of CUDA.
.venv/.core: pyproject.toml constraints.txt | .venv/bin/python
	$(pip) "$$(grep '^torch==' constraints.txt)"
	$(pip) --quiet --constraint constraints.txt --editable '.[images,serve]'
	@touch $@

# transformer_lens without its list, which brings wandb and its telemetry; what it imports stands in the extra `peers`.
.venv/.full: .venv/.core
	$(pip) --quiet --constraint constraints.txt --editable '.[dev,peers,gguf,parquet,images,evaluate,tensorboard,ctranslate2,onnx,serve]'
	$(pip) --quiet --no-deps "$$(grep '^transformer_lens==' constraints.txt)"
	@touch $@
