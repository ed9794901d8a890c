package proxy

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var metricsAlias = &Alias{
	Client:  schema.GroupVersion{Group: "metrics.k8s.io", Version: "v1"},
	Backend: schema.GroupVersion{Group: "metrics.k8s.io", Version: "v1beta1"},
}

func rewritten(t testing.TB, text string, watch bool) string {
	t.Helper()
	whole := ""
	for name, source := range map[string]io.Reader{
		"at once": strings.NewReader(text), "byte by byte": iotest.OneByteReader(strings.NewReader(text)), "by halves": iotest.HalfReader(strings.NewReader(text)),
	} {
		got, err := io.ReadAll(newJSONRewriter(source, metricsAlias.Backend.String(), metricsAlias.Client.String(), watch))
		if err != nil {
			t.Fatalf("read %s: ReadAll of %q failed: %v, want no error", name, text, err)
		}
		if whole == "" {
			whole = string(got)
		}
		if string(got) != whole {
			t.Fatalf("read %s: result = %s, want %s as read in another way", name, got, whole)
		}
	}
	return whole
}

func TestA44OnlyObjectVersionsAreRewritten(t *testing.T) {
	const v1, v1beta1 = `"metrics.k8s.io/v1"`, `"metrics.k8s.io/v1beta1"`
	for _, c := range []struct {
		situation, from, to string
		watch               bool
	}{
		{"an object", `{"kind":"NodeMetrics","apiVersion":` + v1beta1 + `}`, `{"kind":"NodeMetrics","apiVersion":` + v1 + `}`, false},
		{"white space stays", "{ \"apiVersion\" :\n\t" + v1beta1 + " }\n", "{ \"apiVersion\" :\n\t" + v1 + " }\n", false},
		{"a list and its items", `{"apiVersion":` + v1beta1 + `,"items":[{"apiVersion":` + v1beta1 + `},{"a":1},{"apiVersion":` + v1beta1 + `}]}`, `{"apiVersion":` + v1 + `,"items":[{"apiVersion":` + v1 + `},{"a":1},{"apiVersion":` + v1 + `}]}`, false},
		{"what is spelled otherwise", `{"api\u0056ersion":"metrics.k8s.io\/v1beta1"}`, `{"api\u0056ersion":` + v1 + `}`, false},
		{"another version", `{"apiVersion":"metrics.k8s.io/v1beta10","x":"metrics.k8s.io/v1beta1"}`, `{"apiVersion":"metrics.k8s.io/v1beta10","x":"metrics.k8s.io/v1beta1"}`, false},
		{"a very long one", `{"apiVersion":"` + strings.Repeat("x", 1000) + `","kind":"a"}`, `{"apiVersion":"` + strings.Repeat("x", 1000) + `","kind":"a"}`, false},
		{"one that is no string", `{"apiVersion":{"apiVersion":` + v1beta1 + `},"b":[` + v1beta1 + `]}`, `{"apiVersion":{"apiVersion":` + v1beta1 + `},"b":[` + v1beta1 + `]}`, false},
		{"what belongs to the object", `{"spec":{"apiVersion":` + v1beta1 + `},"metadata":{"managedFields":[{"apiVersion":` + v1beta1 + `}]}}`, `{"spec":{"apiVersion":` + v1beta1 + `},"metadata":{"managedFields":[{"apiVersion":` + v1beta1 + `}]}}`, false},
		{"a text that looks like it", `{"a":"\"apiVersion\":` + `\"metrics.k8s.io/v1beta1\""}`, `{"a":"\"apiVersion\":` + `\"metrics.k8s.io/v1beta1\""}`, false},
		{"the objects of a Table", `{"kind":"Table","apiVersion":"meta.k8s.io/v1","rows":[{"cells":["apiVersion",` + v1beta1 + `],"object":{"apiVersion":` + v1beta1 + `,"x":{"apiVersion":` + v1beta1 + `}}},{"object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1"}}]}`, `{"kind":"Table","apiVersion":"meta.k8s.io/v1","rows":[{"cells":["apiVersion",` + v1beta1 + `],"object":{"apiVersion":` + v1 + `,"x":{"apiVersion":` + v1beta1 + `}}},{"object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1"}}]}`, false},
		{"items that are no list", `{"items":{"apiVersion":` + v1beta1 + `,"items":[{"apiVersion":` + v1beta1 + `}]}}`, `{"items":{"apiVersion":` + v1beta1 + `,"items":[{"apiVersion":` + v1beta1 + `}]}}`, false},
		{"events", `{"type":"ADDED","object":{"apiVersion":` + v1beta1 + `}}` + "\n" + `{"type":"BOOKMARK","apiVersion":` + v1beta1 + `,"object":{"apiVersion":` + v1beta1 + "}}\n", `{"type":"ADDED","object":{"apiVersion":` + v1 + `}}` + "\n" + `{"type":"BOOKMARK","apiVersion":` + v1beta1 + `,"object":{"apiVersion":` + v1 + "}}\n", true},
		{"an event with a Table", `{"type":"ADDED","object":{"kind":"Table","rows":[{"object":{"apiVersion":` + v1beta1 + `}}]}}`, `{"type":"ADDED","object":{"kind":"Table","rows":[{"object":{"apiVersion":` + v1 + `}}]}}`, true},
		{"half a value", `{"apiVersion":"metrics.k8s.io/v1b`, `{"apiVersion":"metrics.k8s.io/v1b`, false},
	} {
		if got := rewritten(t, c.from, c.watch); got != c.to {
			t.Errorf("%s: rewritten(%s) = %s, want %s", c.situation, c.from, got, c.to)
		}
	}
}

