# Every command of the project. `make help` lists them.

MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
.PHONY: help build demo test quick conformance conformance-gateway lint fmt fuzz bench bench-gateway bench-rules bench-instructions bench-scale bench-bodies bench-latency bench-http3 lab check-lab floods soak check-soak clean simulate simulate-faults truths peers cluster cluster-down test-cluster image package release publish check-release manifests check-chart check-dashboard check-docs check-operations check-oidc check-acme check-http3 docs picture-dashboard check-image test-ingress-nginx

TARGET := $(or $(CARGO_TARGET_DIR),target)
FUZZ_SECONDS ?= 60
BENCH ?=
LAB ?= dynamic
FLOODS ?=
INSTRUCTIONS ?=
SCHEDULES ?=
SEED ?=
FAULTS ?=
HOURS ?= 0.05
REPORT ?=
SOAK ?=
SLUICEGATE ?=
PROVIDER ?=
PAGES ?=
export CASES ?=
# The tests of clusters. The tests of the harness run first, because the other tests rely on the harness.
CLUSTER ?= test_harness $(filter-out test_harness,$(basename $(notdir $(sort $(wildcard test/cluster/tests/test_*.py)))))
IMAGE ?=
GATEWAY_API ?=
BENCH_GATEWAY ?=
RELEASE ?=
REGISTRY ?= ghcr.io/sluicegate

# Root can create network namespaces, so the tests that need namespaces must not skip themselves.
# If root may not create namespaces (in some containers): make test SLUICEGATE_NETNS=skip
export SLUICEGATE_NETNS ?= $(if $(filter 0,$(shell id -u)),require,skip)

help: ## list all commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-19s %s\n", $$1, $$2 }' Makefile

build: ## build the gateway and the lab: target/release/sluicegate with its symbols beside it, target/local/sluicegate-lab
	@scripts/setup build
	@cargo build --release --package sluicegate
	@scripts/split-symbols $(TARGET)/release/sluicegate
	@cargo build --profile local --package sluicegate-lab

demo: ## run the gateway on http://localhost:8080 and https://localhost:8443 while its endpoints and its certificate change (DEMO_SECONDS=20: for 20 s)
	@scripts/setup build
	@cargo build --quiet --profile local --package sluicegate --package sluicegate-testkit --bin sluicegate --bin demo
	@$(TARGET)/local/demo

test: ## check the format, lints, dependencies and documentation, and run all tests
	@scripts/setup test
	@$(MAKE) lint
	@cargo test --workspace --quiet
	@# With --workspace, although all are tests of one package: alone, the package has other features and compiles again.
	@SLUICEGATE_TEST_TRANSPORT=https cargo test --workspace --quiet --test zero_loss --test hostile
	@SLUICEGATE_TEST_TRANSPORT=http2 cargo test --workspace --quiet --test zero_loss --test forwarding
	@SLUICEGATE_TEST_TRANSPORT=http3 cargo test --workspace --quiet --test zero_loss --test forwarding

quick: ## check the format, clippy and the unit tests of the crates that changed since the last commit
	@scripts/quick

conformance: ## check TLS with openssl, HTTP/2 with h2spec, gRPC with its interoperability tests, the cache with http-cache-tests, shared limits with Valkey, and WebSocket with Autobahn's cases (AUTOBAHN=all: also the slow cases)
	@scripts/setup conformance
	@scripts/conformance

conformance-gateway: ## run the conformance suite of Gateway API in a cluster, as root (test/gateway-api/README.md; GATEWAY_API="--keep --only HTTPRouteWeight" for a part)
	@scripts/setup cluster
	@scripts/setup image
	@scripts/setup chart
	@scripts/setup acme
	@test/cluster/cluster build
	@python3 -m unittest discover --start-directory test/gateway-api
	@test/gateway-api/run.py $(GATEWAY_API)

lint: ## check the format, clippy, the documentation and the dependencies
	@scripts/setup test
	@cargo fmt --all --check
	@cargo fmt --manifest-path fuzz/Cargo.toml --check
	@cargo clippy --workspace --all-targets --quiet -- --deny warnings
	@# The documentation is for developers, so the map of a crate links to its private modules.
	@RUSTDOCFLAGS="--deny warnings --allow rustdoc::private_intra_doc_links" cargo doc --workspace --no-deps --document-private-items --quiet
	@scripts/deny
	@test/simulation/faults.py --check

fmt: ## format all code
	@cargo fmt --all
	@cargo fmt --manifest-path fuzz/Cargo.toml

