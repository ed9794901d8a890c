package declared

import (
	"encoding/json"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"pgregory.net/rapid"
)

// mapped returns the objects that a resource makes from an answer, and the omissions.
func mapped(t *testing.T, resource, answer string) ([]Object, []string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "f.yaml")
	write(t, file, head+resource)
	s, err := New(Config{Paths: []string{file}})
	must(t, err)
	v, err := JSON([]byte(answer))
	must(t, err)
	objects, omitted, err := s.lives[0].definition.mapping.objects(v)
	must(t, err)
	return objects, omitted
}

const queues = `- group: stats.example.com
  version: v1
  plural: queues
  kind: Queue
  namespaced: true
  source: {file: {path: /tmp/queues.json}}
  items: $.data[*]
  object:
    name: .id
    namespace: "{.team}-ns"
    labels: {team: .team, all: "yes"}
    annotations: {id: "id {.id}"}
    creationTimestamp: .born
    fields:
      spec.team: .team
      status.depth: {from: .depth, type: integer, default: -1}
      status.oldest: {from: .oldest, type: date}
      status.first: .tags[0]
`

func TestItemsBecomeObjects(t *testing.T) {
	objects, omitted := mapped(t, queues, `{"data": [
		{"id": "Orders In", "team": "shop", "depth": "7", "oldest": 1700000000, "born": "2024-03-01", "tags": ["x", "y"]},
		{"id": "b", "team": "a b!", "depth": 1.5, "oldest": 1700000000123},
		{"team": "nobody"}, {"id": "c"}, {"id": "b", "team": "a b!"}]}`)
	if len(objects) != 2 {
		t.Fatalf("%d objects, want 2", len(objects))
	}
	first, err := json.Marshal(objects[0])
	must(t, err)
	want := `{"metadata":{"name":"orders-in-bfc1e1b2","namespace":"shop-ns","creationTimestamp":"2024-03-01T00:00:00Z",` +
		`"labels":{"all":"yes","team":"shop"},"annotations":{"id":"id Orders In"}},` +
		`"spec":{"team":"shop"},"status":{"depth":7,"first":"x","oldest":"2023-11-14T22:13:20Z"}}`
	if string(first) != want {
		t.Errorf("first object =\n%s\nwant\n%s", first, want)
	}
	second := objects[1]
	if second.Labels["team"] != "a_b" || len(validation.IsDNS1123Label(second.Namespace)) > 0 {
		t.Errorf("metadata of the second object = %+v, want the label a_b and a valid namespace", second.ObjectMeta)
	}
	if got := second.Content["status"]; !reflect.DeepEqual(got, map[string]any{"depth": int64(-1), "oldest": "2023-11-14T22:13:20Z"}) {
		t.Errorf("status of the second object = %v, want depth -1 and a date", got)
	}
	for _, want := range []string{"1 items have a .status.depth that is no integer (the first is \"b\")", "1 items have no name and are not shown (the first is number 2)",
		"1 items have no namespace and are not shown (the first is \"c\")", "have the name of another and are not shown"} {
		if !strings.Contains(strings.Join(omitted, "\n"), want) {
			t.Errorf("omissions = %q, want one that contains %q", omitted, want)
		}
	}
}

func TestItemsPathFindsItems(t *testing.T) {
	const one = `- {group: a.b, version: v1, plural: things, kind: Thing, source: {file: {path: /a}}, items: 'ITEMS', object: {name: 'NAME'}}` + "\n"
	for _, c := range []struct {
		situation, items, name, answer string
		want                           string
	}{
		{"the answer is the list", ".", ".n", `[{"n": "a"}, {"n": "b"}]`, "a b"},
		{"the answer is one thing", "$", ".n", `{"n": "a"}`, "a"},
		{"a list of names", ".names", ".", `{"names": ["a", "b"]}`, "a b"},
		{"keys are the names", ".by.*", "@key", `{"by": {"b": {}, "a": null}}`, "a b"},
		{"lists in lists", "$.racks[*].hosts[*]", ".n", `{"racks": [{"hosts": [{"n": "a"}]}, {}, {"hosts": [{"n": "b"}, {"n": "c"}]}]}`, "a b c"},
		{"a name with a dot in it", `["a.b"].c`, ".n", `{"a.b": {"c": [{"n": "x"}]}}`, "x"},
		{"the last of them", ".l[-1]", ".n", `{"l": [{"n": "a"}, {"n": "b"}]}`, "b"},
		{"numbers as names", ".", ".id", `[{"id": 9007199254740993}]`, "9007199254740993"},
	} {
		t.Run(c.situation, func(t *testing.T) {
			objects, omitted := mapped(t, strings.NewReplacer("ITEMS", c.items, "NAME", c.name).Replace(one), c.answer)
			var names []string
			for _, o := range objects {
				names = append(names, o.Name)
			}
			if got := strings.Join(names, " "); got != c.want || len(omitted) > 0 {
				t.Errorf("names = %q, omissions %q, want %q and no omissions", got, omitted, c.want)
			}
		})
	}
}

func TestItemsPathWithoutListReturnsError(t *testing.T) {
	for items, answer := range map[string]string{".data": `{"dta": []}`, ".data[*]": `{"data": 5}`, ".a.b[*]": `{"a": []}`} {
		p, err := parsePath(items)
		must(t, err)
		v, err := JSON([]byte(answer))
		must(t, err)
		if _, err := p.items(v); err == nil {
			t.Errorf("items %s of %s: error = nil, want an error", items, answer)
		}
	}
}

