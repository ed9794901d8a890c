package declared

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// The parallel tests wait more than they compute. The command line overrides this value.
	if err := flag.Set("test.parallel", "16"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	// Written like editors and kubelets do it: a reader sees the old text or the new text.
	must(t, os.WriteFile(file+".tmp", []byte(text), 0o600))
	must(t, os.Rename(file+".tmp", file))
}

func TestExamplesAreValid(t *testing.T) {
	dir := filepath.Join("..", "..", "..", "deploy", "extserver", "examples")
	s, err := New(Config{Paths: []string{dir}, AllowExec: true})
	must(t, err)
	if len(s.Resources()) != 8 {
		t.Errorf("examples declare %d resources, want 8", len(s.Resources()))
	}
	_, err = New(Config{Paths: []string{dir}})
	if err == nil || !strings.Contains(err.Error(), "exec.yaml:14:7: resources[0].source.exec: running commands is off; start the server with --allow-exec-sources") {
		t.Errorf("New with an exec source that is not allowed: error = %v, want it at exec.yaml:14:7", err)
	}
}

const head = "apiVersion: extension.portico.dev/v1alpha1\nkind: ResourceDefinitions\nresources:\n"

// minimal is a valid resource. It starts on line 4.
const minimal = `- group: stats.example.com
  version: v1
  plural: queues
  kind: Queue
  source: {file: {path: /tmp/queues.json}}
  object:
    name: .id
`

