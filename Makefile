# Streambank. `make` alone lists the targets. On a fresh machine Python 3.11+, Java 17+ and make are enough.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

# Airflow starts twice as slowly where bytecode is neither compiled nor kept.
unexport PYTHONDONTWRITEBYTECODE

# The first Python on the path that really runs (a version manager's shim may not) and is new enough.
PYTHON ?= $(shell for name in python3.11 python3.12 python3.13 python3; do \
	"$$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && command -v "$$name" && break; done)
JAVA ?= $(if $(JAVA_HOME),$(JAVA_HOME)/bin/java,java)
BIN := .venv/bin
UV := .boot/bin/uv
# What uv fetches stays inside the folder, too.
export UV_CACHE_DIR := $(CURDIR)/.boot/cache
UV_TMP := $(CURDIR)/.boot/tmp
# TypeScript types the page's modules, which are plain JavaScript.
TSC := node_modules/.bin/tsc
# What the targets below need; `make lock` resolves exactly this.
LOCK_ARGS := --universal --generate-hashes --all-extras --group demo --group stack --group test --group lint --group audit --group build \
	--python-version 3.11 --custom-compile-command "make lock" --quiet
# One more than the cores that they are made for: tests wait much for processes that they have started (four were slower).
WORKERS ?= 3
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder
# The releases before that of requirements.lock.
AIRFLOWS ?= $(patsubst tests/matrix/locks/airflow-%.lock,%,$(wildcard tests/matrix/locks/airflow-*.lock))
# Temporary files of tests are in memory where there is room for them.
IN_MEMORY := TMPDIR=$$(.ci/temporary 4000)
# What `make test-quick` leaves out: what starts Java, Airflow or a server, or is of the demo and the benchmarks.
NOT_QUICK := $(foreach folder,streambank_airflow dags storm stack demo bench,--ignore=tests/$(folder)) \
	-m "not (spark or airflow or server or slow or storm)"
ARGS ?=
# A part of the storm, such as 2/4; all of it where this is empty.
PART ?=
COMMIT ?=
# Those of the second half of `make bench`; for a look: --keys 50000 --rounds 1
STATE_ARGS ?=

.PHONY: help
help:  ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: setup
setup: .venv/.ready  ## Make .venv from requirements.lock, with the project in it (.venv/bin/streambank); instant the second time

# All that is missing, in the first second and in one line, before 3 GB are fetched.
.PHONY: needs
needs: export PYTHON := $(PYTHON)
needs: export JAVA := $(JAVA)
needs:
	@.ci/needs java $(if $(wildcard .venv/.ready),,disk=5000) $(NEEDS)

lint check: NEEDS := $(if $(filter no,$(PAGE_TYPES)),,node npm)
test test-quick: NEEDS := git pgrep disk=1000 temporary=500
test-storm screenshots: NEEDS := git pgrep browser disk=2000 temporary=1000
demo up: NEEDS = disk=1000 temporary=500 args $(ARGS)

# uv installs what the lock names and refuses everything else; it comes by a lock of its own.
$(UV): requirements-boot.lock | needs
	@rm -rf .boot/bin .boot/lib .boot/lib64 .boot/include .boot/pyvenv.cfg && mkdir -p $(UV_TMP)
	@"$(PYTHON)" -m venv .boot >/dev/null
	@.boot/bin/python -m pip install --quiet --no-cache-dir --disable-pip-version-check \
		--require-hashes --no-deps --only-binary :all: --requirement requirements-boot.lock
	@touch $@

.venv/.ready: export TMPDIR := $(UV_TMP)
.venv/.ready: requirements.lock pyproject.toml | needs $(UV)
	@mkdir -p $(UV_TMP)
	@test -x $(BIN)/python || $(UV) venv --quiet --python "$(PYTHON)" .venv
	@echo "Filling .venv from requirements.lock: 3 GB the first time, a minute or more"
	@(while sleep 10 >/dev/null 2>&1; do echo "  $$(du -sm $(UV_CACHE_DIR) 2>/dev/null | cut -f1) MB fetched"; done) & ticker=$$!; \
		$(UV) pip sync --quiet --python $(BIN)/python --require-hashes --compile-bytecode requirements.lock; \
		code=$$?; kill $$ticker; exit $$code
	@$(UV) pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	@touch $@
	@echo "Ready: $(BIN)/streambank --help"

$(TSC): package-lock.json | needs
	@npm ci --silent --no-audit --no-fund --ignore-scripts --cache .boot/npm
	@touch $@

.PHONY: page-types
page-types: setup $(TSC)  ## What npm fetches to check the types of the page's modules

.PHONY: fmt
fmt: setup  ## Format the code and fix what ruff can fix
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

.PHONY: lint
lint: setup $(if $(filter no,$(PAGE_TYPES)),,$(TSC))  ## Style, types, of the page's modules too, and who imports whom
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/mypy --python-version 3.10 $$($(BIN)/python -m streambank.driver.bundle)  # what drivers and executors load
	@$(if $(filter no,$(PAGE_TYPES)),true,$(TSC) --project .)
	@PYTHONPATH=provider $(BIN)/lint-imports

.PHONY: check-lock
check-lock: setup
	@mkdir -p .streambank && cp requirements.lock .streambank/requirements.lock
	@$(UV) pip compile $(LOCK_ARGS) pyproject.toml --output-file .streambank/requirements.lock >/dev/null
	@cmp -s requirements.lock .streambank/requirements.lock || { echo "requirements.lock is not what pyproject.toml asks for: run make lock and commit it" >&2; exit 1; }
	@echo "requirements.lock is current"

.PHONY: check
check: lint check-lock  ## All that needs no test run: lint, and the lock is current

.PHONY: classes
classes: setup  # once: Spark's classes for all JVMs of the tests
	@$(BIN)/python -m tests.support.spark.jvm

.PHONY: test
test: classes  ## The whole suite but the storms (CI=true: a skip is a failure); ARGS="..." goes to pytest
	@$(IN_MEMORY) $(PYTEST) --durations-file=.streambank/test-durations.txt $(ARGS)

.PHONY: test-quick
test-quick: setup  ## What needs neither Java nor Airflow, within 2 minutes: for the loop while coding
	@$(IN_MEMORY) $(PYTEST) $(NOT_QUICK) $(ARGS)

.PHONY: test-storm
test-storm: classes  ## The long tests: savepoints taken and restored under load; PART=2/4 runs a part of them
	@$(PYTEST) --dist worksteal -m storm --record-storm $(if $(PART),--part $(PART)) $(ARGS)

.PHONY: screenshots
screenshots: setup  ## The pictures of the page in the docs, from what the demo's jobs do, by a real Chromium
	@$(BIN)/python -m demo.pictures $(ARGS)

.PHONY: test-fuzz
test-fuzz: setup  ## Parsers fed with what is nearly right; SECONDS=600 each (default: 60), TARGET=offsets for one of them
	@$(BIN)/python -m tests.fuzz.run --seconds $(or $(SECONDS),60) $(if $(TARGET),--target $(TARGET)) $(ARGS)

.PHONY: test-matrix
test-matrix: classes  ## The main story on each Spark that jobs run on, and the connectors of Delta and Iceberg; ARGS="-k 4.0" for one of them. Needs Python 3.10, 3.12 and 3.13 (PYTHON310=...)
	@$(PYTEST) --dist worksteal -m matrix $(ARGS)

# On the older Airflow's own interpreter; a skipped test is of what that release lacks.
.PHONY: test-matrix-airflow
test-matrix-airflow: export CI :=
test-matrix-airflow: classes  ## What faces Airflow, live a judged job and a restore with an approval, and the page in a browser, on each older Airflow; AIRFLOWS=3.2 for one
	@set -e; for release in $(AIRFLOWS); do \
		python=$$($(BIN)/python -m tests.support.airflow_face.releases $$release); \
		$$python -m pytest -n $(WORKERS) --dist loadfile -m "not storm and not spark" tests/streambank_airflow tests/dags $(ARGS); \
		$$python -m pytest -m storm tests/storm/test_restore_choices_storm.py tests/streambank_airflow/page/test_page_storm.py \
			tests/streambank_airflow/page/test_actions_storm.py tests/streambank_airflow/page/test_plots_storm.py $(ARGS); done

.PHONY: lock-matrix
lock-matrix: setup  ## Resolve what test-matrix and test-matrix-airflow install again, by the versions in tests/matrix/locks
	@for lock in tests/matrix/locks/spark-*.lock; do grep -E '^(pyspark|pyarrow)==' "$$lock" | cut -d' ' -f1 \
		| $(UV) pip compile --generate-hashes --no-header --no-annotate --quiet --python-version 3.10 --output-file "$$lock" - >/dev/null; done
	@cd tests/matrix/locks && for pins in mixed*.in openlineage.in; do $(CURDIR)/$(UV) pip compile --no-config --universal --generate-hashes --python-version 3.11 \
		--no-header --no-annotate --quiet --constraint $(CURDIR)/requirements.lock $$(case $$pins in *-client.in|openlineage.in) echo --no-deps;; esac) \
		--output-file "$${pins%.in}.lock" "$$pins" >/dev/null; done
	@cd tests/matrix/locks && $(CURDIR)/$(UV) pip compile --no-config --no-deps --universal --generate-hashes --python-version 3.11 --no-header --no-annotate --quiet \
		--output-file fab.lock fab.in >/dev/null
	@for pins in tests/matrix/locks/airflow-*.in; do $(UV) pip compile --universal --generate-hashes --all-extras \
		--group demo --group test --group build --python-version 3.11 --no-header --no-annotate --quiet \
		--constraint "$$pins" --output-file "$${pins%.in}.lock" pyproject.toml >/dev/null; done

