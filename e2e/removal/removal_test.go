// Package removal builds the front door without Portico's own HTTP engine, and runs it.
package removal

import (
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"portico.dev/e2e/programs"
)

// overlay is the input of the -overlay flag of the go command: an empty replacement deletes a file.
type overlay struct{ Replace map[string]string }

// withoutPortico applies the two steps of internal/httpengine/README.md.
func withoutPortico(t *testing.T, root string) overlay {
	t.Helper()
	o := overlay{map[string]string{}}
	directory := filepath.Join(root, "internal", "httpengine", "portico")
	if err := filepath.WalkDir(directory, func(path string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(path, ".go") {
			o.Replace[path] = ""
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if len(o.Replace) == 0 {
		t.Fatalf("no Go file below %s, want some", directory)
	}
	selection := filepath.Join(root, "internal", "httpengine", "engines.go")
	text, err := os.ReadFile(selection)
	if err != nil {
		t.Fatal(err)
	}
	var kept strings.Builder
	for line := range strings.Lines(string(text)) {
		if !strings.Contains(line, `httpengine/portico"`) && !strings.HasPrefix(line, "const Portico") && !strings.Contains(line, "portico.Engine{}") {
			kept.WriteString(line)
		}
	}
	replacement := filepath.Join(t.TempDir(), "engines.go")
	if err := os.WriteFile(replacement, []byte(kept.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	o.Replace[selection] = replacement
	return o
}

func TestFrontDoorRunsWithoutPorticoEngine(t *testing.T) {
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	built, home := t.TempDir(), t.TempDir()
	text, err := json.Marshal(withoutPortico(t, root))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(built, "overlay.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-overlay", file, "-o", filepath.Join(built, "aggregator"), "./cmd/aggregator")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build without the directory portico failed: %v\n%s", err, out)
	}
	if err := programs.Build(built, "kubectl"); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(filepath.Join(built, "aggregator"), "serve", "--http-engine=portico").CombinedOutput(); err == nil || !strings.Contains(string(out), `choose "library"`) {
		t.Errorf("serve --http-engine=portico = %v, %s, want an error that names the engine that is left", err, out)
	}
	dev, kubeconfig := programs.Dev(t, built, home)
	kubectl := programs.Kubectl(built, home, kubeconfig)
	if err := programs.Poll(dev.Exited(), func() error {
		_, err := kubectl("top", "nodes")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	metrics, err := kubectl("get", "--raw", "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`portico_http_engine_info{engine="library",side="clients"} 1`, `portico_http_engine_info{engine="library",side="backends"} 1`} {
		if !strings.Contains(metrics, want) {
			t.Errorf("metrics lack %s, want both sides to use net/http", want)
		}
	}
}