func TestMistakesAreReportedWithPositionAndCause(t *testing.T) {
	for _, c := range []struct {
		situation, text string
		want            []string
	}{
		{"misspelt field", head + minimal + "  shortName: [q]\n",
			[]string{`f.yaml:11:3: resources[0].shortName: unknown field; did you mean "shortNames"?`}},
		{"misspelt field deep inside", head + strings.Replace(minimal, "{file: {path: /tmp/queues.json}}", "{http: {url: 'http://a/', timout: 3s}}", 1),
			[]string{`f.yaml:8:37: resources[0].source.http.timout: unknown field; did you mean "timeout"?`}},
		{"several mistakes", head + strings.NewReplacer("stats.example.com", "stats", "Queue", "queue").Replace(minimal) + "  every: 10\n",
			[]string{
				`f.yaml:4:10: resources[0].group: "stats": must contain a dot, such as stats.example.com`,
				`f.yaml:7:9: resources[0].kind: "queue": must begin with a capital letter`,
				`f.yaml:11:10: resources[0].every: "10": must be a duration between 1s and 24h0m0s, such as 30s`,
			}},
		{"a number where a text belongs", head + strings.Replace(minimal, "version: v1", "version: 1", 1),
			[]string{`f.yaml:5:12: resources[0].version: 1: must be a string; put it in quotes`}},
		{"a list where a mapping belongs", head + strings.Replace(minimal, "object:\n    name: .id", "object: [.id]", 1),
			[]string{`f.yaml:9:11: resources[0].object: a list: must be a mapping of fields`}},
		{"field given twice", head + minimal + "  kind: Other\n", []string{`f.yaml:11:3: resources[0].kind: given twice`}},
		{"nothing required is there", head + "- namespaced: true\n", []string{
			`f.yaml:4:3: resources[0].group: required, such as stats.example.com`, `resources[0].kind: required`,
			`resources[0].version: required, such as v1`, `resources[0].plural: required`, `resources[0].source: required`, `resources[0].object: required`}},
		{"two sources", head + strings.Replace(minimal, "{file:", "{procfs: {table: mounts}, file:", 1),
			[]string{`f.yaml:8:11: resources[0].source: must have exactly one of http, file, prometheus, procfs or exec`}},
		{"unknown source", head + strings.Replace(minimal, "{file:", "{htpp:", 1),
			[]string{`f.yaml:8:12: resources[0].source.htpp: unknown field; did you mean "http"?`}},
		{"unknown table", head + strings.Replace(minimal, "{file: {path: /tmp/queues.json}}", "{procfs: {table: process}}", 1),
			[]string{`resources[0].source.procfs.table: "process": must be loadavg, mounts, netdev or processes; did you mean "processes"?`}},
		{"path without a dot", head + minimal + "  items: data\n", []string{`f.yaml:11:10: resources[0].items: "data": a path begins with a dot, such as .data`}},
		{"path that does not end", head + minimal + "  items: .data[0\n", []string{`".data[0": a bracket does not end`}},
		{"many values for one name", head + strings.Replace(minimal, ".id", "'.ids[*]'", 1), []string{`resources[0].object.name: [*] belongs into items only`}},
		{"brace that does not close", head + strings.Replace(minimal, ".id", "'{.id'", 1), []string{`resources[0].object.name: a "{" has no "}"`}},
		{"namespace of what has none", head + minimal + "    namespace: .team\n", []string{`f.yaml:11:16: resources[0].object.namespace: the resource is not namespaced`}},
		{"namespaced without a namespace", head + minimal + "  namespaced: true\n", []string{`resources[0].object.namespace: required`}},
		{"label key that is none", head + minimal + "    labels: {'a b': .x}\n", []string{`resources[0].object.labels.a b: key "a b"`}},
		{"field in the header", head + minimal + "    fields: {metadata.uid: .x}\n", []string{`"metadata" belongs to the header: use object.name`}},
		{"fields that contain each other", head + minimal + "    fields: {status: .x, status.depth: .y}\n",
			[]string{`resources[0].object.fields.status.depth: cannot be set together with .status`}},
		{"default of another type", head + minimal + "    fields: {status.a: {from: .a, type: integer, default: many}}\n",
			[]string{`resources[0].object.fields.status.a.default: "many": is no integer`}},
		{"column of another type", head + minimal + "  columns: [{name: A, path: .status.a, type: int}]\n",
			[]string{`resources[0].columns[0].type: "int": must be string, integer, number, boolean or date`}},
		{"field from a path without its dot", head + minimal + "    fields: {status.d: depth, status.e: 'depth', status.f: {from: oldest.at}}\n", []string{
			`f.yaml:11:24: resources[0].object.fields.status.d: "depth": is this text for all objects; write .depth for what the item has there, or 'depth' in quotes`,
			`resources[0].object.fields.status.f.from: "oldest.at": is this text for all objects`}},
		{"field from a path with an index, or a hyphen", head + minimal + "    fields:\n      status.d: all[0]\n      status.e: in-hand\n", []string{
			`f.yaml:12:17: resources[0].object.fields.status.d: "all[0]": is this text for all objects; write .all[0]`,
			`f.yaml:13:17: resources[0].object.fields.status.e: "in-hand": is this text for all objects; write .in-hand`}},
		{"column that no field sets", head + minimal + "    fields: {status.d: .depth}\n  columns: [{name: A, path: .status.d}, {name: B, path: .status.depth}, {name: C, path: .metadata.name}]\n  fieldSelectors: [status.e]\n", []string{
			`f.yaml:12:57: resources[0].columns[1].path: ".status.depth": no field of the object is there, only .status.d`,
			`resources[0].fieldSelectors[0]: ".status.e": no field of the object is there, only .status.d`}},
		{"column of what does not show", head + minimal + "  columns: [{name: A, path: .metadata.uid}]\n", []string{`of the metadata .metadata.name`}},
		{"password in an address", head + strings.Replace(minimal, "{file: {path: /tmp/queues.json}}", "{http: {url: 'https://u:p@a/'}}", 1),
			[]string{`must not hold a password: use bearerTokenFile or headersFrom`}},
		{"secret in a header", head + strings.Replace(minimal, "{file: {path: /tmp/queues.json}}", "{http: {url: 'https://a/', headers: {Authorization: x}}}", 1),
			[]string{`secrets do not belong into this file`}},
		{"relative file", head + strings.Replace(minimal, "/tmp/queues.json", "queues.json", 1), []string{`"queues.json": must be an absolute path`}},
		{"insecure and careful at once", head + strings.Replace(minimal, "{file: {path: /tmp/queues.json}}", "{http: {url: 'https://a/', caFile: /a, insecureSkipTLSVerify: true}}", 1),
			[]string{`insecureSkipTLSVerify: cannot be set together with caFile`}},
		{"schema type that is none", head + minimal + "  schema: {type: object, properties: {status: {type: objekt}}}\n",
			[]string{`f.yaml:11:54: resources[0].schema.properties.status.type: "objekt": must be object, array, string, integer, number or boolean`}},
		{"list without elements", head + minimal + "  schema: {type: object, properties: {status: {type: array}}}\n",
			[]string{`resources[0].schema.properties.status.items: required, since type is array`}},
		{"the same resource twice", head + minimal + minimal, []string{`f.yaml:11:3: queues.stats.example.com of version v1 is also declared at`}},
		{"the same kind twice", head + minimal + strings.Replace(minimal, "queues\n", "lines\n", 1), []string{`kind Queue of stats.example.com/v1 is also that of queues`}},
		{"another kind of file", "apiVersion: v1\nkind: ConfigMap\n", []string{
			`f.yaml:1:13: apiVersion: "v1": must be "extension.portico.dev/v1alpha1"`, `f.yaml:2:7: kind: "ConfigMap"`, `resources: required`}},
		{"schema that contains itself", head + minimal + "  schema: &s {type: object, properties: {a: *s}}\n", []string{`anchor 's' value contains itself`}},
		{"list of nothing", "apiVersion: extension.portico.dev/v1alpha1\nkind: ResourceDefinitions\nresources: []\n", []string{
			`f.yaml:3:12: resources: is empty; it needs one resource at least`}},
		{"no list", "apiVersion: extension.portico.dev/v1alpha1\nkind: ResourceDefinitions\nresources:\n", []string{`resources: required`}},
		{"no YAML", "a: [1\nb: 2\n", []string{`not YAML`}},
		{"empty", "", []string{`f.yaml: declares nothing: it must begin with apiVersion`}},
	} {
		t.Run(c.situation, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "f.yaml")
			write(t, file, c.text)
			_, err := New(Config{Paths: []string{file}})
			var mistakes MistakesError
			if !errors.As(err, &mistakes) {
				t.Fatalf("New: error = %v, want a MistakesError", err)
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("mistakes = %v, want one that contains %q", err, want)
				}
			}
			if len(mistakes) != len(c.want) {
				t.Errorf("%d mistakes, want %d:\n%v", len(mistakes), len(c.want), err)
			}
		})
	}
}

func TestYAMLAnchors(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f.yaml")
	second := strings.NewReplacer("queues\n", "lines\n", "Queue", "Line", "{file: {path: /tmp/queues.json}}", "*s").Replace(minimal)
	write(t, file, head+strings.Replace(minimal, "source: ", "source: &s ", 1)+second)
	n, err := Check(Config{Paths: []string{file}})
	must(t, err)
	if n != 2 {
		t.Errorf("Check = %d resources, want 2", n)
	}
}

func FuzzFiles(f *testing.F) {
	f.Add(head + minimal)
	f.Add(head + minimal + "  columns: [{name: A, path: '.a[\"b\"][0]', type: date}]\n  schema: {type: object}\n")
	f.Add("a: &a [*a]\n")
	f.Add("? {a: b}\n: c\n")
	f.Fuzz(func(t *testing.T, text string) {
		file := filepath.Join(t.TempDir(), "f.yaml")
		must(t, os.WriteFile(file, []byte(text), 0o600))
		s, err := New(Config{Paths: []string{file}, AllowExec: true})
		if err == nil && len(s.Resources()) == 0 {
			t.Errorf("New of %q declares no resources and returns no error, want one of both", text)
		}
	})
}
