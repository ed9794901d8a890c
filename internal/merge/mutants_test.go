package merge

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

// mutants are defects by which a client would lose an event, get one twice, or get what is not the source's to say.
var mutants = []struct {
	name           string
	file, old, new string
}{
	{"an event is dropped behind one of another source", "watch.go", "\t\ts.take(e)\n", "\t\tif e.source == 0 || !moved || s.out.Len() == 0 {\n\t\t\ts.take(e)\n\t\t}\n"},
	{"a position from before the objects moved is taken", "position.go", "\treturn fmt.Sprintf(\"1%0*d%s\", epochDigits, c.Epoch, c.sources())\n", "\treturn fmt.Sprintf(\"1%0*d%s\", epochDigits, 0, c.sources())\n"},
	{"a position has the resource version of the wrong source", "watch.go", "\t\ts.versions[e.source] = e.version\n", "\t\ts.versions[0] = e.version\n"},
	{"a position does not move on with events", "watch.go", "\t\ts.versions[e.source] = e.version\n", ""},
	{"a position has the resource versions in the wrong order", "position.go", "\tfor _, v := range versions {\n\t\tif !isNumber(v)", "\tfor i := range versions {\n\t\tv := versions[len(versions)-1-i]\n\t\tif !isNumber(v)"},
	{"the events of others are sent", "watch.go", "e.owned = w.Type != watch.Bookmark && from.Owns(about.Namespace)", "e.owned = w.Type != watch.Bookmark"},
	{"the objects of others are listed", "list.go", "\t\t\tif s.Owns(about.Namespace) {\n\t\t\t\tp.items", "\t\t\tif s.Owns(about.Namespace) || true {\n\t\t\t\tp.items"},
	{"a client gets no bookmarks", "watch.go", "\tif moved && s.query.bookmarks && s.kind != \"\" {\n", "\tif false {\n"},
	{"a watch that broke off begins where it began", "watch.go", "\t\t\tversion, more, err = s.readOnce(", "\t\t\t_, more, err = s.readOnce("},
	{"a source that has forgotten is watched from now on", "watch.go", "\t\tresp, err = s.open(ctx, source, version)\n", "\t\tif resp, err = s.open(ctx, source, version); err != nil {\n\t\t\tresp, err = s.open(ctx, source, \"\")\n\t\t}\n"},
	{"a source is listed at another version than the first part says", "list.go", "string(metav1.ResourceVersionMatchExact)}\n", "string(metav1.ResourceVersionMatchNotOlderThan)}\n"},
	{"a part of a list begins at the next source too early", "list.go", "if at.Continue = list.Metadata.Continue; at.Continue == \"\" {", "if at.Continue = list.Metadata.Continue; at.Continue == \"\" || q.limit == 1 {"},
	{"a part of a list begins again", "list.go", "ask := []string{\"continue\", at.Continue}\n", "ask := []string{\"continue\", \"\"}\n"},
	{"the watch begins from now on, and not at the list", "watch.go", "\t\ts.versions, s.apiVersion = p.versions, p.first.APIVersion\n", "\t\ts.versions, s.apiVersion = make([]string, len(p.versions)), p.first.APIVersion\n"},
	{"the initial events end before the last part", "watch.go", "\t\tif q.token = p.token; q.token == \"\" {\n\t\t\tbreak\n", "\t\tif q.token = p.token; true {\n\t\t\tbreak\n"},
	{"a resource version of a source counts as a position", "position.go", "\tif !ok || len(digits) != versionDigits*len(c.Sources) || !IsPosition(position) {\n\t\treturn nil, expired", "\tif isNumber(position) {\n\t\treturn []string{position, position}, nil\n\t}\n\tif !ok || len(digits) != versionDigits*len(c.Sources) || !IsPosition(position) {\n\t\treturn nil, expired"},
	{"an error of a source is left out", "watch.go", "\tcase watch.Error:\n\t\treturn e, &refusedError{source: from.Name, contentType: respond.MediaJSON, body: w.Object}\n", "\tcase watch.Error:\n\t\te.kind, e.version = watch.Bookmark, s.versions[source]\n\t\treturn e, nil\n"},
	{"a bookmark of a source is passed on", "watch.go", "\tcase !e.owned:\n\t\treturn\n", "\tcase !e.owned && e.kind != watch.Bookmark:\n\t\treturn\n"},
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