fuzz: ## fuzz each parser for FUZZ_SECONDS (60) from fuzz/seeds
	@scripts/setup fuzz
	@scripts/fuzz $(FUZZ_SECONDS)

simulate: ## run SCHEDULES (20000) of the zero-loss contract on a simulated network, from SEED or from the date (test/simulation/README.md); SEED=170 repeats a failure
	@SLUICEGATE_SEED=$(or $(SEED),$(shell date +%Y%m%d000000)) SLUICEGATE_SCHEDULES=$(or $(SCHEDULES),$(if $(SEED),1,20000)) \
		cargo test --quiet --profile local --package sluicegate-proxy --lib -- simulation::schedules

simulate-faults: ## plant each fault of test/simulation/faults, and check that the simulation finds it (FAULTS="retry-of-post" for a part)
	@test/simulation/faults.py $(FAULTS)

bench: ## compare the CPU time per request with nginx, HAProxy, Envoy, Traefik and a byte forwarder (BENCH="--turns 3 --gateways sluicegate,nginx")
	@$(MAKE) lab LAB="bench $(BENCH)"

bench-gateway: ## repeat the public benchmark of Gateway API implementations with Sluicegate, as root (test/gateway-api/README.md; BENCH_GATEWAY="probe routes" for a part)
	@scripts/setup cluster
	@scripts/setup build
	@test/cluster/cluster build etcd kube-apiserver kubectl
	@cargo build --quiet --release --package sluicegate
	@cargo build --quiet --profile local --package sluicegate-lab
	@test/gateway-api/bench.py $(BENCH_GATEWAY)

bench-rules: ## print the time of a lookup among 5,000 routes, also with conditions and with regular expressions
	@cargo test --quiet --release --package sluicegate-proxy --lib rule::speed -- --ignored --nocapture

bench-instructions: ## count the instructions of a request in user space by cachegrind; fail at 3 % above lab/instructions.json (INSTRUCTIONS="--update" or "--only GET")
	@scripts/setup instructions
	@cargo build --quiet --release --package sluicegate
	@scripts/bench-instructions $(TARGET)/release/sluicegate $(INSTRUCTIONS)

bench-scale: ## measure start, memory and the change of one route with up to 40,000 routes, 20,000 hosts and 50,000 endpoints (SCALE="--routes 80000")
	@scripts/setup build
	@cargo build --quiet --release --package sluicegate
	@scripts/bench-scale $(TARGET)/release/sluicegate $(SCALE)

bench-bodies: ## compare the CPU time for each byte of bodies of 1 MB and 100 MB with nginx, down and up (BODIES="--turns 9")
	@scripts/setup beside
	@cargo build --quiet --release --package sluicegate
	@scripts/bench-bodies $(TARGET)/release/sluicegate $(BODIES)

bench-latency: ## compare latencies at 70 % and 90 % of saturation with nginx and HAProxy, while clients open connections (LATENCY="--turns 9")
	@scripts/setup beside
	@cargo build --quiet --release --package sluicegate
	@cargo build --quiet --profile local --package sluicegate-lab
	@scripts/bench-latency $(TARGET)/release/sluicegate $(TARGET)/local/sluicegate-lab $(LATENCY)

bench-http3: ## compare the CPU time of requests over HTTP/3 with Envoy, and with HTTP/2 (HTTP3="--turns 9")
	@scripts/setup bench-http3
	@cargo build --quiet --release --package sluicegate
	@cargo build --quiet --profile local --package sluicegate-lab --package sluicegate-testkit --bin sluicegate-lab --bin http3-load
	@scripts/bench-http3 $(TARGET)/release/sluicegate $(TARGET)/local/sluicegate-lab $(TARGET)/local/http3-load target/tools/envoy/bin/envoy $(HTTP3)

lab: ## run an experiment with every gateway, as root (LAB="dynamic --duration 30s"; LAB=--help lists the options)
	@scripts/setup peers
	@cargo build --quiet --release --package sluicegate
	@cargo build --quiet --profile local --package sluicegate-lab
	@$(TARGET)/local/sluicegate-lab run $(LAB)

check-lab: ## run every experiment for some seconds with every gateway, and check each report in a browser
	@scripts/setup peers
	@scripts/setup browser
	@cargo build --quiet --package sluicegate --package sluicegate-lab
	@# This test again, now that all gateways are installed.
	@cargo test --quiet --package sluicegate-lab --bin sluicegate-lab gateway
	@scripts/check-lab

