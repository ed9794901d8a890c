package mirror

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"strings"
	"testing"
)

func response(m *Mirror, kind, body string) *Response {
	r := &Response{mirror: m}
	r.WriteHeader(http.StatusOK, http.Header{"Content-Type": {kind}})
	r.Write([]byte(body))
	return r
}

func TestCompareNamesDifferingField(t *testing.T) {
	const (
		object      = `{"kind":"Widget","metadata":{"name":"w","resourceVersion":"1","uid":"a","creationTimestamp":"2020-01-01T00:00:00Z","generation":1,"managedFields":[{}],"selfLink":"/x","labels":{"a":"b"}},"spec":{"n":1,"password":"one"}}`
		copied      = `{"metadata":{"labels":{"a":"b"},"resourceVersion":"7","name":"w","uid":"b","managedFields":[]},"spec":{"password":"one","n":1},"kind":"Widget"}`
		list        = `{"kind":"WidgetList","metadata":{"resourceVersion":"1","continue":"abc"},"items":[{"metadata":{"name":"a","namespace":"x","uid":"1"},"spec":{"n":1}},{"metadata":{"name":"b","namespace":"x","uid":"2"},"spec":{"n":2}}]}`
		turned      = `{"kind":"WidgetList","metadata":{"resourceVersion":"9","continue":"def"},"items":[{"metadata":{"name":"b","namespace":"x","uid":"8"},"spec":{"n":2}},{"metadata":{"name":"a","namespace":"x","uid":"9"},"spec":{"n":1}}]}`
		table       = `{"kind":"Table","metadata":{"resourceVersion":"1"},"columnDefinitions":[{"name":"Name","type":"string"},{"name":"Size","type":"integer"},{"name":"Age","type":"string"},{"name":"Seen","type":"date"}],"rows":[{"cells":["a",1,"3d","5m"],"object":{"metadata":{"name":"a","uid":"1"}}},{"cells":["b",2,"3d","5m"],"object":{"metadata":{"name":"b","uid":"2"}}}]}`
		turnedTable = `{"kind":"Table","metadata":{"resourceVersion":"2"},"columnDefinitions":[{"name":"Name","type":"string"},{"name":"Size","type":"integer"},{"name":"Age","type":"string"},{"name":"Seen","type":"date"}],"rows":[{"cells":["b",2,"1s","6m"],"object":{"metadata":{"name":"b","uid":"3"}}},{"cells":["a",1,"1s","6m"],"object":{"metadata":{"name":"a","uid":"4"}}}]}`
		pod         = `{"kind":"PodMetricsList","items":[{"metadata":{"name":"p","namespace":"x"},"timestamp":"1","window":"9s","containers":[{"name":"c","usage":{"cpu":"1","memory":"2"}}]}]}`
		pods        = `{"kind":"MetricValueList","items":[{"describedObject":{"kind":"Pod","name":"p","namespace":"x"},"metricName":"m","timestamp":"1","value":"1"},{"describedObject":{"kind":"Pod","name":"q","namespace":"x"},"metricName":"m","timestamp":"1","value":"2"}]}`
		queues      = `{"kind":"ExternalMetricValueList","items":[{"metricName":"m","metricLabels":{"q":"a"},"timestamp":"1","value":"1"},{"metricName":"m","metricLabels":{"q":"b"},"timestamp":"1","value":"2"}]}`
	)
	change := func(text, old, now string) string {
		if !strings.Contains(text, old) {
			t.Fatalf("the text %s lacks %s, want it for the replacement", text, old)
		}
		return strings.Replace(text, old, now, 1)
	}
	const metric = "metrics.k8s.io"
	for name, c := range map[string]struct {
		group, ignore, first, second, want string
	}{
		"the same":                            {"", "", object, object, ""},
		"what servers set for themselves":     {"", "", object, copied, ""},
		"a field":                             {"", "", object, change(copied, `"n":1`, `"n":2`), ".spec.n"},
		"a field that is ignored":             {"", "spec.n", object, change(copied, `"n":1`, `"n":2`), ""},
		"a field below one that is ignored":   {"", "spec", object, change(copied, `"n":1`, `"n":2`), ""},
		"a label":                             {"", "", object, change(copied, `"a":"b"`, `"a":"c"`), ".metadata.labels.a"},
		"a secret is not told":                {"", "", object, change(copied, `"one"`, `"two"`), ".spec.password"},
		"a field that one has":                {"", "", object, change(copied, `"n":1`, `"n":1,"x":null`), ".spec.x"},
		"the first of two":                    {"", "", object, change(change(copied, `"n":1`, `"n":2`), `"w"`, `"v"`), ".metadata.name"},
		"another type":                        {"", "", object, change(copied, `"n":1`, `"n":"1"`), ".spec.n"},
		"an object for a number":              {"", "", object, change(copied, `"n":1`, `"n":{}`), ".spec.n"},
		"a list for a text":                   {"", "", `{"a":"b"}`, `{"a":["b"]}`, ".a"},
		"a text for null":                     {"", "", `{"a":null}`, `{"a":""}`, ".a"},
		"null for a list":                     {"", "", `{"a":[]}`, `{"a":null}`, ".a"},
		"a number written otherwise":          {"", "", `{"a":1.0}`, `{"a":1}`, ""},
		"large numbers":                       {"", "", `{"a":9007199254740993}`, `{"a":9007199254740992}`, ".a"},
		"an element":                          {"", "", `{"a":[1,2]}`, `{"a":[1,3]}`, ".a[1]"},
		"the order within an object":          {"", "", `{"a":[1,2]}`, `{"a":[2,1]}`, ".a[0]"},
		"an element more":                     {"", "", `{"a":[1,2]}`, `{"a":[1]}`, ".a[1]"},
		"elements of lists that are ignored":  {"", "a.b", `{"a":[{"b":1,"c":2}]}`, `{"a":[{"b":3,"c":2}]}`, ""},
		"a control byte in a name":            {"", "", "{\"a\\nb\":1}", "{\"a\\nb\":2}", ".a?b"},
		"the order of a list":                 {"", "", list, turned, ""},
		"an item":                             {"", "", list, change(turned, `"n":2`, `"n":3`), ".items[x/b].spec.n"},
		"an item that is ignored":             {"", "spec.n", list, change(turned, `"n":2`, `"n":3`), ""},
		"an item that one lacks":              {"", "", list, change(turned, `"name":"a"`, `"name":"c"`), ".items[x/a]"},
		"another page":                        {"", "", list, change(turned, `,"continue":"def"`, ``), ".metadata.continue"},
		"a Table":                             {"", "", table, turnedTable, ""},
		"a cell":                              {"", "", table, change(turnedTable, `["b",2`, `["b",3`), ".rows[b].cells[1]"},
		"a column":                            {"", "", table, change(turnedTable, `"Size"`, `"Weight"`), ".columnDefinitions[1].name"},
		"usage of pods":                       {metric, "", pod, strings.NewReplacer(`"cpu":"1"`, `"cpu":"9"`, `"9s"`, `"8s"`, `"timestamp":"1"`, `"timestamp":"2"`).Replace(pod), ""},
		"containers of pods":                  {metric, "", pod, change(pod, `"name":"c"`, `"name":"d"`), ".items[x/p].containers[0].name"},
		"usage of another group":              {"example.com", "", pod, change(pod, `"cpu":"1"`, `"cpu":"9"`), ".items[x/p].containers[0].usage.cpu"},
		"cells of metrics":                    {metric, "", table, change(table, `["b",2`, `["b",3`), ""},
		"times of custom metrics":             {"custom.metrics.k8s.io", "", pods, strings.ReplaceAll(pods, `"timestamp":"1"`, `"timestamp":"2"`), ""},
		"values of custom metrics":            {"custom.metrics.k8s.io", "", pods, change(pods, `"value":"2"`, `"value":"3"`), ".items[x/q m].value"},
		"values that are ignored":             {"custom.metrics.k8s.io", "value", pods, change(pods, `"value":"2"`, `"value":"3"`), ""},
		"external metrics with equal names":   {"external.metrics.k8s.io", "", queues, change(queues, `"value":"2"`, `"value":"3"`), ".items[m#1].value"},
		"a list of texts that calls it items": {"", "", `{"items":["b","a"]}`, `{"items":["a","b"]}`, ""},
		"no object":                           {"", "", `[1]`, `[2]`, "[0]"},
		"a number":                            {"", "", `1`, `2`, "."},
		"no JSON":                             {"", "", `{`, `{}`, "the bytes of the body"},
		"two values":                          {"", "", `{}{}`, `{}`, "the bytes of the body"},
	} {
		m := New(Config{})
		r := Rules{Group: c.group}
		if c.ignore != "" {
			r.Ignore = []string{c.ignore}
		}
		for _, turn := range [][2]string{{c.first, c.second}, {c.second, c.first}} {
			got, err := r.compare(response(m, "application/json; charset=utf-8", turn[0]), response(m, "application/json", turn[1]))
			if err != nil || got != c.want {
				t.Errorf("compare of %s = %q, %v, want %q", name, got, err, c.want)
			}
		}
	}
}

