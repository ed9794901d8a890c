package thirdparty

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"portico.dev/e2e/compat"
	"portico.dev/e2e/programs"
	"portico.dev/internal/run/freeport"
)

var (
	directory = flag.String("programs", "", "directory of built programs; default they are built")
	update    = flag.Bool("update", false, "write docs/compatibility.md")
)

var (
	// binaries is the directory of the programs, and logs the directory of all logs. Both are set before any test runs.
	binaries, logs string
	ports          freeport.Ports
	book           = compat.Open("Extension servers", sampleAPIServer, metricsServer, customMetrics, prometheusAdapter, upgrader)
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	flag.Parse()
	dir, err := os.MkdirTemp("", "portico-thirdparty-")
	if err != nil {
		return failed(err)
	}
	binaries, logs = *directory, filepath.Join(dir, "logs")
	if err := os.Mkdir(logs, 0o755); err != nil {
		return failed(err)
	}
	if binaries == "" {
		binaries = filepath.Join(dir, "bin")
		if err := build(); err != nil {
			return failed(err)
		}
	}
	code := m.Run()
	if code != 0 {
		fmt.Fprintf(os.Stderr, "the logs of all programs are kept in %s\n", logs)
		_ = os.RemoveAll(filepath.Join(dir, "bin"))
		return code
	}
	if err := os.RemoveAll(dir); err != nil {
		return failed(err)
	}
	if err := book.Close(*update); err != nil {
		return failed(err)
	}
	return 0
}

func build() error {
	if err := os.Mkdir(binaries, 0o755); err != nil {
		return err
	}
	return programs.Build(binaries, append(tagged, "aggregator", "extserver", "kubectl", "prometheus", "kube-controller-manager", "kube-scheduler",
		"sample-apiserver", "metrics-server", "test-adapter", "prometheus-adapter", "keda-adapter", "keda-operator", "h2spec", "kwok", "konnectivity-server", "konnectivity-agent")...)
}

func failed(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// eventually calls try until it returns no error.
func eventually(t *testing.T, what string, try func() error) {
	t.Helper()
	began := time.Now()
	if err := programs.Poll(nil, try); err != nil {
		t.Fatalf("condition not met in time: %s: %v, want no error", what, err)
	}
	t.Logf("%s: after %s", what, time.Since(began).Round(time.Millisecond))
}

// freePort returns a free port of 127.0.0.1. Servers keep it over a restart, because Services name it.
func freePort(t *testing.T) int {
	t.Helper()
	return must[int](t)(ports.Free())
}

func must[T any](t *testing.T) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
