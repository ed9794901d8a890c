// Package mutants runs the tests of a package against defects that are inserted one at a time. Only tests import it.
package mutants

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var run = flag.Bool("mutants", false, "run the tests against mutants of the package")

// Mutant is a defect that replaces the only occurrence of Old in File with New.
type Mutant struct{ Name, File, Old, New string }

// New returns a Mutant.
func New(name, file, before, after string) Mutant {
	return Mutant{Name: name, File: file, Old: before, New: after}
}

// Test checks that the mutants apply. With -mutants it also checks that the tests of the package in the working directory
// detect each of them. The test that calls it must be named TestMutants.
func Test(t *testing.T, all []Mutant) {
	for _, m := range all {
		t.Run(m.Name, func(t *testing.T) {
			source, err := os.ReadFile(m.File)
			if err != nil {
				t.Fatal(err)
			}
			if bytes.Count(source, []byte(m.Old)) != 1 {
				t.Fatalf("%s does not have it once: %s", m.File, m.Old)
			}
			if !*run {
				return
			}
			dir := t.TempDir()
			at, err := filepath.Abs(m.File)
			if err != nil {
				t.Fatal(err)
			}
			mutant, overlay := filepath.Join(dir, m.File), filepath.Join(dir, "overlay.json")
			replace, err := json.Marshal(map[string]any{"Replace": map[string]string{at: mutant}})
			if err != nil {
				t.Fatal(err)
			}
			for name, data := range map[string][]byte{mutant: bytes.Replace(source, []byte(m.Old), []byte(m.New), 1), overlay: replace} {
				if err := os.WriteFile(name, data, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			out, err := exec.CommandContext(ctx, "go", "test", "-count", "1", "-timeout", "2m", "-vet", "off", "-overlay", overlay, "-skip", "^TestMutants$", ".").CombinedOutput()
			switch {
			case err == nil:
				t.Error("the tests do not find it")
			case !strings.Contains(string(out), "--- FAIL") && !strings.Contains(string(out), "panic: deadlock") && !strings.Contains(string(out), "test timed out"):
				t.Errorf("the tests fail for another reason: %v\n%.2000s", err, out)
			}
		})
	}
}