func TestExcessiveJSONNestingIsRejected(t *testing.T) {
	for _, text := range []string{strings.Repeat("[", maxDepth+1), "}", `{"a":1}]`} {
		if _, err := io.ReadAll(newJSONRewriter(strings.NewReader(text), "a", "b", false)); err != errNotJSON {
			t.Errorf("ReadAll of %.20s: error = %v, want %v", text, err, errNotJSON)
		}
	}
}

// The decoded result equals the decoded input with the versions rewritten in the object.
func FuzzJSONRewriter(f *testing.F) {
	f.Add(`{"apiVersion":"metrics.k8s.io/v1beta1","items":[{"apiVersion":"metrics.k8s.io/v1beta1"}]}`)
	f.Add(`{"kind":"Table","rows":[{"object":{"apiVersion":"metrics.k8s.io/v1beta1"}}],"a":"\\\"","b":[[],{}]}`)
	f.Add("{\"api\\u0056ersion\":\"metrics.k8s.io\\/v1beta1\"}")
	f.Fuzz(func(t *testing.T, text string) {
		var want any
		if json.Unmarshal([]byte(text), &want) != nil {
			return
		}
		rewriteAny(want, anObject)
		var got any
		if err := json.Unmarshal([]byte(rewritten(t, text, false)), &got); err != nil {
			t.Fatalf("rewritten(%s) is not JSON: %v, want JSON", text, err)
		}
		a, _ := json.Marshal(want)
		b, _ := json.Marshal(got)
		if !bytes.Equal(a, b) {
			t.Errorf("rewritten(%s) = %s, want %s", text, b, a)
		}
	})
}

func rewriteAny(v any, at place) {
	switch v := v.(type) {
	case map[string]any:
		for name, value := range v {
			if at.hasVersion() && name == "apiVersion" && value == metricsAlias.Backend.String() {
				v[name] = metricsAlias.Client.String()
			}
			rewriteAny(value, at.below(name))
		}
	case []any:
		for _, value := range v {
			rewriteAny(value, at.element())
		}
	}
}

func inProtobuf(t *testing.T, apiVersion string, raw []byte) []byte {
	t.Helper()
	u := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: apiVersion, Kind: "NodeMetrics"}, Raw: raw}
	text, err := u.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return append(append([]byte(nil), protobufMagic...), text...)
}

