package declared

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"portico.dev/pkg/extension"
)

// If a machine has no inotify instances left or a directory is missing for a moment, the resources stay served and the files are found
// again.
func TestUnwatchableFilesArePolled(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "mounted")
	file := filepath.Join(dir, "f.yaml")
	must(t, os.Mkdir(dir, 0o700))
	write(t, file, head+minimal)
	synctest.Test(t, func(t *testing.T) {
		s, err := New(Config{Paths: []string{file}})
		must(t, err)
		must(t, os.RemoveAll(dir))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		time.Sleep(2 * pollInterval)
		select {
		case err := <-done:
			t.Fatalf("Run returned %v, want it to keep running", err)
		default:
		}
		if s.LastError() == nil {
			t.Error("LastError while the file is missing = nil, want an error")
		}
		must(t, os.Mkdir(dir, 0o700))
		write(t, file, strings.Replace(head+minimal, "plural: ", "plural: other", 1))
		time.Sleep(2 * pollInterval)
		s.mu.Lock()
		now := s.lives[0].definition.gvr.Resource
		s.mu.Unlock()
		if !strings.HasPrefix(now, "other") || s.LastError() != nil {
			t.Errorf("served resource = %s, LastError = %v, want the prefix other and no error", now, s.LastError())
		}
		cancel()
		must(t, <-done)
	})
}

// OpenAPI clients poll rarely. They would see a schema that is added after the resource minutes later.
func TestLateResourceIsFirstServedWithSchema(t *testing.T) {
	dir := t.TempDir()
	data := filepath.Join(dir, "queues.json")
	write(t, data, `[{"id": "a", "depth": 1}]`)
	write(t, filepath.Join(dir, "first.yaml"), head+minimal)
	var s *Set
	var types []any
	s, err := New(Config{Paths: []string{dir}, Apply: func([]extension.Resource) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, l := range s.lives {
			if l.definition.gvr.Resource == "lines" {
				types = append(types, l.shape.schema(nil, "")["type"])
			}
		}
		return nil
	}})
	must(t, err)
	r := &runner{set: s, running: map[*liveResource]func(){}}
	defer r.stopAll()
	r.keep(t.Context())
	write(t, filepath.Join(dir, "second.yaml"), strings.NewReplacer("plural: queues", "plural: lines", "kind: Queue", "kind: Line", "/tmp/queues.json", data).Replace(head+minimal))
	r.reload(t.Context())
	if len(types) != 1 || types[0] != "object" {
		t.Errorf("the schemas with which it was hosted have the types %q, want one object", types)
	}
}
