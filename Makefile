# Everything runs with Go, make and git alone. Where there is a C compiler, the
# tests run with the race detector.

SHELL       := bash
.SHELLFLAGS := -e -o pipefail -c

GO      ?= go
# A number of runs: at the end of a time Go before 1.27 now and then fails with
# "context deadline exceeded" (go.dev/issue/75804).
FUZZTIME ?= 50000x

RACE := $(shell command -v gcc >/dev/null 2>&1 && [ "$$($(GO) env CGO_ENABLED)" = 1 ] && echo -race)

.PHONY: help
help: ## list the targets
	@sed -nE 's/^([a-z0-9-]+):.*## (.*)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 22

# What go build -v prints, as progress: every 40th package, and all else.
PROGRESS = awk '/[: ]/ {print; next} ++n % 40 == 0 {print "  " n " packages compiled"; fflush()}'

.PHONY: build
build: ## build the driver, contractd and cosi-sanity into bin/
	@echo "Building the driver (about a minute the first time) ..."
	@CGO_ENABLED=0 $(GO) build -v -tags grpcnotrace -trimpath -o bin/ ./cmd/contract-cosi-driver 2>&1 | $(PROGRESS)
	@cd cmd/cosi-sanity && CGO_ENABLED=0 $(GO) build -v -trimpath -o ../../bin/cosi-sanity . 2>&1 | $(PROGRESS)
	@echo "Building contractd with its S3 server (about two minutes the first time) ..."
	@cd cmd/contractd && CGO_ENABLED=0 $(GO) build -v -trimpath -o ../../bin/contractd . 2>&1 | $(PROGRESS)

bin/grpcurl: test/tools/go.mod
	@echo "Building grpcurl (about half a minute the first time) ..."
	@CGO_ENABLED=0 $(GO) build -v -modfile=test/tools/go.mod -o $@ github.com/fullstorydev/grpcurl/cmd/grpcurl 2>&1 | $(PROGRESS)

BACKEND ?= contractapi

.PHONY: demo
demo: build ## walk the main job on this machine, step by step; with BACKEND=iam, rgw or versitygw at another service
	@$(GO) build -o bin/demo ./test/demo && bin/demo -backend $(BACKEND)

.PHONY: run
run: build bin/grpcurl ## leave contractd and the driver running, with lines to try
	@$(GO) build -o bin/demo ./test/demo && bin/demo -keep

.PHONY: test
test: bin/grpcurl ## run all tests
	@echo "Testing the driver against contractd$(if $(RACE),, (no C compiler: without the race detector)) ..."
	$(GO) test $(RACE) -timeout 20m $$($(GO) list ./... | grep -v /test/backends)
	cd cmd/contractd && $(GO) test $(RACE) -timeout 10m ./...
	cd cmd/cosi-sanity && $(GO) test $(RACE) -timeout 10m ./...
	@echo "Testing what is deployed (two minutes more the first time) ..."
	cd test/deploy && $(GO) test $(RACE) -timeout 20m ./...
	@echo "Testing the alerts (a minute more the first time) ..."
	cd test/alerts && $(GO) test ./...

.PHONY: image
image: ## build the container images of the driver and contractd, with docker, podman or buildah
	@bash deploy/image.sh