func TestProtobufVersionsAreRewritten(t *testing.T) {
	raw := bytes.Repeat([]byte("metrics.k8s.io/v1beta1"), 100)
	for version, want := range map[string]string{"metrics.k8s.io/v1beta1": "metrics.k8s.io/v1", "meta.k8s.io/v1": "meta.k8s.io/v1"} {
		for name, wrap := range map[string]func(io.Reader) io.Reader{"at once": func(r io.Reader) io.Reader { return r }, "byte by byte": iotest.OneByteReader, "with its end": iotest.DataErrReader} {
			source := wrap(bytes.NewReader(inProtobuf(t, version, raw)))
			got, err := io.ReadAll(&protobufObject{source: source, from: metricsAlias.Backend.String(), to: metricsAlias.Client.String()})
			if err != nil || !bytes.Equal(got, inProtobuf(t, want, raw)) {
				t.Errorf("%s read %s = %d bytes, error %v, want version %s", version, name, len(got), err, want)
			}
		}
	}
	for _, text := range []string{"k8s\x00", "json", "k8s\x00\x12\x00", "k8s\x00\x0a\xff\xff\xff\x7f", "k8s\x00\x0a\x02\xff\xff"} {
		if got, err := io.ReadAll(&protobufObject{source: strings.NewReader(text), from: "a", to: "b"}); err == nil {
			t.Errorf("ReadAll of %q = %q, want an error", text, got)
		}
	}
}

func TestProtobufWatchVersionsAreRewritten(t *testing.T) {
	frames := func(version string) (all []byte) {
		for _, kind := range []string{"ADDED", "MODIFIED"} {
			e := metav1.WatchEvent{Type: kind, Object: runtime.RawExtension{Raw: inProtobuf(t, version, []byte(kind))}}
			text, err := e.Marshal()
			if err != nil {
				t.Fatal(err)
			}
			all = append(binary.BigEndian.AppendUint32(all, uint32(len(text))), text...)
		}
		return all
	}
	in := frames("metrics.k8s.io/v1beta1")
	got, err := io.ReadAll(&protobufWatch{source: iotest.HalfReader(bytes.NewReader(in)), from: metricsAlias.Backend.String(), to: metricsAlias.Client.String()})
	if err != nil || !bytes.Equal(got, frames("metrics.k8s.io/v1")) {
		t.Errorf("ReadAll of a watch of %d bytes = %d bytes, error %v, want the frames of metrics.k8s.io/v1", len(in), len(got), err)
	}
	if _, err := io.ReadAll(&protobufWatch{source: bytes.NewReader(in[:len(in)-1]), from: "a", to: "b"}); err != io.ErrUnexpectedEOF {
		t.Errorf("ReadAll of half an event: error = %v, want %v", err, io.ErrUnexpectedEOF)
	}
	if _, err := io.ReadAll(&protobufWatch{source: strings.NewReader("\xff\xff\xff\xff"), from: "a", to: "b"}); err != errTooLarge {
		t.Errorf("ReadAll of an event of 4 GiB: error = %v, want %v", err, errTooLarge)
	}
}

func TestAliasAcceptIsReducedToSupportedTypes(t *testing.T) {
	for accept, want := range map[string]string{
		"":                 "application/json",
		"application/json": "application/json",
		"application/json;as=Table;v=v1;g=meta.k8s.io,application/json":  "application/json; as=Table; g=meta.k8s.io; v=v1, application/json",
		"application/vnd.kubernetes.protobuf,application/json":           "application/vnd.kubernetes.protobuf, application/json",
		"application/yaml;q=1, application/json;q=0.5, application/cbor": "application/json",
		"*/*":              "application/json",
		"application/yaml": "406",
	} {
		h := http.Header{"Accept-Encoding": {"gzip"}}
		if accept != "" {
			h["Accept"] = []string{accept}
		}
		got := "406"
		if metricsAlias.setAliasAccept(h) == nil {
			got = h.Get("Accept")
		}
		if got != want || got != "406" && h["Accept-Encoding"] != nil {
			t.Errorf("Accept for the backend of %q = %q, want %q without Accept-Encoding", accept, got, want)
		}
	}
}
