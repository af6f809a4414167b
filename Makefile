# Two commands for a stranger: `make demo` and `make test`.  Nothing has to be prepared but Python 3.11 or later:
# no Java, no NATS server, no virtual environment.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# What runs a mesh is installed; that and what tests and tools need; loops and Spark's classes are prepared.
INSTALLED := $(VENV)/.runs
STAMP := $(VENV)/.installed
PREPARED := $(VENV)/.prepared
# Further arguments for the command, as in `make demo ARGS=--keep`.
ARGS ?=
# How long random messages are played.
FUZZ_MINUTES ?= 10
# Processes that share the tests; many of these wait for servers, so that two cores serve three.
JOBS ?= 3
# Tests of a group stay in one process, and the groups start in the order of tests/support/groups.py.
LINT = $(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy && $(BIN)/lint-imports
PYTEST = $(BIN)/python -m pytest -n $(JOBS) --dist loadscope --no-loadscope-reorder

export PIP_DISABLE_PIP_VERSION_CHECK := 1
# The commands below start hundreds of processes that import the same modules: images of Python often forbid byte code.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
# `docker compose`, or Debian's docker-compose 1.29.
COMPOSE := $(shell docker compose version >/dev/null 2>&1 && echo docker compose || echo docker-compose)
STACK_NAME ?= mesh-dev
STACK = $(COMPOSE) -p $(STACK_NAME) -f compose/dev.yaml
# Base and package index of the images, for example of a registry of your own.
BASE ?= python:3.12-slim-bookworm
PIP_INDEX_URL ?= https://pypi.org/simple
PROFILES ?=
# Of `make images`: for example PLATFORMS=linux/amd64,linux/arm64 REGISTRY=registry.example/ builds for both, and pushes.
PLATFORMS ?=
REGISTRY ?=
# An image that is pushed has its bill of materials beside it in the registry.
DOCKER_BUILD = docker $(if $(PLATFORMS),buildx build --push --sbom=true --provenance=true --platform $(PLATFORMS),build)
# Of the tags and labels of the images.
VERSION := $(shell sed -n 's/^VERSION = "\(.*\)"/\1/p' connectors/pyspark_nats/version.py)
REVISION := $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
# "host" for builds that reach the package index over the host's network only.
MESH_BUILD_NETWORK ?= default
# For Compose only: other commands would read them as settings of their own.
up down logs images: export MESH_BUILD_NETWORK := $(MESH_BUILD_NETWORK)
up down logs images: export MESH_IMAGE_BASE := $(BASE)
up down logs images: export MESH_IMAGE_VERSION := $(VERSION)
up down logs images: export MESH_IMAGE_REVISION := $(REVISION)
up down logs images: export MESH_HOST_UID := $(shell id -u)
up down logs images: export MESH_HOST_GID := $(shell id -g)
up logs images: export COMPOSE_PROFILES := $(PROFILES)

.PHONY: chart dist release sbom images up down logs vendor
.PHONY: help demo check test test-ci test-thorough test-all test-matrix lint lock conf docs clean bench-ask bench-connector bench-dashboard bench-doors bench-receiver bench-flow bench-language bench-mesh bench-operators bench-spark-cluster soak chaos fuzz

help:
	@echo 'make demo    start a small cluster, run examples/temperature.siddhi on real data, show what comes out'
	@echo 'make check   lint, types, import rules and the tests that start no process, in less than a minute after the first time'
	@echo 'make test    lint, types, import rules and the default tests, in 5 to 8 minutes on two cores, by their speed; JOBS=6 on more'
	@echo 'make test-ci           the same with the slow and the thorough tests (tests/TIERS.md); make test-thorough runs those alone'
	@echo 'make test-all          the same with the extended tests as well'
	@echo 'make test ARGS="-m long"   the tests that put load on a cluster for minutes, which neither of them runs'
	@echo 'make test ARGS="-m docker" the development stack in containers; needs an engine and make images'
	@echo 'make test-matrix       the tests of NATS, databases, Java and Python with each version at hand; ONLY=nats-server,PostgreSQL'
	@echo 'make lint    the same without the tests'
	@echo 'make dist    build wheels, source archives, the Helm chart and a bill of materials into dist, and check them'
	@echo 'make release refuse unless version, changelogs, tag and images agree, and then the same'
	@echo 'make up      a cluster in containers: 3 NATS servers, 2 managers, 3 workers, a receiver; PROFILES=store,metrics adds services'
	@echo 'make down    ends it, and keeps its named volumes; make logs shows its logs'
	@echo 'make images  build its images, and a bill of materials of each; BASE=IMAGE and PIP_INDEX_URL=URL choose the base and the package index'
	@echo 'make bench-ask         aggregations beside the engine, rows, reads; ORACLE=PROGRAM, CHECK=1, ONLY=load|reads|rows|trip|rates'
	@echo 'make bench-connector   how fast the Spark connector is; CHECK=1 to fail on a missed target, ONLY=reading,writing'
	@echo 'make bench-dashboard   the overview of 1,000 apps, and what open pages cost a manager; CHECK=1 to fail on a missed target'
	@echo 'make bench-receiver       rates of sources, sinks and mappers; CHECK=1 to fail on a missed target'
	@echo 'make bench-flow        latency and rates of events through a mesh, beside plain Python and C; CHECK=1, ONLY=latency,repeats,batches,rates,backlog,bulk,crowd,footprint, ARGS=--events=10000000; ARGS=--secured for TLS, roles and three servers beside plain'
	@echo 'make bench-language    how fast SiddhiQL is read, bound and laid out; CHECK=1 to fail on a missed target'
	@echo 'make bench-mesh        what idle apps cost, how soon apps are deployed, scaled and taken over; CHECK=1, ONLY=idle,deciding,scaling,busy,failover; ARGS=--servers=3; ONLY=thousand ARGS=--apps=1000 by name only'
	@echo 'make soak              an hour of load, apps that come and go, and kills: growth of each process, and each output row; ARGS=--minutes=60'
	@echo 'make bench-operators   how fast the operators are beside the engine; ORACLE=PROGRAM drives it, CHECK=1, ONLY=pattern'
	@echo 'make bench-spark-cluster   rates on 1, 2 and 4 executors of a Spark cluster beside a local session; ONLY=local,2'
	@echo 'make chaos   faults under load: every output row beside those of a calm run; ONLY=worker-cut,leader-cut RUNS=3'
	@echo 'make fuzz    random messages, hostile and good, through the decoder and the whole path; FUZZ_MINUTES=10'
	@echo 'make chart   write the templates of the Helm chart again from conf/kubernetes'
	@echo 'make conf    write conf/mesh.yaml again from the settings in the code'
	@echo 'make docs    write docs/errors.md and what else is made from the code and the tests again'
	@echo 'make vendor  copy the pinned files of the dashboard from npm again (needs npm)'
	@echo 'make lock    resolve requirements.lock again (needs uv)'
	@echo 'make clean   remove the virtual environment, caches and the data of mesh dev'
	@echo 'PYTHON=python3.12 make ...   chooses the Python that makes the virtual environment'

# The first demo doesn't wait for what makes later starts quicker.
demo: $(INSTALLED)
	@$(BIN)/mesh demo $(ARGS)
	@$(MAKE) -s --no-print-directory $(PREPARED)

# The checks run beside the tests.  Their output comes last, and a failure of either is a failure.
test: $(STAMP)
	@printf 'Lint, types and import rules run beside the tests (%s processes); their output follows.\n' '$(JOBS)'
	@log=$$(mktemp); { $(LINT); } >"$$log" 2>&1 & lint=$$!; \
	$(PYTEST) $(TIER) $(ARGS); tests=$$?; \
	wait $$lint; lint=$$?; cat "$$log"; rm -f "$$log"; \
	test $$tests -eq 0 || echo "make test: the tests failed" >&2; \
	test $$lint -eq 0 || echo "make test: lint, types or import rules failed" >&2; \
	test $$tests -eq 0 -a $$lint -eq 0

# Tests of decisions, which start no process.
PURE = $(addprefix tests/,control functions language model operators/joins operators/patterns operators/windows plan tools)
check: TIER = $(PURE) -m 'not thorough and not (docker or extended or long or nats or spark)'
check: test

test-ci: TIER = -m 'not long and not extended and not docker'
test-ci: test

# What `make test-ci` adds to `make test`; the latter draws an eighth of Hypothesis's examples.
test-thorough: $(STAMP)
	$(PYTEST) -m '(slow or thorough or hypothesis) and not long and not extended and not docker' $(ARGS)

test-all: TIER = -m 'not long and not docker'
test-all: test

test-matrix: $(STAMP)
	@$(BIN)/python -m tools.matrix $(if $(ONLY),--only $(ONLY))

lint: $(STAMP)
	$(LINT)

bench-ask: $(STAMP)
	@$(BIN)/python -m bench.ask $(if $(ORACLE),--oracle $(ORACLE)) $(if $(CHECK),--check) $(if $(ONLY),--only $(ONLY)) $(ARGS)

bench-connector: $(STAMP)
	@$(BIN)/python -m bench.connector $(if $(CHECK),--check) $(if $(ONLY),--only $(ONLY)) $(ARGS)

bench-dashboard: $(STAMP)
	@$(BIN)/python -m bench.dashboard $(if $(CHECK),--check) $(ARGS)

# Its name until 0.1.0.
bench-doors: bench-receiver

bench-receiver: $(STAMP)
	@$(BIN)/python -m bench.receiver $(if $(CHECK),--check) $(ARGS)

bench-flow: $(STAMP)
	@$(BIN)/python -m bench.flow $(if $(CHECK),--check) $(if $(ONLY),--only $(ONLY)) $(ARGS)

bench-language: $(STAMP)
	@$(BIN)/python -m bench.language $(if $(CHECK),--check) $(ARGS)
	@$(BIN)/python -m bench.language_service $(if $(CHECK),--check)

bench-mesh: $(STAMP)
	@$(BIN)/python -m bench.mesh $(if $(CHECK),--check) $(if $(ONLY),--only $(ONLY)) $(ARGS)

bench-spark-cluster: $(STAMP)
	@$(BIN)/python -m bench.spark_cluster $(if $(ONLY),--only $(ONLY)) $(ARGS)

bench-operators: $(STAMP)
	@$(BIN)/python -m bench.operators $(if $(ORACLE),--oracle $(ORACLE)) $(if $(CHECK),--check) $(if $(ONLY),--only '$(ONLY)') $(ARGS)

soak: $(STAMP)
	@$(BIN)/python -m bench.mesh --only soak --check $(ARGS)

chaos: $(STAMP)
	@$(BIN)/python -m bench.chaos $(if $(ONLY),--only $(ONLY)) $(if $(RUNS),--runs $(RUNS)) $(ARGS)

fuzz: $(STAMP)
	@$(BIN)/python -m tests.fuzz.messages --minutes $$(( ($(FUZZ_MINUTES) + 1) / 2 )) $(ARGS)
	@$(BIN)/python -m tests.fuzz.whole_path --minutes $$(( ($(FUZZ_MINUTES) + 1) / 2 )) $(ARGS)

# The bills of images, which `make images` has written, stay.
dist: $(STAMP)
	$(BIN)/python -m tools.advisories
	mkdir -p dist && find dist -type f ! -name 'mesh-*.sbom.json' -delete
	$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation -w dist . ./connectors
	$(BIN)/python -m hatchling build -t sdist -d dist
	cd connectors && "$(CURDIR)/$(BIN)/python" -m hatchling build -t sdist -d "$(CURDIR)/dist"
	$(BIN)/python -m tools.chart dist
	$(BIN)/python -m tools.sbom dist/sbom.json
	@$(BIN)/python -m tools.dist_check dist

# Of a tagged commit, after `make images`.
release: $(STAMP)
	@$(BIN)/python -m tools.release '$(VERSION)'
	@$(MAKE) --no-print-directory dist

# Every locked package with its licence and hashes, as CycloneDX.
sbom: $(STAMP)
	$(BIN)/python -m tools.sbom dist/sbom.json

# The templates of the Helm chart, from the kustomize bases.
chart: $(STAMP)
	$(BIN)/python -m tools.chart

# One image after the other: they share layers.  What is in an image of this machine is written to dist, too.
images:
	@mkdir -p dist; for target in nats manager worker $(findstring idp,$(PROFILES)); do \
		image=$(REGISTRY)mesh-$$target; \
		$(DOCKER_BUILD) --network $(MESH_BUILD_NETWORK) -f compose/Dockerfile --target $$target -t $$image:dev -t $$image:$(VERSION) \
			--build-arg BASE=$(BASE) --build-arg PIP_INDEX_URL=$(PIP_INDEX_URL) \
			--build-arg VERSION=$(VERSION) --build-arg REVISION=$(REVISION) . || exit 1; \
		$(if $(PLATFORMS),,docker run --rm -i --network none --entrypoint python3 $$image:dev - --installed mesh-$$target $(VERSION) \
			< tools/sbom.py > dist/mesh-$$target.sbom.json || exit 1;) done

up:
	$(STACK) up -d
	@echo 'All are healthy.  mesh nodes, mesh deploy and curl -K .mesh/stack/curl.cfg find it; see docs/compose.md'

# Of every profile.  Volumes without a name are scratch of the containers, and go with them.
down: export COMPOSE_PROFILES := store,metrics,spark,idp
down:
	$(STACK) rm --stop --force -v
	$(STACK) down
	@rm -f .mesh/stack/context.json

logs:
	$(STACK) logs --tail 200 -f $(ARGS)

conf: $(STAMP)
	$(BIN)/python -m mesh.settings > conf/mesh.yaml

docs: $(STAMP)
	$(BIN)/python -m tools.docgen

vendor: $(STAMP)
	$(BIN)/python -m tools.vendor

lock:
	@command -v uv >/dev/null || { echo 'make lock needs uv: https://docs.astral.sh/uv/' >&2; exit 1; }
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --all-extras --group dev \
		--custom-compile-command 'make lock' pyproject.toml -o requirements.lock
	$(BIN)/python -m tools.image_locks

clean:
	rm -rf $(VENV) .mesh dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find mesh connectors tests bench tools -name __pycache__ -type d -prune -exec rm -rf {} +

# Made again when what is installed changes.  The project itself goes in editable, so its own files are never stale.
$(INSTALLED): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "mesh needs Python 3.11 or later, and '$(PYTHON)' is: $$($(PYTHON) --version 2>&1)" >&2; \
		echo 'Name another one: PYTHON=python3.12 make ...' >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
		echo "'$(PYTHON) -m venv' failed; on Debian and Ubuntu it needs the package python3-venv." >&2; exit 1; }
	@$(BIN)/python -m tools.install
	@$(BIN)/python -m compileall -q -j0 mesh connectors
	@touch $(INSTALLED)

$(STAMP): $(INSTALLED)
	@$(BIN)/python -m tools.install --all
	@$(MAKE) -s --no-print-directory $(PREPARED)
	@touch $(STAMP)

$(PREPARED): $(INSTALLED)
	@echo "Compiling native loops, and writing Spark's classes to an archive, so that sessions start faster ..."
	@$(BIN)/python -m mesh.worker.prepare
	@touch $(PREPARED)
