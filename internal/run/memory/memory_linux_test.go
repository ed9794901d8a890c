package memory

import (
	"encoding/json"
	"go/parser"
	"go/token"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"
)

func TestReleasedPagesAreReloaded(t *testing.T) {
	fewer := 0 // touching one page maps sixteen, so not every attempt reduces the resident pages
	for range 3 {
		before := residentFile(t)
		if err := ReleaseStartPages(); err != nil {
			t.Fatal(err)
		}
		if after := residentFile(t); after < before {
			fewer++
		} else {
			t.Logf("%d KiB of files were resident, and %d are afterwards", before, after)
		}
		// The kernel reloads the released pages from the program.
		var read map[string]int
		if err := json.Unmarshal([]byte(`{"a":1}`), &read); err != nil || read["a"] != 1 {
			t.Fatalf("Unmarshal after the release = %v, %v; want a: 1", read, err)
		}
		if _, err := parser.ParseFile(token.NewFileSet(), "memory_linux_test.go", nil, 0); err != nil {
			t.Fatal(err)
		}
	}
	if fewer == 0 {
		t.Error("no attempt reduced the resident pages, want at least one")
	}
}

// residentFile is how many KiB of files are mapped and resident.
func residentFile(t *testing.T) int {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(status), "RssFile:")
	line, _, _ := strings.Cut(after, "\n")
	kib, err := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(line, "kB")))
	if err != nil {
		t.Fatal(err)
	}
	return kib
}

func TestMachineMemoryIsRead(t *testing.T) {
	if got := available(); got < 1<<20 || got > math.MaxInt64 {
		t.Errorf("memory of the machine = %d bytes, want at least 1 MiB", got)
	}
}
