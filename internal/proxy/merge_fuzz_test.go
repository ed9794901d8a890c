package proxy

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// Whatever two backends answer, combine gives a list that a decoder reads, with the items of each that are its own and no others, or
// one refusal; and what is missing is told.
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
				t.Fatalf("an error %v, and %s, %v", err, body, refused)
			}
			return
		case refused != nil:
			if refused.code < 400 || refused.code >= 500 || body != nil {
				t.Fatalf("refused with %d, and %s", refused.code, body)
			}
			return
		}
		if strings.ContainsFunc(warning, func(r rune) bool { return r < ' ' || r > '~' }) || len(warning) > maxWarning+200 {
			t.Fatalf("the warning is %q", warning)
		}
		var out struct {
			Kind, APIVersion string
			Items            []json.RawMessage
		}
		if err := json.Unmarshal(body, &out); err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		if out.Items == nil || !strings.HasSuffix(out.Kind, "List") {
			t.Fatalf("it is no list: %s", body)
		}
		want, complete := 0, true
		for i, a := range answers {
			if a.missing != "" || a.code != http.StatusOK {
				complete = complete && a.missing == "" && a.code == http.StatusNotFound
				continue
			}
			list, err := parseList("", a.body)
			if err != nil {
				t.Fatalf("%s was merged: %v", a.body, err)
			}
			for _, item := range list.Items {
				if namespace, name, err := whose(item); err != nil {
					t.Fatalf("%s was merged: %v", item, err)
				} else if m.Keep(i, namespace, name) {
					want++
				}
			}
		}
		if len(out.Items) != want {
			t.Errorf("%d items of %d: %s", len(out.Items), want, body)
		}
		if complete != (warning == "") {
			t.Errorf("complete: %t, and the warning is %q", complete, warning)
		}
	})
}

// Bodies that are cut anywhere, or are not JSON, are passed on with nothing lost but what comes after an error.
func FuzzJSONRewriterOfAnything(f *testing.F) {
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
				t.Errorf("read by %d the error is %v, and at once %s", size, err, whole)
			}
			if back := strings.ReplaceAll(string(got), metricsAlias.Client.String()+`"`, metricsAlias.Backend.String()+`"`); err == nil && !strings.Contains(text, `\`) &&
				back != strings.ReplaceAll(text, metricsAlias.Client.String()+`"`, metricsAlias.Backend.String()+`"`) {
				t.Errorf("%q became %q: more than a version was changed", text, got)
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