.PHONY: storm-report
storm-report: setup  ## Whether the whole storm passed on this commit, by the records of its parts
	@$(BIN)/python -m tests.support.storm $(COMMIT)

.PHONY: demo
demo: setup  ## A story, as it happens: run, savepoints, disaster, restore, proof (under 10 minutes)
	@$(BIN)/python -m demo $(ARGS)

.PHONY: up
up: setup  ## The same, and Airflow stays up to click through
	@$(BIN)/python -m demo up $(ARGS)

.PHONY: down
down: setup  ## End what `make up` left running
	@$(BIN)/python -m demo down

.PHONY: stack
stack: setup  ## Postgres, Kafka, S3, a Spark cluster and Airflow, without Docker; ARGS="--airflow-port 8090" chooses ports
	@$(BIN)/python -m demo.stack $(ARGS)

.PHONY: stack-down
stack-down: setup  ## End what `make stack` left running, and remove its data (KEEP=1: leave it for the next start)
	@$(BIN)/python -m demo.stack down $(if $(KEEP),--keep) $(ARGS)

.PHONY: test-stack
test-stack: setup  ## The story on a stack of its own, with a worker, S3 and Kafka killed in the middle
	@$(BIN)/python -m demo.stack test $(ARGS)

.PHONY: check-compose
check-compose: setup  ## Read docker-compose.yml with Compose's own parser
	@$(BIN)/python -m demo.stack.compose

