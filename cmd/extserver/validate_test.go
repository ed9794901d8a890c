package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestValidate(t *testing.T) {
	examples := filepath.Join("..", "..", "deploy", "extserver", "examples")
	out, err := execute(t, "validate", "--allow-exec-sources", examples)
	if err != nil || out != "8 resources, no mistakes\n" {
		t.Errorf("validate of the examples = %q, %v; want 8 resources and no mistakes", out, err)
	}
	file := filepath.Join(t.TempDir(), "bad.yaml")
	if err := os.WriteFile(file, []byte("apiVersion: v1\nkind: ResourceDefinitions\nresources: []\nresource: []\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err = execute(t, "validate", file)
	if err == nil || err.Error() != "3 mistakes" {
		t.Errorf("validate of a bad file: error = %v, want 3 mistakes", err)
	}
	for _, want := range []string{file + `:1:13: apiVersion: "v1": must be`, file + `:4:1: resource: unknown field; did you mean "resources"?`, file + `:3:12: resources: is empty`} {
		if !strings.Contains(out, want) {
			t.Errorf("output of validate has no %q, want it in\n%s", want, out)
		}
	}
	if _, err := execute(t, "validate", "/nowhere.yaml"); err == nil || !strings.Contains(err.Error(), "/nowhere.yaml") {
		t.Errorf("validate of a missing file: error = %v, want one with its name", err)
	}
	if _, err := execute(t, "validate"); err == nil {
		t.Error("validate without files returned no error, want one")
	}
}
