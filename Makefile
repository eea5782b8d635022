# Everything a clone needs: Python 3.11 or newer, make, and Java 17 or newer for the parts that use Spark.
# `make` alone lists the targets.

PYTHON_CANDIDATES = python3 python3.13 python3.12 python3.11
PYTHON ?= $(shell for python in $(PYTHON_CANDIDATES); do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; done)

VENV := .venv
BIN := $(VENV)/bin
LOCK := requirements/dev.txt
INSTALLER := requirements/uv.txt
PIP_INSTALL = $(BIN)/python -m pip install --quiet --no-input --disable-pip-version-check
# What images have: that of dev.txt and no other, each with less beside it.
IMAGE_LOCKS := requirements/server.txt requirements/pipelines.txt requirements/build.txt
PACKAGES := $(VENV)/.packages
JARS := $(VENV)/.jars
ARGS ?=

# Scripts in an environment name its folder: in a clone that was copied or moved they would run the old one's code.
$(shell [ ! -e $(PACKAGES) ] || [ "$$(cat $(PACKAGES))" = "$(CURDIR)" ] || rm -rf $(VENV))

# Runs before there is an environment, so it asks Java itself.
JAVA_CHECK = { for java in $${JAVA_HOME:+"$$JAVA_HOME/bin/java"} java; do \
	"$$java" --list-modules 2>/dev/null | awk -F @ '$$1 == "java.base" { version = $$2 + 0 } \
		$$1 == "jdk.incubator.vector" { vector = 1 } END { exit !(version >= 17 && vector) }' && break; \
	done || { echo "Spark needs Java 17 or newer (with its module jdk.incubator.vector), and none was found:" \
	"apt-get install openjdk-17-jre-headless, or brew install openjdk@17, or point JAVA_HOME at one." >&2; false; }; }

.DEFAULT_GOAL := help
.PHONY: help setup native demo docs release notebook pictures test test-slow test-clients test-chaos test-deploy check bench compare coverage soak twins proto clean audit lock java
.SUFFIXES:

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

setup: $(PACKAGES) ## Install what the project needs into .venv, once (about 1.1 GB), and fetch Spark's jars
	@if $(JAVA_CHECK); then $(MAKE) --no-print-directory -s $(JARS); \
	else echo "Publishing and consuming work without it; 'make demo' and 'make test' do not."; fi
	@echo "Ready. Next: make demo$$(command -v cargo >/dev/null && echo ", or make native, by which Kafka's clients are served sooner")"

native: $(PACKAGES) ## Build the codec for clients of Kafka with Rust's cargo, and install it into .venv; without it numpy and Python do the work
	@command -v cargo >/dev/null || { echo "make native needs Rust's cargo, 1.85 or newer, and there is none on PATH:" \
		"install it with rustup, or on Debian 13 by apt-get install cargo." >&2; exit 1; }
	@sh native/lock.sh
	@PATH="$(abspath $(BIN)):$$PATH" CARGO_TARGET_DIR="$(CURDIR)/build/native" MATURIN_PEP517_ARGS=--locked \
		$(PIP_INSTALL) --force-reinstall --no-deps --no-build-isolation ./native
	@$(BIN)/python -c 'from siltlog.infra.kafka.native import CODEC; print(f"The codec for clients of Kafka is {CODEC}.")'

demo: java $(JARS) ## Send a year of real flights through the whole system, with a crash in the middle
	@$(BIN)/silt demo $(ARGS)

docs: $(PACKAGES) ## Build the documentation site into build/docs/site, every link checked
	@$(BIN)/python -m docs.site

notebook: java $(JARS) ## Run the demo's tour again and store its pictures in notebooks/tour.ipynb
	@$(BIN)/python notebooks/execute.py notebooks/tour.ipynb

pictures: $(PACKAGES) ## Take the pictures of docs/page.md anew, with Chromium (ARGS=folder for another place)
	@PYTHONPATH=tests/rigs $(BIN)/python tests/rigs/page_pictures.py $(or $(ARGS),docs/pictures)

# Where the environment forbids bytecode, each of the hundreds of servers would compile all it imports.
test: java $(JARS) ## Run the tests, five files at a time (ARGS="-k wal" for some; those of a path with its slow ones)
	@env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest -n 5 --dist loadfile --no-loadscope-reorder $(ARGS)

test-slow: java $(JARS) ## Run the tests that take long: jobs of Spark that are killed, several nodes, whole pages of docs/
	@env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest -n 4 --dist loadfile --no-loadscope-reorder -m slow $(ARGS)

test-chaos: CHAOS ?= 500
test-chaos: java $(JARS) ## Run what has chance in it with thousands of seeds, for hours (CHAOS=10 for fewer)
	@CHAOS=$(CHAOS) env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest -n 4 -m chaos \
		--timeout 7200 -o faulthandler_timeout=7300 $(ARGS)

test-clients: java $(JARS) ## Drive servers by clients of others: browsers, Go, Node.js; installs them on Debian as root
	@tests/deploy/tools clients
	@env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest -n 4 --dist loadfile -m client $(ARGS)

coverage: LEAST ?= 90
coverage: java $(JARS) ## Run the tests, and say how much of each room they run; quickest on Python 3.12+ (LEAST=0 ADD=1 with ARGS: in parts)
	@env -u PYTHONDONTWRITEBYTECODE LEAST=$(LEAST) ADD=$(ADD) $(BIN)/python tests/rigs/rooms_covered.py \
		-n 4 --dist loadfile --no-loadscope-reorder -m "slow or not slow" $(ARGS)

