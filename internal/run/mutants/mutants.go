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
	"slices"
	"strings"
	"testing"
	"time"
)

var run = flag.Bool("mutants", false, "run the tests against mutants of the package")

// Mutant is a defect that replaces the only occurrence of Old in File with New. File is relative to the directory of the test.
type Mutant struct{ Name, File, Old, New string }

// New returns a Mutant.
func New(name, file, before, after string) Mutant {
	return Mutant{Name: name, File: file, Old: before, New: after}
}

// Options configure how the tests run. The zero value runs all tests of the package for at most two minutes.
type Options struct {
	// Flags are arguments of go test.
	Flags []string
	// Timeout limits the tests of one mutant. Default two minutes.
	Timeout time.Duration
	// Found is called with the output of the failed tests. May be nil.
	Found func(t *testing.T, output string)
}

// Test checks that the mutants apply. With -mutants it also checks that the tests of the package in the working directory
// detect each of them. The test that calls it must be named TestMutants.
func Test(t *testing.T, all []Mutant) { TestWith(t, all, Options{}) }

// TestWith is like Test with options.
func TestWith(t *testing.T, all []Mutant, o Options) {
	if o.Timeout == 0 {
		o.Timeout = 2 * time.Minute
	}
	for _, m := range all {
		t.Run(m.Name, func(t *testing.T) {
			source, err := os.ReadFile(m.File)
			if err != nil {
				t.Fatal(err)
			}
			if n := bytes.Count(source, []byte(m.Old)); n != 1 {
				t.Fatalf("%s contains the text %d times, want once: %s", m.File, n, m.Old)
			}
			if *run {
				m.test(t, source, o)
			}
		})
	}
}

// test runs the tests with the defect.
func (m Mutant) test(t *testing.T, source []byte, o Options) {
	overlay := m.overlay(t, source)
	building := 3 * time.Minute
	ctx, cancel := context.WithTimeout(t.Context(), o.Timeout+building)
	defer cancel()
	arguments := slices.Concat([]string{"test", "-count", "1", "-timeout", o.Timeout.String(), "-vet", "off", "-overlay", overlay, "-skip", "^TestMutants$", "."}, o.Flags)
	output, err := exec.CommandContext(ctx, "go", arguments...).CombinedOutput()
	text := string(output)
	detected := slices.ContainsFunc([]string{"--- FAIL", "panic: deadlock", "test timed out", "fatal error: concurrent map"}, func(sign string) bool {
		return strings.Contains(text, sign)
	})
	switch {
	case err == nil:
		t.Error("the tests do not find it")
	case !detected:
		t.Errorf("the tests fail for another reason: %v\n%.2000s", err, text)
	case o.Found != nil:
		o.Found(t, text)
	}
}

// overlay writes the file with the defect, and returns the file for go's flag -overlay.
func (m Mutant) overlay(t *testing.T, source []byte) string {
	t.Helper()
	at, err := filepath.Abs(m.File)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	mutant, overlay := filepath.Join(dir, filepath.Base(m.File)), filepath.Join(dir, "overlay.json")
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{at: mutant}})
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{mutant: bytes.Replace(source, []byte(m.Old), []byte(m.New), 1), overlay: replace} {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return overlay
}
