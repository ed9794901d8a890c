# Conveniences. Everything here is a plain go command; nothing needs make.

BIN     ?= bin
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo v0.1.0-dev)
LDFLAGS ?= -s -w -X portico.dev/internal/version.Portico=$(VERSION)

.PHONY: all build test race lint generate bench ci clean

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

lint:
	gofmt -l $$(git ls-files '*.go')
	go vet ./...
	go tool staticcheck ./...

generate:
	go generate ./...

bench:
	go test -run '^$$' -bench . -benchmem ./...

# What the continuous integration runs.
ci:
	.ci/run

clean:
	rm -rf $(BIN)