func TestGeneratedNamesAreValidAndUnique(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.String().Draw(t, "a"), rapid.String().Draw(t, "b")
		for _, name := range []string{subdomainName(a), labelName(a)} {
			if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
				t.Fatalf("name %q of %q is not a subdomain: %v, want a valid name", name, a, problems)
			}
		}
		if problems := validation.IsDNS1123Label(labelName(a)); len(problems) > 0 {
			t.Fatalf("labelName(%q) = %q is not a label: %v, want a valid label", a, labelName(a), problems)
		}
		if problems := validation.IsValidLabelValue(labelValue(a)); len(problems) > 0 {
			t.Fatalf("labelValue(%q) = %q is not a label value: %v, want a valid value", a, labelValue(a), problems)
		}
		if a != b && subdomainName(a) == subdomainName(b) {
			t.Fatalf("subdomainName(%q) = subdomainName(%q) = %q, want different names", a, b, subdomainName(a))
		}
	})
	if got := subdomainName(strings.Repeat("a.", 200) + "B"); len(got) > 253 {
		t.Errorf("length of a long name = %d, want at most 253", len(got))
	}
}

func TestObjectRoundTripsThroughJSON(t *testing.T) {
	objects, _ := mapped(t, queues, `{"data": [{"id": "a", "team": "b", "depth": 1}, {"id": "z", "team": "b", "depth": 1}]}`)
	objects[0].Kind, objects[0].APIVersion = "Queue", "stats.example.com/v1"
	raw, err := json.Marshal(objects[0])
	must(t, err)
	var back Object
	must(t, json.Unmarshal(raw, &back))
	again, err := json.Marshal(back)
	must(t, err)
	if string(raw) != string(again) || back.Content["kind"] != nil {
		t.Errorf("JSON of the decoded object = %s, want %s", again, raw)
	}
	empty, err := json.Marshal(Object{})
	must(t, err)
	if string(empty) != `{"metadata":{}}` {
		t.Errorf("JSON of an empty object = %s, want {\"metadata\":{}}", empty)
	}
}

func TestInferredSchema(t *testing.T) {
	s := &shape{}
	learn := func(text string) bool {
		v, err := JSON([]byte(text))
		must(t, err)
		return s.learn(v, 0)
	}
	if !learn(`{"status": {"n": 1, "x": 1, "when": "2024-01-01T00:00:00Z", "tags": ["a"], "port": 80, "omitted": true, "gone": null, "empty": []}}`) {
		t.Error("learn of the first answer = false, want true")
	}
	if !learn(`{"status": {"n": 2, "x": 1.5, "when": "2025-01-01T00:00:00Z", "port": "http", "omitted": "x"}}`) {
		t.Error("learn of an answer with other types = false, want true")
	}
	if learn(`{"status": {"n": 3, "x": 2, "omitted": false}}`) {
		t.Error("learn of an answer with known types = true, want false")
	}
	got, err := json.Marshal(s.schema(map[string]string{"status.n": "Count."}, ""))
	must(t, err)
	want := `{"properties":{"status":{"properties":{` +
		`"empty":{"items":{"x-kubernetes-preserve-unknown-fields":true},"type":"array"},` +
		`"gone":{"nullable":true,"x-kubernetes-preserve-unknown-fields":true},` +
		`"n":{"description":"Count.","format":"int64","type":"integer"},` +
		`"omitted":{"x-kubernetes-preserve-unknown-fields":true},` +
		`"port":{"x-kubernetes-int-or-string":true},` +
		`"tags":{"items":{"type":"string"},"type":"array"},` +
		`"when":{"format":"date-time","type":"string"},` +
		`"x":{"format":"double","type":"number"}},"type":"object"}},"type":"object"}`
	if string(got) != want {
		t.Errorf("schema =\n%s\nwant\n%s", got, want)
	}
}

// A mapping with identifiers as keys must not produce a schema that grows without bound.
func TestMappingWithManyKeysGetsAdditionalProperties(t *testing.T) {
	s := &shape{}
	news := 0
	for i := range 1000 {
		if s.learn(map[string]any{strings.Repeat("k", i+1): int64(i)}, 0) {
			news++
		}
	}
	if news > maxProperties+2 {
		t.Errorf("schema changed %d times for 1000 keys, want at most %d", news, maxProperties+2)
	}
	got, err := json.Marshal(s.schema(nil, ""))
	must(t, err)
	if string(got) != `{"additionalProperties":{"format":"int64","type":"integer"},"type":"object"}` {
		t.Errorf("schema of a mapping with many keys = %s, want additionalProperties", got)
	}
}

func TestCells(t *testing.T) {
	o := &Object{Content: map[string]any{"n": int64(3), "f": 1.5, "t": time.Now().Add(-90 * time.Minute).UTC().Format(time.RFC3339), "m": map[string]any{"a": true}, "s": "x"}}
	for _, c := range []struct {
		path, kind string
		want       any
	}{
		{".n", "integer", int64(3)}, {".n", "string", "3"}, {".f", "integer", nil}, {".f", "number", 1.5}, {".t", "date", "90m"},
		{".m", "string", `{"a":true}`}, {".s", "date", "x"}, {".none", "string", nil}, {".m.a", "boolean", true},
	} {
		p, err := parsePath(c.path)
		must(t, err)
		if got := (column{kind: c.kind, path: p}).cell(o); got != c.want {
			t.Errorf("%s as %s: %v, want %v", c.path, c.kind, got, c.want)
		}
	}
}