func TestBodiesThatAreNotJSONAreComparedByBytes(t *testing.T) {
	m := New(Config{})
	for _, c := range []struct{ kind, first, second, want string }{
		{"application/vnd.kubernetes.protobuf", "k8s\x00a", "k8s\x00a", ""},
		{"application/vnd.kubernetes.protobuf", "k8s\x00a", "k8s\x00b", "the bytes of the body"},
		{"text/plain", `{"a":1}`, `{"a": 1}`, "the bytes of the body"},
		{"application/json", `{"a":1}`, `{"a": 1}`, ""},
	} {
		if got, err := new(Rules).compare(response(m, c.kind, c.first), response(m, c.kind, c.second)); err != nil || got != c.want {
			t.Errorf("compare of two bodies of type %s = %q, %v, want %q", c.kind, got, err, c.want)
		}
	}
	if got, err := new(Rules).compare(response(m, "application/json", `{"a":1}`), response(m, "text/plain", `{"a": 1}`)); err != nil || got == "" {
		t.Errorf("compare of JSON and text = %q, %v, want a difference", got, err)
	}
}

func zipped(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestCompressedBodiesAreCompared(t *testing.T) {
	m := New(Config{MaxBody: 1000})
	compare := func(encoding, body string) (string, error) {
		first := &Response{mirror: m}
		first.WriteHeader(http.StatusOK, http.Header{"Content-Type": {"application/json"}, "Content-Encoding": {encoding}})
		first.Write([]byte(body))
		return new(Rules).compare(first, response(m, "application/json", `{"a":1}`))
	}
	if got, err := compare("gzip", zipped(t, `{"a":1}`)); got != "" || err != nil {
		t.Errorf("compare of equal bodies with gzip = %q, %v, want no difference", got, err)
	}
	if got, err := compare("gzip", zipped(t, `{"a":2}`)); got != ".a" || err != nil {
		t.Errorf("compare of different bodies with gzip = %q, %v, want .a", got, err)
	}
	if _, err := compare("gzip", zipped(t, strings.Repeat(" ", 1001))); err != errTooLarge {
		t.Errorf("compare of a gzip bomb: error = %v, want %v", err, errTooLarge)
	}
	if _, err := compare("gzip", zipped(t, `{"a":1}`)[:12]); err == nil {
		t.Error("compare of half a gzip body returned no error, want an error")
	}
	if _, err := compare("br", "x"); err == nil {
		t.Error("compare of an unknown encoding returned no error, want an error")
	}
}
