# make book    build the site into _build/html            make record  rewrite book/printed/; read the diff
# make serve   read it on localhost                       make mutate  how many one-digit slips are caught
# make lab     change it in JupyterLab                    make lock    newest versions into requirements.txt
# make pdf     all of it in one PDF, by Chromium          make zip     the site in an archive, to read from a folder
# make test    everything that is checked                 make clean   start over
PYTHON ?= python3
BIN := .venv/bin

.PHONY: book serve pdf zip lab test record mutate lock lint clean

book: .venv/ready
	@$(BIN)/python -m lib.press.build book

serve: .venv/ready
	@$(BIN)/python -m lib.press.build serve

pdf: book
	@$(BIN)/python -m lib.press.pdf

zip: book
	@$(BIN)/python -m lib.press.build zip

lab: .venv/ready
	@$(BIN)/python -m lib.press.build check
	@$(BIN)/jupyter lab --LabApp.app_settings_dir=$(CURDIR)/.binder/lab book/intro.md

record: .venv/ready
	@$(BIN)/python -m lib.press.build record

test: .venv/ready lint
	$(BIN)/pytest --nbmake book -n 2
	$(BIN)/pytest tests -n 2 --dist loadfile --no-loadscope-reorder

lint: .venv/ready
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

mutate: .venv/ready
	$(BIN)/python -m tools.mutate

lock: .venv/ready
	$(BIN)/pip install -q uv
	$(BIN)/uv pip compile -q --upgrade --universal --python-version 3.11 --no-header requirements.in -o requirements.txt

.venv/ready: requirements.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -q --disable-pip-version-check -r requirements.txt
	@touch .venv/ready

clean:
	rm -rf _build .venv