test-deploy: java $(JARS) ## Build and run images, units, proxies and charts, with tools that it installs (half an hour, cold)
	@tests/deploy/tools
	@env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest tests/deploy -m "deploy or not deploy" \
		--timeout 2400 -o faulthandler_timeout=2500 $(ARGS)

check: $(PACKAGES) ## Check format, lint and types
	@echo "Format";  $(BIN)/ruff format --check --quiet .
	@echo "Lint";    $(BIN)/ruff check --quiet .
	@echo "Types";   $(BIN)/mypy --no-error-summary
	@if command -v terraform >/dev/null; then echo "Terraform"; terraform fmt -check -diff -recursive terraform; fi
	@echo "Clean."

bench: $(PACKAGES) ## Measure speed and memory, each beside its limit
	@$(BIN)/python -m benchmarks $(ARGS)

compare: $(PACKAGES) ## Measure Kafka, NATS, RabbitMQ, Valkey beside it, which it fetches (ARGS="--quick --runs 1 kafka")
	@$(BIN)/python -m benchmarks.compare $(ARGS)

soak: SECONDS ?= 3600
soak: java $(JARS) ## Keep a server at work for an hour, and see that nothing grows without bound (SECONDS=60 for less)
	@$(BIN)/python -m benchmarks.soak --seconds $(SECONDS) $(ARGS)

twins: $(PACKAGES) ## Make the synchronous modules anew of the asynchronous ones
	@$(BIN)/python tests/rigs/twins.py

proto: $(PACKAGES) ## Make the code of proto/ anew
	@$(BIN)/python -m proto

clean: ## Remove what the other targets made (downloaded jars stay)
	@rm -rf $(VENV) silt-demo build dist spark-warehouse .hypothesis .mypy_cache .pytest_cache .ruff_cache
	@find . -name .git -prune -o -type d -name __pycache__ -prune -exec rm -rf {} +
	@echo "Removed the environment, the demo's data and every cache."

# --strict: what the service does not know, as behind many mirrors, is a failure, and not one finding less.
audit: ## Ask for known vulnerabilities of the pinned packages (needs pip-audit; ARGS="-s osv" for another service)
	@command -v pip-audit >/dev/null || { echo "make audit needs pip-audit: python3 -m pip install pip-audit" >&2; exit 1; }
	@pip-audit --disable-pip --require-hashes --strict --progress-spinner off -r $(LOCK) $(ARGS) || \
		{ echo "Something is vulnerable, or could not be looked up: the lines above say which." >&2; exit 1; }

release: $(PACKAGES) ## Build what goes out with a version into dist/, byte for byte (ARGS=--rehearse before it is one)
	@$(BIN)/python -m release $(ARGS)

lock: $(PACKAGES) ## Pin what pyproject.toml asks for (ARGS=--upgrade for what is newer)
	@$(PIP_INSTALL) --require-hashes -r $(INSTALLER)
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
		--all-extras --group dev $(ARGS) pyproject.toml -o $(LOCK)
	@for lock in "client pyproject.toml" "server --extra server pyproject.toml" "pipelines --extra spark pyproject.toml" \
		"build requirements/build.in" "uv requirements/uv.in"; do \
		set -- $$lock; name=$$1; shift; \
		$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
			--no-annotate -c $(LOCK) "$$@" -o requirements/$$name.txt || exit 1; done
	@if command -v cargo >/dev/null; then sh native/lock.sh --pin $(filter --upgrade,$(ARGS)); \
	else echo "native/crates.lock stays as it is: there is no cargo on PATH." >&2; fi
	@echo "Wrote $(LOCK) $(INSTALLER) $(IMAGE_LOCKS). Next: make test"

java:
	@$(JAVA_CHECK)

# uv takes a fraction of pip's time. Where it has no wheel, or cannot reach the index that pip is set to, pip installs.
$(PACKAGES): $(LOCK) $(INSTALLER) pyproject.toml
	@[ -n "$(PYTHON)" ] || { echo "Siltlog needs Python 3.11 or newer, and there is none on PATH. Install one, or: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Siltlog needs Python 3.11 or newer, and $(PYTHON) is not." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || { echo "$(PYTHON) cannot make virtual environments. Install its venv module (for example: apt-get install python3-venv)." >&2; exit 1; }
	@$(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
		{ echo "Making $(VENV) with $$($(PYTHON) --version)"; $(PYTHON) -m venv --clear $(VENV); }
	@echo "Installing the pinned packages (about 1.1 GB, a minute)"
	@{ $(PIP_INSTALL) --require-hashes -r $(INSTALLER) && \
		index=$${PIP_INDEX_URL:-$$($(BIN)/python -m pip config get global.index-url 2>/dev/null)}; \
		$${index:+env UV_DEFAULT_INDEX="$$index"} $(BIN)/uv pip install --quiet --python $(BIN)/python \
			--require-hashes --compile-bytecode -r $(LOCK); } 2>/dev/null || $(PIP_INSTALL) --require-hashes -r $(LOCK)
	@$(PIP_INSTALL) --no-deps --no-build-isolation -e .
	@echo "$(CURDIR)" > $@

$(JARS): $(PACKAGES)
	@$(BIN)/python -m siltlog.pipelines.setup > $@.part && mv $@.part $@
