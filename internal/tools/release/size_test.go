package main

import (
	"bytes"
	"compress/gzip"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

var building = flag.Bool("build", false, "build programs as for a release, which compiles every package again: minutes")

func skipUnlessBuilding(t *testing.T) {
	t.Helper()
	if !*building {
		t.Skip("it builds programs as for a release: only with -build, which .ci/release-checks sets")
	}
}

// Limits of a release's programs, uncompressed and compressed. gRPC reaches html/template, and the embedded etcd reaches
// go-cmp. Both look methods up by name, so the linker keeps every method of each linked type in aggregator. If it grows, look
// first for the code that links kubernetes.NewForConfig or informers.NewSharedInformerFactory (internal/clients).
var sizes = []struct {
	program         string
	largest, packed int // bytes; packed 0 for any
}{
	{"aggregator", 104_500_000, 0},
	{"extserver", 25_000_000, 0},
	{"kubectl-portico", 25_000_000, 9_500_000},
}

func TestReleaseProgramsStayBelowSizeLimit(t *testing.T) {
	skipUnlessBuilding(t)
	for _, size := range sizes {
		binary := filepath.Join(t.TempDir(), size.program)
		build := exec.Command("go", "build", "-buildvcs=false", "-trimpath", "-ldflags", "-s -w", "-o", binary, "./cmd/"+size.program)
		build.Dir, build.Env = "../../..", append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("go build failed: %v: %s, want no error", err, out)
		}
		program, err := os.ReadFile(binary)
		if err != nil {
			t.Fatal(err)
		}
		var packed bytes.Buffer
		z, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := z.Write(program); err != nil {
			t.Fatal(err)
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %.1f MB, compressed %.1f MB", size.program, float64(len(program))/1e6, float64(packed.Len())/1e6)
		if len(program) >= size.largest {
			t.Errorf("%s has %d bytes, want less than %d", size.program, len(program), size.largest)
		}
		if size.packed != 0 && packed.Len() >= size.packed {
			t.Errorf("%s has %d bytes compressed, want less than %d", size.program, packed.Len(), size.packed)
		}
	}
}
