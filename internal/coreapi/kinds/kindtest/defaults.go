package kindtest

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// A Default is a manifest from a client, and the complete object after defaulting.
type Default = struct {
	Situation string
	Object    runtime.Object
	In, Want  string
}

func Defaults(t *testing.T, cases []Default) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.Situation, func(t *testing.T) { Defaulted(t, c.Object, c.In, c.Want) })
	}
}

// Defaulted defaults an object twice. The second time, as when the object is read from storage, must not change it.
func Defaulted(t *testing.T, obj runtime.Object, in, want string) {
	t.Helper()
	scheme := runtime.NewScheme()
	RegisterDefaults(scheme)
	if err := yaml.UnmarshalStrict([]byte(in), obj); err != nil {
		t.Fatal(err)
	}
	for _, when := range []string{"once", "twice"} {
		scheme.Default(obj)
		got, err := yaml.Marshal(obj)
		if err != nil {
			t.Fatal(err)
		}
		if normal := normalize(t, want); string(got) != normal {
			t.Errorf("%s: got\n%s\nwant\n%s", when, got, normal)
		}
	}
}

// normalize formats YAML as the encoder does, so that documents can be compared as text.
func normalize(t *testing.T, document string) string {
	t.Helper()
	var parsed map[string]any
	if err := yaml.Unmarshal([]byte(document), &parsed); err != nil {
		t.Fatalf("%v in\n%s", err, document)
	}
	out, err := yaml.Marshal(parsed)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}
