package openapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"portico.dev/internal/respond"
)

// opened returns a version 2 document in the form that openSwagger requires: without white space.
func opened(t testing.TB, asJSON string) *swagger {
	t.Helper()
	var compact bytes.Buffer
	if err := json.Compact(&compact, []byte(asJSON)); err != nil {
		t.Fatal(err)
	}
	s, err := openSwagger(compact.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// describing returns a document with those definitions and paths, each of which refers to one definition.
func describing(paths map[string]string, definitions map[string]string) string {
	var p, d []string
	for path, name := range paths {
		p = append(p, fmt.Sprintf(`%q:{"get":{"schema":{"$ref":"#/definitions/%s"}}}`, path, name))
	}
	for name, body := range definitions {
		d = append(d, fmt.Sprintf(`%q:%s`, name, body))
	}
	return fmt.Sprintf(`{"swagger":"2.0","info":{"title":"x","version":"1"},"paths":{%s},"definitions":{%s}}`, strings.Join(p, ","), strings.Join(d, ","))
}

func TestMergeV2(t *testing.T) {
	gadget, other := `{"type":"object","description":"a gadget"}`, `{"type":"object","description":"not a gadget"}`
	for name, c := range map[string]struct {
		members []string
		want    string // everything but swagger and info
	}{
		"nothing in common": {
			members: []string{describing(map[string]string{"/a": "A"}, map[string]string{"A": gadget}), describing(map[string]string{"/b": "B"}, map[string]string{"B": other})},
			want:    `{"paths":{"/a":{"get":{"schema":{"$ref":"#/definitions/A"}}},"/b":{"get":{"schema":{"$ref":"#/definitions/B"}}}},"definitions":{"A":` + gadget + `,"B":` + other + `}}`,
		},
		"the same definition in both": {
			members: []string{describing(map[string]string{"/a": "A"}, map[string]string{"A": gadget}), describing(map[string]string{"/b": "A"}, map[string]string{"A": gadget})},
			want:    `{"paths":{"/a":{"get":{"schema":{"$ref":"#/definitions/A"}}},"/b":{"get":{"schema":{"$ref":"#/definitions/A"}}}},"definitions":{"A":` + gadget + `}}`,
		},
		"one name for two things": {
			members: []string{describing(map[string]string{"/a": "A"}, map[string]string{"A": gadget}), describing(map[string]string{"/b": "A"}, map[string]string{"A": other})},
			want:    `{"paths":{"/a":{"get":{"schema":{"$ref":"#/definitions/A"}}},"/b":{"get":{"schema":{"$ref":"#/definitions/A_v2"}}}},"definitions":{"A":` + gadget + `,"A_v2":` + other + `}}`,
		},
		"a third that means what the second does": {
			members: []string{
				describing(map[string]string{"/a": "A"}, map[string]string{"A": gadget}), describing(map[string]string{"/b": "A"}, map[string]string{"A": other}),
				describing(map[string]string{"/c": "A"}, map[string]string{"A": other}),
			},
			want: `{"paths":{"/a":{"get":{"schema":{"$ref":"#/definitions/A"}}},"/b":{"get":{"schema":{"$ref":"#/definitions/A_v2"}}},"/c":{"get":{"schema":{"$ref":"#/definitions/A_v2"}}}},"definitions":{"A":` + gadget + `,"A_v2":` + other + `}}`,
		},
		"a new name that a neighbour has already": {
			members: []string{
				describing(map[string]string{"/a": "A"}, map[string]string{"A": gadget}),
				describing(map[string]string{"/b": "A", "/c": "A_v2"}, map[string]string{"A": other, "A_v2": gadget}),
			},
			want: `{"paths":{"/a":{"get":{"schema":{"$ref":"#/definitions/A"}}},"/b":{"get":{"schema":{"$ref":"#/definitions/A_v2"}}},"/c":{"get":{"schema":{"$ref":"#/definitions/A_v2_v2"}}}},"definitions":{"A":` + gadget + `,"A_v2":` + other + `,"A_v2_v2":` + gadget + `}}`,
		},
		"equal to the letter, but referring to what is not": {
			members: []string{
				describing(map[string]string{"/a": "A"}, map[string]string{"A": `{"items":{"$ref":"#/definitions/B"}}`, "B": gadget}),
				describing(map[string]string{"/b": "A"}, map[string]string{"A": `{"items":{"$ref":"#/definitions/B"}}`, "B": other}),
			},
			want: `{"paths":{"/a":{"get":{"schema":{"$ref":"#/definitions/A"}}},"/b":{"get":{"schema":{"$ref":"#/definitions/A_v2"}}}},
				"definitions":{"A":{"items":{"$ref":"#/definitions/B"}},"A_v2":{"items":{"$ref":"#/definitions/B_v2"}},"B":` + gadget + `,"B_v2":` + other + `}}`,
		},
		"a definition that refers to itself": {
			members: []string{
				describing(map[string]string{"/a": "A"}, map[string]string{"A": `{"items":{"$ref":"#/definitions/A"}}`}),
				describing(map[string]string{"/b": "A"}, map[string]string{"A": `{"description":"other","items":{"$ref":"#/definitions/A"}}`}),
				describing(map[string]string{"/c": "A"}, map[string]string{"A": `{"description":"other","items":{"$ref":"#/definitions/A"}}`}),
			},
			want: `{"paths":{"/a":{"get":{"schema":{"$ref":"#/definitions/A"}}},"/b":{"get":{"schema":{"$ref":"#/definitions/A_v2"}}},"/c":{"get":{"schema":{"$ref":"#/definitions/A_v2"}}}},
				"definitions":{"A":{"items":{"$ref":"#/definitions/A"}},"A_v2":{"description":"other","items":{"$ref":"#/definitions/A_v2"}}}}`,
		},
		"definitions that differ in their kinds only": {
			members: []string{
				describing(map[string]string{"/a": "A"}, map[string]string{"A": `{"type":"object","x-kubernetes-group-version-kind":[{"group":"a","kind":"A","version":"v1"}]}`}),
				describing(map[string]string{"/b": "A"}, map[string]string{"A": `{"type":"object","x-kubernetes-group-version-kind":[{"group":"a","kind":"A","version":"v1"},{"group":"b","kind":"A","version":"v1"}]}`}),
				describing(map[string]string{"/c": "A"}, map[string]string{"A": `{"type":"object"}`}),
			},
			want: `{"paths":{"/a":{"get":{"schema":{"$ref":"#/definitions/A"}}},"/b":{"get":{"schema":{"$ref":"#/definitions/A"}}},"/c":{"get":{"schema":{"$ref":"#/definitions/A"}}}},
				"definitions":{"A":{"type":"object","x-kubernetes-group-version-kind":[{"group":"a","kind":"A","version":"v1"},{"group":"b","kind":"A","version":"v1"}]}}}`,
		},
		"a path twice, beside paths that begin like it": {
			members: []string{
				describing(map[string]string{"/apis/g/v1/foos": "A"}, map[string]string{"A": gadget}),
				describing(map[string]string{"/apis/g/v1/": "B", "/apis/g/v1/foos": "C", "/apis/g/v1/foos/{name}": "B", "/apis/g/v1/foosbars": "B"}, map[string]string{"B": gadget, "C": other}),
			},
			want: `{"paths":{"/apis/g/v1/":{"get":{"schema":{"$ref":"#/definitions/B"}}},"/apis/g/v1/foos":{"get":{"schema":{"$ref":"#/definitions/A"}}},
				"/apis/g/v1/foos/{name}":{"get":{"schema":{"$ref":"#/definitions/B"}}},"/apis/g/v1/foosbars":{"get":{"schema":{"$ref":"#/definitions/B"}}}},
				"definitions":{"A":` + gadget + `,"B":` + gadget + `}}`,
		},
		"shared parameters": {
			members: []string{
				`{"paths":{"/a":{"parameters":[{"$ref":"#/parameters/p"}]}},"parameters":{"p":{"name":"p","in":"path"}}}`,
				`{"paths":{"/b":{"parameters":[{"$ref":"#/parameters/p"}]}},"parameters":{"p":{"name":"p","in":"query"}}}`,
			},
			want: `{"paths":{"/a":{"parameters":[{"$ref":"#/parameters/p"}]},"/b":{"parameters":[{"$ref":"#/parameters/p_v2"}]}},"parameters":{"p":{"name":"p","in":"path"},"p_v2":{"name":"p","in":"query"}}}`,
		},
		"names that have to be escaped": {
			members: []string{
				`{"paths":{"/a":{"$ref":"#/definitions/List%5Ba~1b%5D"}},"definitions":{"List[a/b]":{"type":"object"}}}`,
				`{"paths":{"/b":{"$ref":"#/definitions/List%5Ba~1b%5D"}},"definitions":{"List[a/b]":{"type":"array"}}}`,
			},
			want: `{"paths":{"/a":{"$ref":"#/definitions/List%5Ba~1b%5D"},"/b":{"$ref":"#/definitions/List%5Ba~1b%5D_v2"}},"definitions":{"List[a/b]":{"type":"object"},"List[a/b]_v2":{"type":"array"}}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var want bytes.Buffer
			if err := json.Compact(&want, []byte(c.want)); err != nil {
				t.Fatal(err)
			}
			for range 20 { // the iteration order of maps differs each time
				u := newSwaggerMerger()
				for _, m := range c.members {
					u.add(opened(t, m))
				}
				u.info = nil
				var got bytes.Buffer
				u.write(&got)
				if _, rest, _ := strings.Cut(got.String(), `"paths"`); `{"paths"`+rest != want.String() {
					t.Fatalf("merged document = %s, want %s", `{"paths"`+rest, want.String())
				}
			}
		})
	}
}

func TestCompressedDocumentsAreComplete(t *testing.T) {
	u := newSwaggerMerger()
	u.add(opened(t, describing(map[string]string{"/a": "A"}, map[string]string{"A": `{"description":"<&> \u2028 \"$ref\":\"#/definitions/none\""}`})))
	d, err := u.pack()
	if err != nil {
		t.Fatal(err)
	}
	r, err := respond.Unpack(d.Packed)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(r)
	if err != nil || respond.Hash(body) != d.Hash || len(body) != d.size() || !json.Valid(body) {
		t.Errorf("document = %s, error %v, want valid JSON with the hash and the size of the merge", body, err)
	}
	if got := references(body); !slices.Equal(got, []string{"definitions/A"}) {
		t.Errorf("references = %q, want %q", got, []string{"definitions/A"})
	}
}
