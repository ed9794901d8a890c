package sharedwatch

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

var runMutants = flag.Bool("mutants", false, "run the tests against mutants of this package")

// mutants are defects by which a client would lose an event, get one twice, or get what it must not.
var mutants = []struct {
	name           string
	file, old, new string
}{
	{"an event is dropped when the ring is full", "history.go", "\th.frames = append(h.frames, e.frame)\n", "\tif len(h.frames) < h.maxFrames || e.bookmark {\n\t\th.frames = append(h.frames, e.frame)\n\t}\n"},
	{"who was left behind goes on with what there is", "history.go", "\t\treturn lines, errLeftBehind\n", "\t\tc.place = h.first\n"},
	{"a client continues with the event that it has", "history.go", "return cursor{place: h.first + int64(i) + 1}, nil", "return cursor{place: h.first + int64(i)}, nil"},
	{"a client continues after the event that comes next", "history.go", "\t\t\treturn cursor{place: h.first + int64(i)}, nil\n\t\t}\n\t}\n\t// It", "\t\t\treturn cursor{place: h.first + int64(i) + 1}, nil\n\t\t}\n\t}\n\t// It"},
	{"a client that is ahead gets what it has", "history.go", "return cursor{place: h.end(), has: version}, nil", "return cursor{place: h.end()}, nil"},
	{"a version from before the stream counts as its first", "history.go", "err != nil || order < 0 {", "err != nil || order < -9 {"},
	{"a deleted object stays among the objects", "history.go", "\tif e.kind != watch.Deleted {\n", "\tif true {\n"},
	{"objects that are ahead of the events go back", "history.go", "h.objects == nil || h.ahead != \"\" && seen(e.version, h.ahead)", "h.objects == nil"},
	{"events that came before the objects were listed are not applied", "history.go", "for i := at.place - h.first; i < int64(len(h.frames)); i++ {", "for i := int64(len(h.frames)); i < int64(len(h.frames)); i++ {"},
	{"the end of the initial events has the version of the last event", "history.go", "o.Metadata.ResourceVersion, o.Metadata.Annotations = h.version,", "o.Metadata.ResourceVersion, o.Metadata.Annotations = h.latest(),"},
	{"who watches again begins where the stream began", "stream.go", "\t\tversion = t.latest()\n", ""},
	{"a server that has forgotten the version is watched on", "stream.go", "\t\tif e.status.Code == http.StatusGone {\n\t\t\treturn &expiredError{e.status.Message}\n\t\t}\n", ""},
	{"objects that may be older than a client asks for are sent", "watches.go", "!seen(q.Version, t.history.version)", "false"},
	{"objects have no bound", "watches.go", "s.bytes > s.config.MaxObjectBytes && size > 0", "false"},
	{"a stream goes on for nobody", "watches.go", "return t.clients == 0 && time.Since(t.abandoned) >= lingers", "return false"},
	{"clients stay when the APIRoute has changed", "stream.go", "t.watches.unwanted(t) || !t.of.Current()", "t.watches.unwanted(t)"},
}

// TestMutants looks whether the mutants can be made, and with -mutants whether the tests of this package find them: a minute.
func TestMutants(t *testing.T) {
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			source, err := os.ReadFile(m.file)
			if err != nil {
				t.Fatal(err)
			}
			if bytes.Count(source, []byte(m.old)) != 1 {
				t.Fatalf("%s does not have it once: %s", m.file, m.old)
			}
			if !*runMutants {
				return
			}
			dir := t.TempDir()
			at, err := filepath.Abs(m.file)
			if err != nil {
				t.Fatal(err)
			}
			mutant, overlay := filepath.Join(dir, m.file), filepath.Join(dir, "overlay.json")
			replace, err := json.Marshal(map[string]any{"Replace": map[string]string{at: mutant}})
			if err != nil {
				t.Fatal(err)
			}
			for name, data := range map[string][]byte{mutant: bytes.Replace(source, []byte(m.old), []byte(m.new), 1), overlay: replace} {
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
