# Conveniences. Everything here is a plain go command or a script in .ci; nothing needs make. `make help` lists the targets.

BIN     ?= bin
PREFIX  ?= /usr/local
HOURS   ?= 1
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo v0.1.0)
LDFLAGS ?= -s -w -X portico.dev/internal/version.Portico=$(VERSION)

.PHONY: all help dev recording quick golden build install release test release-checks race lint generate bench bench-incumbent bench-gateway bench-compare bench-nodes microbench ci stress simulate clean upstream-conformance upstream-specs incumbent first-start-kills record-kinds record-rights mutants fuzz library-engines library-engines-reduced attacks

# The same as build.
all: build

# Lists the targets.
help:
	@awk '/^#/ { if (text == "") text = substr($$0, 3); next } \
		/^[a-z][a-z-]*:/ { name = $$1; sub(/:.*/, "", name); printf "%-24s %s\n", name, text } { text = "" }' Makefile

# Unit tests of what differs from main and of what imports it, without the slow ones: a minute.
quick:
	.ci/quick

# Builds the front door, which takes minutes the first time and counts the packages, and runs it to be tried.
dev:
	@BIN=$(BIN) .ci/dev

# Makes docs/try.svg of README.md anew: runs the commands, and draws what they print.
recording:
	go run ./e2e/docs/recording -to docs/try.svg

# Builds small, reproducible programs in bin, which takes minutes the first time and counts the packages.
build:
	@CGO_ENABLED=0 .ci/build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN)/ ./cmd/aggregator ./cmd/extserver ./cmd/kubectl-portico

# Builds the programs and copies them to PREFIX/bin: make install PREFIX=$$HOME/.local.
install: build
	install -d '$(DESTDIR)$(PREFIX)/bin'
	install -m 755 $(BIN)/aggregator $(BIN)/extserver $(BIN)/kubectl-portico deploy/kubectl/kubectl_complete-portico '$(DESTDIR)$(PREFIX)/bin'

# Builds the files of a release into dist, which must be empty (docs/releasing.md): make release VERSION=v0.2.0.
release:
	go run ./internal/tools/release -version $(VERSION) -out dist $(RELEASE_FLAGS)

# Runs the test command of README.md: unit tests, and some stories with a real kubectl.
test:
	go run ./e2e/programs/build
	go test -short -p 3 -timeout 30m ./e2e ./cmd/... ./internal/... ./pkg/...

# Runs what a release must pass besides `make ci`: recorded comparisons, other people's software, fuzzing, the library's HTTP.
release-checks:
	.ci/release-checks

# Runs all tests with the race detector, which takes long when cold.
race:
	go test -race -timeout 60m work

# Runs all tests with the library's HTTP on both sides (internal/httpengine/README.md).
library-engines:
	PORTICO_TEST_HTTP_ENGINE=library PORTICO_TEST_BACKEND_ENGINE=library go test -timeout 60m work

# Runs the part of library-engines that .ci/release-checks runs.
library-engines-reduced:
	.ci/library-engines

# Compares what is served with golden files and with what was recorded of kube-apiserver (e2e/differential/README.md).
# GOLDEN=-update writes the golden files anew; what was recorded of kube-apiserver is made by record-rights and incumbent.
golden:
	go test -count 1 ./internal/coreapi/kinds ./internal/tools/doctor ./internal/discovery ./internal/httpengine -args $(GOLDEN)
	go test -count 1 -timeout 30m ./e2e/differential/... ./e2e/recorded

# Runs gofmt, vet and staticcheck.
lint:
	gofmt -l $$(git ls-files '*.go')
	go vet -tags incumbent,prometheus,chromium,kubelet work
	go tool staticcheck -tags incumbent,prometheus,chromium,kubelet work

# Makes generated files anew; .ci/run fails when they are not current.
generate:
	go generate work

# Makes the figures of e2e/bench/results anew: the proxied path beside a bare proxy, scale, local groups.
# Under ten minutes, on a machine that does nothing else.
bench:
	go run ./e2e/bench

# Measures again what a release must not make worse, and fails if a figure is worse than e2e/bench/results by more than its noise.
# Ten minutes, on a machine that does nothing else. It changes no file of the tree.
bench-compare:
	dir=$$(mktemp -d) && trap 'rm -rf "$$dir"' EXIT && go run ./e2e/bench -out "$$dir" proxied scale local && go run ./e2e/bench compare "$$dir"

# Makes e2e/attacks/README.md anew: published attacks on HTTP, on both engines, with an innocent client beside them.
# A quarter of an hour, on a machine that does nothing else; needs 12,000 open files (ulimit -n).
attacks:
	go test ./e2e/attacks -count 1 -timeout 1h -v -args -whole -write

# Makes the figures of e2e/bench/results beside a real kube-apiserver anew.
# Under ten minutes, on a machine that does nothing else, with 6 GiB of memory and 110 inotify instances to give (fs.inotify.max_user_instances). The programs are those
# that the tests build, of what e2e/incumbent pins; building them the first time takes minutes.
bench-incumbent:
	go run ./e2e/programs/build -to $(BIN) kube-apiserver kube-controller-manager
	go run ./e2e/bench -kube-apiserver $(BIN)/kube-apiserver -kube-controller-manager $(BIN)/kube-controller-manager incumbent