floods: ## run each flood against the gateway for 10 s, beside a well-behaved client that must not fail (FLOODS="--seconds 3 --only ping")
	@scripts/setup build
	@cargo build --quiet --release --package sluicegate
	@cargo build --quiet --profile local --package sluicegate-lab --package sluicegate-testkit --bin sluicegate-lab --bin floods
	@$(TARGET)/local/floods --sluicegate $(TARGET)/release/sluicegate $(FLOODS)

soak: ## run all protocols while pods, routes, certificates, policies and processes change, as root: 0 failed requests, flat memory (HOURS=2 SEED=1 REPORT=docs/project/soak.md; SLUICEGATE=FILE for an existing program; test/soak/README.md)
	@scripts/setup cluster
	@test/cluster/cluster build etcd kube-apiserver kubectl
	@$(if $(SLUICEGATE),,$(MAKE) build)
	@SLUICEGATE=$(or $(abspath $(SLUICEGATE)),$(abspath $(TARGET))/release/sluicegate) test/soak/run.py --hours $(HOURS) $(SEED:%=--seed %) $(REPORT:%=--report %) $(SOAK)

check-soak: ## check the verdict of the soak, and run a soak of 75 s with an unoptimised gateway, as root (SLUICEGATE=FILE for an existing program)
	@scripts/setup cluster
	@test/cluster/cluster build etcd kube-apiserver kubectl
	@$(if $(SLUICEGATE),,cargo build --quiet --package sluicegate --package sluicegate-lab)
	@python3 -m unittest discover --start-directory test/soak
	@SLUICEGATE=$(or $(abspath $(SLUICEGATE)),$(abspath $(TARGET))/debug/sluicegate) test/soak/run.py --hours 0.021 --seed 1 $(SOAK)

truths: ## test the load of the lab against servers with known behaviour, on a quiet machine
	@scripts/setup build
	@cargo test --quiet --package sluicegate-lab --test load -- --ignored

peers: ## install the other gateways of the lab: nginx, its Lua module, HAProxy, Envoy, Traefik (Go); skip a gateway that cannot be installed
	@scripts/setup peers

cluster: ## start a Kubernetes cluster on this machine, as root (test/cluster/README.md); the first run builds Kubernetes with Go for some minutes
	@scripts/setup cluster
	@test/cluster/cluster build
	@test/cluster/cluster up

cluster-down: ## stop the cluster
	@test/cluster/cluster down

test-cluster: ## run the tests with real clusters, as root (CLUSTER="test_harness" or "test_harness.Pods.test_..." for a part; SLUICEGATE_IMAGE=FILE for an existing image)
	@scripts/setup cluster
	@scripts/setup image
	@scripts/setup chart
	@test/cluster/cluster build etcd kube-apiserver kube-controller-manager kubectl kube-scheduler kubelet kube-proxy kwok
	@$(if $(findstring cert_manager,$(CLUSTER)),scripts/setup cert-manager)
	@cargo build --quiet --package sluicegate --package sluicegate-lab
	@cd test/cluster && python3 -m unittest --verbose $(CLUSTER:%=tests.%)

test-ingress-nginx: ## compare the gateway with nginx as ingress-nginx configures it, by several hundred requests (SLUICEGATE=FILE for an existing program; CASES="tls prefix" for some cases)
	@scripts/setup ingress-nginx
	@$(if $(SLUICEGATE),,cargo build --quiet --package sluicegate)
	@SLUICEGATE=$(or $(abspath $(SLUICEGATE)),$(abspath $(TARGET))/debug/sluicegate) python3 -m unittest discover --start-directory test/ingress-nginx

image: ## build the container image without an engine: target/image/sluicegate-VERSION.tar, with its symbols beside it (IMAGE=--help lists the options)
	@scripts/setup image
	@scripts/image $(IMAGE)

package: ## package the Helm chart: target/package/sluicegate-VERSION.tgz
	@scripts/setup chart
	@target/tools/helm package charts/sluicegate --destination target/package

release: ## build all files of a release: target/dist (RELEASE="--architectures amd64 --profile local" for a fast part; docs/project/releases.md)
	@scripts/setup release $(RELEASE)
	@scripts/release $(RELEASE)

publish: ## push the image and the chart of target/dist to REGISTRY (ghcr.io/sluicegate)
	@scripts/setup publish
	@scripts/publish $(REGISTRY)

check-release: ## build a release twice, compare all bytes, and test its files, as root (RELEASE="--profile local" for both architectures)
	@scripts/setup release $(or $(RELEASE),--architectures amd64)
	@scripts/setup check-release
	@scripts/check-release $(RELEASE)