.PHONY: bench
bench: setup  ## Figures against a plain copy (bench/RESULTS.md) and Spark's own read of state (bench/STATE.md); 25 minutes
	@$(BIN)/python -m bench $(ARGS)
	@$(BIN)/python -m bench.state $(STATE_ARGS)

.PHONY: bench-advice
bench-advice: setup  ## Figures behind the guides: state stores, memory (bench/STORES.md), encodings, checkpoints (bench/CHOICES.md); an hour
	@$(BIN)/python -m bench.stores $(ARGS)
	@$(BIN)/python -m bench.choices

.PHONY: s3a-jars
s3a-jars: setup  ## Fetch Spark's jars for checkpoints on s3a:// into .streambank/s3a, and check their hashes
	@$(BIN)/python -m demo.jars.s3a

.PHONY: kafka-jars
kafka-jars: setup  ## Fetch a Kafka broker and Spark's connector for tests into .streambank/kafka, and check their hashes
	@$(BIN)/python -m demo.jars.kafka

.PHONY: table-jars
table-jars: setup  ## Fetch the connectors of Delta and Iceberg into .streambank, and check their hashes
	@$(BIN)/python -m demo.jars.delta
	@$(BIN)/python -m demo.jars.iceberg

.PHONY: yarn-jars
yarn-jars: setup  ## Fetch Hadoop's jars for the tests on YARN and HDFS into .streambank/yarn, and check their hashes
	@$(BIN)/python -m demo.jars.yarn

.PHONY: lock
lock: | $(UV)  ## Resolve requirements.lock again from pyproject.toml (make lock ARGS=--upgrade: newer versions)
	@$(UV) pip compile $(LOCK_ARGS) $(ARGS) pyproject.toml --output-file requirements.lock >/dev/null

.PHONY: sbom
sbom: setup  ## What the project is made of, by the lock: dist/sbom.json (CycloneDX)
	@$(BIN)/python -m supply.sbom dist/sbom.json

.PHONY: vulnerabilities
vulnerabilities: setup  ## Known vulnerabilities of what the lock pins; fails where the database does not answer (ARGS="-s osv" asks another)
	@$(BIN)/python -m supply.vulnerabilities $(ARGS)

.PHONY: image-digests
image-digests: setup  ## Write the digest behind each image's tag into docker-compose.yml and docker/Dockerfile (needs Docker)
	@$(BIN)/python -m supply.images

.PHONY: wheel
wheel: setup  ## Build the wheel into dist/
	@$(BIN)/python -m build --wheel --no-isolation --outdir dist . >/dev/null
	@ls dist/*.whl

.PHONY: clean
clean:  ## Remove caches, builds and what demo and tests wrote (not .venv)
	@rm -rf .streambank .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist build spark-warehouse metastore_db artifacts derby.log
	@find . -name __pycache__ -type d -not -path './.venv/*' -not -path './.boot/*' -prune -exec rm -rf {} +