# Makes the figures of e2e/bench/results about a gateway behind a real kube-apiserver anew.
# Four minutes, on a machine that does nothing else, once the programs are built.
bench-gateway:
	go run ./e2e/programs/build -to $(BIN) kube-apiserver kube-controller-manager
	go run ./e2e/bench -kube-apiserver $(BIN)/kube-apiserver -kube-controller-manager $(BIN)/kube-controller-manager gateway

# Makes the figures of e2e/bench/results about a cluster of many simulated Nodes, beside a real kube-apiserver, anew.
# Ten to twenty minutes, on a machine that does nothing else, with 8 GiB of memory to give. NODES=100 for a smaller one.
bench-nodes:
	go run ./e2e/programs/build -to $(BIN) kube-apiserver kube-controller-manager kube-scheduler kwok
	go run ./e2e/bench -kube-apiserver $(BIN)/kube-apiserver -kube-controller-manager $(BIN)/kube-controller-manager \
		-kube-scheduler $(BIN)/kube-scheduler -kwok $(BIN)/kwok $(if $(NODES),-nodes $(NODES)) nodes

# Runs histories of faults against simulated time and network that no test has run before: make simulate HOURS=10 (docs/simulation.md).
simulate:
	go test ./internal/simulation -count 1 -timeout 0 -run TestHistories -v -for $(HOURS)h

# Runs the benchmarks of all packages.
microbench:
	go test -run '^$$' -bench . -benchmem ./internal/... ./pkg/...

FUZZTIME ?= 60s
# Runs every fuzz target for a while, until one finds something (e2e/fuzz/README.md).
# FUZZTIME=10m for longer, RUN=Differential for some of them.
fuzz:
	go run ./e2e/fuzz -time $(FUZZTIME) -run '$(RUN)'

# Runs what the continuous integration runs.
ci:
	.ci/run

# Runs the tests of `make ci` ten times beside four busy loops, and lists what failed: hours on two cores.
stress:
	.ci/stress

# Runs Kubernetes' own specs that need no node against the front door (e2e/upstream/README.md).
# The first build took nine minutes on two busy cores, so nothing else runs this.
upstream-conformance: build
	go run ./e2e/programs/build -to $(BIN) kubectl
	cd e2e/upstream && GOWORK=off go test -vet=off -count 1 -timeout 3h . -args -portico.aggregator=$(abspath $(BIN))/aggregator \
		-kubectl-path=$(abspath $(BIN))/kubectl -dump-logs-on-failure=false -portico.record=result.yaml

# Runs Kubernetes' own specs on clusters with simulated Nodes, of a real kube-apiserver and of the front door (e2e/specs/README.md).
# An hour, and half an hour more the first time, when the programs are built. What has results is not run again.
upstream-specs:
	go run ./e2e/programs/build -to $(BIN) aggregator kube-apiserver kube-controller-manager kube-scheduler kwok kubectl
	cd e2e/upstream && GOWORK=off go test -vet=off -c -o $(abspath $(BIN))/upstream.test . && GOWORK=off go build -o $(abspath $(BIN))/ginkgo github.com/onsi/ginkgo/v2/ginkgo
	go run ./e2e/specs -programs $(BIN) -server kube-apiserver
	go run ./e2e/specs -programs $(BIN) -server portico
	go run ./e2e/specs -programs $(BIN) -server cluster -passed e2e/specs/kube-apiserver.jsonl
	go run ./e2e/specs -write e2e/specs/README.md

# Runs our programs beside and behind a real kube-apiserver (docs/incumbent.md).
# Writes e2e/behind/result.yaml when all is as it should be. Half an hour, and ten minutes more the first time.
incumbent:
	go test -tags incumbent -count 1 -timeout 2h -v ./e2e/behind -args -update
	go test -tags incumbent -count 1 -timeout 1h -v -run KubeAPIServer ./e2e/durability -args -disruption-time 10s

# Kills a first start at every system call that changes its data directory, and starts again.
# By SIGKILL and by SIGTERM (docs/storage.md): some 900 starts, an hour on two cores. PART=2/5 does the second fifth.
first-start-kills:
	go test ./e2e/durability -count 1 -timeout 3h -v -run TestAFirstStartMayBeEndedAtAnySystemCall -args -first-start-points 0 -first-start-part $(or $(PART),1/1)

# Checks that the models of HTTP/2 find the deadlocks and leaks that other implementations had.
# They are put into ours one at a time (internal/httpengine/portico/http2/mutants_test.go): five minutes on two busy cores.
mutants:
	go test ./internal/httpengine/portico/http2 -count 1 -timeout 30m -v -run TestMutants -args -mutants
	go test ./internal/routes/sharedwatch -count 1 -timeout 10m -v -run TestMutants -args -mutants
	go test ./internal/routes/merge -count 1 -timeout 20m -v -run TestMutants -args -mutants

# Records what a real kube-apiserver answers users who are no administrators (e2e/differential/README.md).
# Writes e2e/differential/rights/testdata/recorded.json.zst. Five minutes, and ten more the first time, when the programs are built.
record-rights:
	go test -tags incumbent -count 1 -timeout 1h -v -run TestRecord ./e2e/differential/rights -args -write

# Records what a real kube-apiserver answers about kinds that have no recorded answers yet (docs/compatibility.md).
# Writes e2e/differential/kinds/testdata/recorded.json.zst.
record-kinds:
	go test -tags incumbent -count 1 -timeout 1h -v -run 'TestRecord$$' ./e2e/differential/kinds -args -write -missing

# Removes bin.
clean:
	rm -rf $(BIN)
