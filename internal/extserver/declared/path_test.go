package declared

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	"k8s.io/client-go/util/jsonpath"
)

const pathDocument = `{
	"a": {"b": "x", "b.c": "dotted", "n": 3, "yes": true, "none": null},
	"list": [{"k": "one"}, {"k": "two"}, {"other": 1}],
	"deep": [{"in": [{"v": 1}, {"v": 2}]}, {"in": [{"v": 3}]}]
}`

// Paths are a subset of client-go's JSONPath and have the same results. A path without a result is an error or an empty result in
// JSONPath.
func TestPathsMatchJSONPath(t *testing.T) {
	var document any
	if err := json.Unmarshal([]byte(pathDocument), &document); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		".a.b", "$.a.b", ".a['b.c']", ".a.n", ".a.yes", ".list[0].k", ".list[1]", ".list[-1].other", ".list[7]", ".nowhere", ".a.b.c",
		".list[*].k", ".list[*]", ".deep[*].in[*].v",
	} {
		t.Run(text, func(t *testing.T) {
			p, err := parsePath(text)
			if err != nil {
				t.Fatal(err)
			}
			var ours []any
			if p.many() {
				items, err := p.items(document)
				if err != nil {
					t.Fatal(err)
				}
				for _, it := range items {
					ours = append(ours, it.value)
				}
			} else if v, ok := p.find(document); ok {
				ours = append(ours, v)
			}
			library := jsonpath.New("").AllowMissingKeys(true)
			escaped := strings.ReplaceAll(text, "'b.c'", `'b\.c'`) // kubectl's syntax for a name with a dot
			if err := library.Parse("{" + escaped + "}"); err != nil {
				t.Fatal(err)
			}
			found, err := library.FindResults(document)
			var theirs []any
			if err == nil {
				for _, v := range found[0] {
					theirs = append(theirs, v.Interface())
				}
			}
			if !reflect.DeepEqual(ours, theirs) {
				t.Errorf("path = %v, want the result of JSONPath, %v (error %v)", ours, theirs, err)
			}
		})
	}
}

// An expression equals a CEL expression that concatenates the same values.
func TestExpressionsMatchCEL(t *testing.T) {
	var document any
	if err := json.Unmarshal([]byte(pathDocument), &document); err != nil {
		t.Fatal(err)
	}
	environment, err := cel.NewEnv(cel.Variable("item", cel.DynType), cel.Variable("key", cel.StringType))
	if err != nil {
		t.Fatal(err)
	}
	for text, program := range map[string]string{
		"@key":                `key`,
		"plain":               `"plain"`,
		".a.b":                `item.a.b`,
		"{.a.b}-{.list[0].k}": `item.a.b + "-" + item.list[0].k`,
		"{@key}/{.a.n}":       `key + "/" + string(item.a.n)`,
		"is {.a.yes}":         `"is " + string(item.a.yes)`,
	} {
		e, err := parseExpression(text)
		if err != nil {
			t.Fatal(err)
		}
		ours, ok := e.text(item{value: document, key: "k"})
		ast, issues := environment.Compile(program)
		if issues.Err() != nil {
			t.Fatal(issues.Err())
		}
		run, err := environment.Program(ast)
		if err != nil {
			t.Fatal(err)
		}
		out, _, err := run.Eval(map[string]any{"item": document, "key": "k"})
		if err != nil || !ok || ours != out.Value() {
			t.Errorf("%s = %q, %t, want the result of CEL, %v (error %v)", text, ours, ok, out, err)
		}
	}
}