manifests: ## write deploy/, the chart's README.md and dashboards, docs/reference/annotations.md and docs/reference/kinds.md, which are generated
	@scripts/setup chart
	@scripts/manifests
	@scripts/dashboards
	@scripts/kinds

check-chart: ## check the Helm chart: lints, all values against the schemas of Kubernetes, and the generated files
	@scripts/setup chart
	@scripts/manifests --check
	@scripts/dashboards --check
	@scripts/kinds --check
	@python3 -m unittest discover --start-directory test/chart

check-dashboard: ## check the types of the dashboard and of the portal, and open every page in a browser (SLUICEGATE=FILE for an existing program)
	@scripts/setup dashboard
	@node $(TARGET)/tools/dashboard/node_modules/typescript/bin/tsc --project test/dashboard/tsconfig.json
	@$(if $(SLUICEGATE),,cargo build --quiet --package sluicegate)
	@SLUICEGATE=$(or $(abspath $(SLUICEGATE)),$(abspath $(TARGET))/debug/sluicegate) python3 -m unittest discover --start-directory test/dashboard

check-operations: ## check the Grafana dashboards and the rules of Prometheus with a real gateway and a real Prometheus (SLUICEGATE=FILE for an existing program)
	@scripts/setup operations
	@$(if $(SLUICEGATE),,cargo build --quiet --package sluicegate)
	@SLUICEGATE=$(or $(abspath $(SLUICEGATE)),$(abspath $(TARGET))/debug/sluicegate) $(TARGET)/tools/operations/bin/python -m unittest discover --start-directory test/operations

check-oidc: ## log in with a browser at a certified OpenID provider (PROVIDER=keycloak: at Keycloak; SLUICEGATE=FILE for an existing program)
	@scripts/setup $(if $(filter keycloak,$(PROVIDER)),keycloak,oidc)
	@$(if $(SLUICEGATE),,cargo build --quiet --package sluicegate)
	@PROVIDER=$(PROVIDER) SLUICEGATE=$(or $(abspath $(SLUICEGATE)),$(abspath $(TARGET))/debug/sluicegate) python3 -m unittest discover --start-directory test/oidc

check-acme: ## order certificates from Pebble, an ACME server for tests (SLUICEGATE=FILE for an existing program)
	@scripts/setup acme
	@$(if $(SLUICEGATE),,cargo build --quiet --package sluicegate)
	@TOOLS=$(abspath $(TARGET))/tools SLUICEGATE=$(or $(abspath $(SLUICEGATE)),$(abspath $(TARGET))/debug/sluicegate) python3 -m unittest discover --start-directory test/acme

check-http3: ## test HTTP/3 with aioquic, another implementation of QUIC and HTTP/3 (SLUICEGATE=FILE for an existing program)
	@scripts/setup http3
	@$(if $(SLUICEGATE),,cargo build --quiet --package sluicegate)
	@SLUICEGATE=$(or $(abspath $(SLUICEGATE)),$(abspath $(TARGET))/debug/sluicegate) $(TARGET)/tools/http3/bin/python -m unittest discover --start-directory test/http3

picture-dashboard: ## draw docs/images/dashboard.png and docs/images/portal.png anew, within two minutes
	@scripts/setup dashboard
	@cargo build --quiet --package sluicegate
	@test/dashboard/picture.py

check-image: ## run the image like Kubernetes, as root: without rights, with low ports, with name resolution
	@scripts/setup image
	@scripts/image --profile dev --output target/image/check.tar
	@SLUICEGATE_IMAGE=target/image/check.tar python3 -m unittest discover --start-directory test/image

docs: ## build the documentation site with mdBook, and check its links: target/docs/index.html
	@scripts/setup site
	@scripts/docs

check-docs: ## run the commands of every page of the documentation, in a cluster or on a machine without a cluster, as root (PAGES="docs/start/laptop.md" for a part)
	@scripts/setup cluster
	@scripts/setup image
	@scripts/setup chart
	@scripts/setup docs
	@test/cluster/cluster build etcd kube-apiserver kube-controller-manager kubectl kube-scheduler kubelet kube-proxy
	@$(if $(SLUICEGATE),,cargo build --quiet --package sluicegate --package sluicegate-lab)
	@python3 -m unittest discover --start-directory test/docs
	@test/docs/run $(PAGES)

clean: ## remove all build results
	@cargo clean --quiet
	@rm -rf fuzz/target
