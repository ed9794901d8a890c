package proxy

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// For all answers of two backends, combine returns a list that a decoder can read, with exactly the items that belong to each
// backend, or one refusal. Missing parts are reported.
func FuzzCombine(f *testing.F) {
	list := func(items string) []byte {
		return []byte(`{"kind":"MetricValueList","apiVersion":"custom.metrics.k8s.io/v1beta2","metadata":{},"items":[` + items + `]}`)
	}
	item := func(name string) string {
		return `{"describedObject":{"kind":"Pod","namespace":"shop","name":"` + name + `"},"value":"1<2"}`
	}
	f.Add(200, list(item("a")+","+item("b")), 200, list(item("a")+","+item("b")), "")
	f.Add(200, list(item("a")), 404, []byte(`{"kind":"Status"}`), "")
	f.Add(200, list(item("a")), 503, []byte("no"), "")
	f.Add(403, []byte(`{"kind":"Status"}`), 200, list(""), "")
	f.Add(200, list(`{"metadata":{"name":"a","namespace":"b"}}`), 0, []byte(nil), "it is\ndown \"\xff")
	f.Add(200, list("1"), 200, list("null"), "")
	f.Add(200, []byte(`{"kind":"PodList","metadata":{"resourceVersion":"7"},"items":null}`), 200, []byte(`{"kind":"PodList","items":[]}`), "")
	f.Fuzz(func(t *testing.T, code1 int, body1 []byte, code2 int, body2 []byte, missing string) {
		m := &Merged{Parts: []MergedPart{{Name: "one"}, {Name: "two"}}, Keep: func(part int, namespace, name string) bool {
			return (len(namespace)+len(name))%2 == part
		}}
		answers := []partAnswer{{code: code1, body: body1}, {code: code2, body: body2, missing: missing}}
		body, warning, refused, err := combine(m, answers)
		switch {
		case err != nil:
			if body != nil || refused != nil {
				t.Fatalf("combine() = error %v with body %s and refusal %v, want the error only", err, body, refused)
			}
			return
		case refused != nil:
			if refused.code < 400 || refused.code >= 500 || body != nil {
				t.Fatalf("combine() = refusal %d with body %s, want a code from 400 to 499 and no body", refused.code, body)
			}
			return
		}
		if strings.ContainsFunc(warning, func(r rune) bool { return r < ' ' || r > '~' }) || len(warning) > maxWarning+200 {
			t.Fatalf("warning = %q, want at most %d printable ASCII characters", warning, maxWarning+200)
		}
		var out struct {
			Kind, APIVersion string
			Items            []json.RawMessage
		}
		if err := json.Unmarshal(body, &out); err != nil {
			t.Fatalf("Unmarshal(%s) failed: %v, want no error", body, err)
		}
		if out.Items == nil || !strings.HasSuffix(out.Kind, "List") {
			t.Fatalf("combine() = %s, want a list with items", body)
		}
		want, complete := 0, true
		for i, a := range answers {
			if a.missing != "" || a.code != http.StatusOK {
				complete = complete && a.missing == "" && a.code == http.StatusNotFound
				continue
			}
			list, err := parseList("", a.body)
			if err != nil {
				t.Fatalf("%s was merged, although parseList() failed: %v, want it refused", a.body, err)
			}
			for _, item := range list.Items {
				if namespace, name, err := objectOf(item); err != nil {
					t.Fatalf("%s was merged, although whose() failed: %v, want it refused", item, err)
				} else if m.Keep(i, namespace, name) {
					want++
				}
			}
		}
		if len(out.Items) != want {
			t.Errorf("merged list has %d items, want %d: %s", len(out.Items), want, body)
		}
		if complete != (warning == "") {
			t.Errorf("complete = %t, warning = %q, want a warning exactly if a part is missing", complete, warning)
		}
	})
}

// Bodies that end anywhere, or are not JSON, are passed on. Only bytes after an error are lost.
func FuzzJSONRewriterPassesInvalidInput(f *testing.F) {
	for _, text := range []string{
		`{"apiVersion":"metrics.k8s.io/v1beta1","items":[{"apiVersion":"metrics.k8s.io/v1beta1"}]}`,
		`{"apiVersion":"metrics.k8s.io/v1b`, `{"apiVersion" "metrics.k8s.io/v1beta1"}`, `[{]}`, `{"type":"ADDED","object":{"apiVersion":"metrics.k8s.io/v1beta1"}}` + "\n",
		`{"apiVersion":"metrics.k8s.io/v1beta1\`, "\x00\xff{\"apiVersion\":", strings.Repeat(`{"items":[`, 50),
	} {
		f.Add(text, false)
		f.Add(text, true)
	}
	f.Fuzz(func(t *testing.T, text string, watch bool) {
		whole := ""
		for _, size := range []int{len(text) + 1, 1, 7} {
			r := newJSONRewriter(&chunks{strings.NewReader(text), size}, metricsAlias.Backend.String(), metricsAlias.Client.String(), watch)
			got, err := io.ReadAll(r)
			if err != nil && err != errNotJSON {
				t.Fatal(err)
			}
			if whole == "" {
				whole = fmt.Sprint(err)
			} else if whole != fmt.Sprint(err) {
				t.Errorf("error with reads of %d bytes = %v, want %s as with one read", size, err, whole)
			}
			if back := strings.ReplaceAll(string(got), metricsAlias.Client.String()+`"`, metricsAlias.Backend.String()+`"`); err == nil && !strings.Contains(text, `\`) &&
				back != strings.ReplaceAll(text, metricsAlias.Client.String()+`"`, metricsAlias.Backend.String()+`"`) {
				t.Errorf("%q became %q, want only versions changed", text, got)
			}
		}
	})
}

// chunks returns at most size bytes at a time.
type chunks struct {
	io.Reader
	size int
}

func (c *chunks) Read(b []byte) (int, error) { return c.Reader.Read(b[:min(len(b), c.size)]) }
