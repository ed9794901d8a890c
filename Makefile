# Conveniences. Everything here is a plain go command; nothing needs make.

BIN     ?= bin
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo v0.1.0-dev)
LDFLAGS ?= -s -w -X portico.dev/internal/version.Portico=$(VERSION)

.PHONY: all build test race lint generate bench bench-incumbent microbench ci clean upstream-conformance incumbent first-start-kills record-rights mutants fuzz library-engines library-engines-reduced attacks

all: build

# Small, reproducible binaries.
build:
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN)/ ./cmd/...

# What README.md says.
test:
	go test -timeout 30m ./...

# With the race detector, everything: takes long when cold.
race:
	go test -race -timeout 60m ./...

# What README.md says, with the library's HTTP on both sides (docs/http-engines.md).
library-engines:
	PORTICO_TEST_HTTP_ENGINE=library PORTICO_TEST_BACKEND_ENGINE=library go test -timeout 60m ./...

# The part of it that the continuous integration runs.
library-engines-reduced:
	.ci/library-engines

lint:
	gofmt -l $$(git ls-files '*.go')
	go vet ./...
	go tool staticcheck ./...

generate:
	go generate ./...

# The record in docs/bench: the proxied path beside a bare proxy, scale, and the local groups beside their library. Under
# ten minutes; make it on a machine that does nothing else.
bench:
	go run ./e2e/bench

# docs/attacks.md: every published class of attack on HTTP, on both engines, with an innocent client beside it. A quarter of an
# hour, on a machine that does nothing else; needs 12,000 open files (ulimit -n).
attacks:
	go test ./e2e/attacks -count 1 -timeout 1h -v -args -whole -write

# The record in docs/bench of what a real kube-apiserver costs beside the front door: under ten minutes, on a machine that does
# nothing else, with 6 GiB of memory and 110 inotify instances to give (fs.inotify.max_user_instances). The programs are those
# that the tests build, of what e2e/incumbent pins; building them the first time takes minutes.
bench-incumbent:
	go run ./e2e/programs/build -to $(BIN) kube-apiserver kube-controller-manager
	go run ./e2e/bench -kube-apiserver $(BIN)/kube-apiserver -kube-controller-manager $(BIN)/kube-controller-manager

# Every room by itself.
microbench:
	go test -run '^$$' -bench . -benchmem ./internal/...

# Every fuzz target for a while, one after the other, until one finds something (docs/fuzzing.md): FUZZTIME=10m for longer,
# RUN=Differential for some of them.
FUZZTIME ?= 60s
fuzz:
	go run ./e2e/fuzz -time $(FUZZTIME) -run '$(RUN)'

# What the continuous integration runs.
ci:
	.ci/run

# Kubernetes' own specs that need no node, against this front door (docs/upstream-conformance.md). The first build took
# nine minutes on two busy cores, so nothing else runs this.
upstream-conformance: build
	cd e2e/kubectl && v=$$(go list -m -f '{{.Version}}' k8s.io/kubectl | sed s/v0/v1/) && go build \
		-ldflags "-s -w -X k8s.io/component-base/version.gitVersion=$$v" -o $(abspath $(BIN))/kubectl .
	cd e2e/upstream && go test -vet=off -count 1 -timeout 3h . -args -portico.aggregator=$(abspath $(BIN))/aggregator \
		-kubectl-path=$(abspath $(BIN))/kubectl -dump-logs-on-failure=false -portico.record=result.yaml

# Our programs beside and behind a real kube-apiserver (docs/incumbent.md); writes e2e/behind/result.yaml when all is as it
# should be. Half an hour, and ten minutes more the first time.
incumbent:
	go test -tags incumbent -count 1 -timeout 2h -v ./e2e/behind -args -update

# Ends a first start at every system call that changes its data directory, by SIGKILL and by SIGTERM, and starts again
# (docs/storage.md): some 900 starts, an hour on two cores. PART=2/5 does the second fifth.
first-start-kills:
	go test ./e2e/durability -count 1 -timeout 3h -v -run TestAFirstStartMayBeEndedAtAnySystemCall -args -first-start-points 0 -first-start-part $(or $(PART),1/1)

# The models of HTTP/2's flow control and stream states must find the deadlocks and leaks that other implementations had, put into
# ours one at a time (internal/http2/mutants_test.go): five minutes on two busy cores.
mutants:
	go test ./internal/http2 -count 1 -timeout 30m -v -run TestMutants -args -mutants

# What a real kube-apiserver answers users who are no administrators (docs/differential.md); writes
# e2e/differential/rights/testdata/recorded.json.gz. Five minutes, and ten more the first time, when the programs are built.
record-rights:
	go test -tags incumbent -count 1 -timeout 1h -v -run TestRecord ./e2e/differential/rights -args -write

clean:
	rm -rf $(BIN)
