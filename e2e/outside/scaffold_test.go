package outside

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// The files of "extserver init" compile, and their tests pass.
func TestTheScaffoldBuilds(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	module := filepath.Join(t.TempDir(), "boxes")
	run := func(dir, program string, args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), program, args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s %v = %v\n%s\nwant no error", program, args, err, out)
		}
	}
	run(root, "go", "run", "./cmd/extserver", "init", module, "--group=boxes.example.com", "--kind=Box")
	// The sums of this module are sufficient, so that no further module is downloaded.
	sums, err := os.ReadFile("go.sum")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(module, "go.sum"), sums, 0o600); err != nil {
		t.Fatal(err)
	}
	run(module, "go", "mod", "tidy")
	run(module, "go", "vet", "./...")
	run(module, "go", "test", "./...")
	run(module, "go", "run", ".", "--print-manifests")
}