.PHONY: sbom
sbom: ## write software bills of materials of the programs and images into bin/sbom
	@DIST=bin/sbom ARCHS=$$($(GO) env GOARCH) bash deploy/release.sh sbom && ls bin/sbom/*.json

.PHONY: release
release: ## build, pack and sign a release into bin/release, with VERSION=... and KEY=FILE of minisign
	@KEY='$(KEY)' bash deploy/release.sh

.PHONY: test-release
test-release: ## make a release with a throw-away key, and verify it
	@bash test/release.sh

.PHONY: e2e
e2e: build ## run the driver in a cluster, with manifests in and Secrets out; RUN=name chooses scenarios
	@bash test/e2e/run.sh $(if $(RUN),-test.run 'Scenarios/$(RUN)')

.PHONY: node
node: ## run the driver on a Kubernetes node with kubelet, containerd and helm; as root, installs the Debian packages it needs; RUN=pattern chooses scenarios, LONG=1 adds a lost leader
	@IF_POSSIBLE='$(IF_POSSIBLE)' bash test/node/run.sh $(if $(LONG),-long)

SOAK ?= 20m

.PHONY: soak
soak: build ## run whole what CI runs short, for about two hours: random walks, interleavings, fuzzing, the suite 20 times, 200 keys renewed for SOAK (20m) in each version
	$(GO) test -count=1 -timeout 1h ./pkg/lease -runs 100
	$(GO) test -count=1 -timeout 2h ./pkg/provisioner -seeds 100
	cd cmd/cosi-sanity && $(GO) test -count=20 -timeout 3h ./sanity
	bash test/e2e/run.sh -test.run 'Scenarios/(keys_renewed|a_random_walk)' -renew $(SOAK) -renewing 200 -slack 5m -steps 300
	$(MAKE) fuzz FUZZTIME=2m

CEPH = ceph-mon ceph-osd radosgw ceph-common

.PHONY: test-backends
test-backends: ## run the tests at real storage services; as root, installs the Debian packages they need
	@if [ "$$(id -u)" = 0 ] && ! dpkg -s $(CEPH) >/dev/null 2>&1; then \
		echo "Installing $(CEPH) ..."; \
		apt-get update -qq && apt-get install -qq -y --no-install-recommends $(CEPH) >/dev/null; \
	fi
	$(GO) test $(RACE) -timeout 30m ./test/backends/...

.PHONY: fuzz
fuzz: ## fuzz whatever parses, and the server with random messages, FUZZTIME (50000x, or a time such as 1m) each
	@$(GO) list -f '{{.ImportPath}} {{.Dir}}' ./pkg/... ./test/integration | while read pkg dir; do \
		for f in $$(cat $$dir/*_test.go 2>/dev/null | sed -nE 's/^func (Fuzz[A-Za-z0-9]+)\(.*/\1/p'); do \
			echo "$$pkg $$f"; $(GO) test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 100x $$pkg || exit 1; \
		done; done

ALL_BACKENDS = contractapi,iam,rgw,versitygw
ONE_BACKEND = $(if $(filter command,$(origin BACKEND)),-backend $(BACKEND),-backend $(ALL_BACKENDS) -out test/bench -within 10m)

.PHONY: bench
bench: build ## measure the driver beside the fewest calls and its own, in a cluster too with KUBECONFIG_FILE=...; writes test/bench/RESULTS.md and .json, or prints with BACKEND=..., beside another driver with AGAINST=file
	@$(GO) build -o bin/bench ./test/bench && bin/bench $(ONE_BACKEND) $(if $(AGAINST),-against $(AGAINST)) $(if $(KUBECONFIG_FILE),-kubeconfig $(KUBECONFIG_FILE))

.PHONY: bench-check
bench-check: build ## fail if the driver is slower than that of the commit before, by more than a tenth and the noise
	@bash test/bench/check.sh

.PHONY: scale
scale: build ## measure a driver with 10,000 buckets and 20,000 keys; with KUBECONFIG_FILE=... its journal is in Secrets, with PARTS=start,cycle,list,drift,rewrite only these parts
	@$(GO) run ./test/bench/scale $(if $(PARTS),-parts $(PARTS)) $(if $(KUBECONFIG_FILE),-kubeconfig $(KUBECONFIG_FILE))

OBJECTS ?= 2000

.PHONY: bench-empty
bench-empty: build ## measure the deletion of a full bucket beside a bare loop at each service, with OBJECTS (2000) of 3 versions; with SERVICES=contractapi,rgw only at these
	@$(GO) run ./test/bench/empty -objects $(OBJECTS) $(if $(SERVICES),-services $(SERVICES))

.PHONY: bench-fair
bench-fair: build ## measure the calls of other tenants while one has 5,000 claims at a service that takes 10 s for each call
	@$(GO) run ./test/bench/fair

.PHONY: generate
generate: ## write all that is generated, without a network
	@for module in . cmd/contractd cmd/cosi-sanity test/deploy; do $(GO) -C $$module generate ./... | sed '/^ok/d'; done

.PHONY: verify
verify: ## prove that nothing generated is stale and that the code is tidy
	@bash test/verify.sh
