package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestConvertRules(t *testing.T) {
	file := filepath.Join(t.TempDir(), "adapter.yaml")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("rules:\n- seriesQuery: up\n  resources: {template: <<.Resource>>}\n  metricsQuery: <<.Series>>{<<.LabelMatchers>>}\n")
	out, err := execute(t, "convert-rules", file)
	if err != nil || !strings.Contains(out, "# Serves each series under its own name.") {
		t.Errorf("convert-rules = %s, %v; want the comment about series names", out, err)
	}
	write("rules:\n- seriesQuery: up\n")
	if _, err = execute(t, "convert-rules", file); err == nil || !strings.Contains(err.Error(), file+":2: rules[0].resources: is required") {
		t.Errorf("convert-rules of an invalid rule: error = %v, want the line and the field", err)
	}
}
