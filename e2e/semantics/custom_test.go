package semantics

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const definitionsPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

// custom is a definition of things in the group NAME.example.com, with the schema of v1 and more fields of the spec.
func custom(name, schema, more string) string {
	return strings.NewReplacer("NAME", name, "SCHEMA", schema, "MORE", more).Replace(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.NAME.example.com}
spec: {group: NAME.example.com, scope: Cluster, names: {plural: things, singular: thing, kind: Thing},
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {spec: SCHEMA}}}}]MORE}`)
}

// things is the collection that custom defines.
func things(name string) string { return "/apis/" + name + ".example.com/v1/things" }

// thing is an object in YAML with a spec.
func thing(group, name, spec string) []byte {
	return []byte("{apiVersion: " + group + ".example.com/v1, kind: Thing, metadata: {name: " + name + "}, spec: " + spec + "}")
}

// edit changes a definition as kubectl patch does, and waits until upstream's handler has taken it in: each follows the
// definitions for itself.
func edit(t *testing.T, name, patch string) {
	t.Helper()
	call(t, http.MethodPatch, definitionsPath+"/"+name, []byte(patch), "Content-Type", jsonPatch).want(http.StatusOK)
}

func post(t *testing.T, path string, inYAML []byte) *answer {
	t.Helper()
	return call(t, http.MethodPost, path, inYAML, "Content-Type", mediaYAML)
}

func TestDefinitionsThatAreRefused(t *testing.T) {
	for what, c := range map[string]struct{ text, says string }{
		"a schema that is not structural": {custom("refused", "{properties: {a: {type: string}}}", ""), "properties[spec].type: Required value"},
		"a name that is not its own":      {strings.Replace(custom("refused", "{type: object}", ""), "name: things.", "name: stuff.", 1), "must be spec.names.plural"},
		"two stored versions": {strings.Replace(custom("refused", "{type: object}", ""), "versions: [",
			"versions: [{name: v2, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}, ", 1), "must have exactly one version marked as storage version"},
		"a default of the wrong type":     {custom("refused", "{type: object, properties: {n: {type: integer, default: many}}}", ""), "must be of type integer"},
		"a rule that is not CEL":          {custom("refused", "{type: object, x-kubernetes-validations: [{rule: 'self.'}]}", ""), "compilation failed"},
		"unknown fields kept everywhere":  {custom("refused", "{type: object}", ", preserveUnknownFields: true"), "preserveUnknownFields"},
		"a selectable field that is none": {strings.Replace(custom("refused", "{type: object}", ""), "served: true,", "served: true, selectableFields: [{jsonPath: .spec.a}],", 1), "selectableFields"},
	} {
		post(t, definitionsPath, []byte(c.text)).says(c.says).refused(http.StatusUnprocessableEntity, "Invalid")
		_ = what
	}
	approved := strings.ReplaceAll(custom("refused", "{type: object}", ""), "refused.example.com", "refused.k8s.io")
	post(t, definitionsPath, []byte(approved)).says("api-approved.kubernetes.io").want(http.StatusUnprocessableEntity)
}

func TestPruningAndDefaulting(t *testing.T) {
	define(t, custom("pruned", `{type: object, properties: {
		known: {type: string, default: white}, nullable: {type: string, nullable: true, default: grey}, plain: {type: string, default: black},
		open: {type: object, x-kubernetes-preserve-unknown-fields: true, properties: {closed: {type: object, properties: {a: {type: string}}}}},
		embedded: {type: object, x-kubernetes-embedded-resource: true, x-kubernetes-preserve-unknown-fields: true},
		either: {x-kubernetes-int-or-string: true}}}`, ""))
	at := things("pruned")
	got := post(t, at, thing("pruned", "a", `{unknown: 1, nullable: null, plain: null, either: "10%",
		open: {unknown: 1, closed: {a: b, unknown: 1}}, embedded: {apiVersion: v1, kind: Pod, metadata: {name: a, unknown: 1}, spec: {a: b}}}`)).want(http.StatusCreated).object()
	const want = `map[either:10% embedded:map[apiVersion:v1 kind:Pod metadata:map[name:a] spec:map[a:b]] known:white nullable:<nil> open:map[closed:map[a:b] unknown:1] plain:black]`
	if spec := fmt.Sprint(got.Object["spec"]); spec != want {
		t.Errorf("spec = %s\nwant %s", spec, want)
	}
	// A default that is added later applies to stored objects too, and so does the removal of a field.
	edit(t, "things.pruned.example.com", `[{"op":"add","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/late","value":{"type":"integer","default":7}},
		{"op":"remove","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/either"}]`)
	eventually(t, func() error {
		spec := call(t, http.MethodGet, at+"/a", nil).want(http.StatusOK).object().Object["spec"].(map[string]any)
		if _, there := spec["either"]; there || spec["late"] != int64(7) {
			return fmt.Errorf("the spec is %v", spec)
		}
		return nil
	})
}

func TestRules(t *testing.T) {
	define(t, custom("ruled", `{type: object, properties: {min: {type: integer}, max: {type: integer}, name: {type: string, maxLength: 20, x-kubernetes-validations: [{rule: self == oldSelf, message: the name stays}]},
		tags: {type: array, maxItems: 10, items: {type: string, maxLength: 5}}},
		x-kubernetes-validations: [{rule: self.min <= self.max, messageExpression: "'%d is more than %d'.format([self.min, self.max])", fieldPath: .min, reason: FieldValueForbidden}]}`, ""))
	at := things("ruled")
	status := post(t, at, thing("ruled", "a", "{min: 3, max: 2}")).refused(http.StatusUnprocessableEntity, "Invalid")
	if c := status.Details.Causes; len(c) != 1 || c[0].Type != "FieldValueForbidden" || c[0].Field != "spec.min" || !strings.Contains(c[0].Message, "3 is more than 2") {
		t.Errorf("causes = %+v, want spec.min with the rule's message", status.Details.Causes)
	}
	post(t, at, thing("ruled", "a", "{min: 1, max: 2, name: first, tags: [long, longer]}")).says("Too long").want(http.StatusUnprocessableEntity)
	post(t, at, thing("ruled", "a", "{min: 1, max: 2, name: first}")).want(http.StatusCreated)
	change := func(patch string) *answer {
		return call(t, http.MethodPatch, at+"/a", []byte(patch), "Content-Type", mergePatch)
	}
	change(`{"spec":{"name":"second"}}`).says("the name stays").refused(http.StatusUnprocessableEntity, "Invalid")
	change(`{"spec":{"max":5}}`).want(http.StatusOK)
	// A rule that is added later refuses new values, and accepts stored values that have not changed (ratcheting).
	edit(t, "things.ruled.example.com", `[{"op":"add","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/max/x-kubernetes-validations",
		"value":[{"rule":"self >= 10","message":"too little"}]},{"op":"add","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/min/minimum","value":10}]`)
	eventually(t, func() error {
		if a := post(t, at+"?dryRun=All", thing("ruled", "b", "{min: 10, max: 2}")); !strings.Contains(string(a.body), "too little") {
			return errText(a.head())
		}
		return nil
	})
	change(`{"metadata":{"labels":{"a":"b"}}}`).want(http.StatusOK)
	change(`{"spec":{"tags":["new"]}}`).want(http.StatusOK)
	change(`{"spec":{"max":6}}`).says("too little").want(http.StatusUnprocessableEntity)
	change(`{"spec":{"min":2}}`).says("should be greater than or equal to 10").want(http.StatusUnprocessableEntity)
}

// condition is the status and the reason of a condition of a definition.
func condition(t *testing.T, definition, of string) string {
	t.Helper()
	crd := call(t, http.MethodGet, definitionsPath+"/"+definition, nil).want(http.StatusOK).object()
	conditions, _, _ := unstructured.NestedSlice(crd.Object, "status", "conditions")
	for _, c := range conditions {
		if c := c.(map[string]any); c["type"] == of {
			return c["status"].(string) + " " + c["reason"].(string)
		}
	}
	return ""
}

func waitForCondition(t *testing.T, definition, of, want string) {
	t.Helper()
	eventually(t, func() error {
		if got := condition(t, definition, of); got != want {
			return fmt.Errorf("%s is %q, want %q", of, got, want)
		}
		return nil
	})
}

// Of two definitions with the same names, the first one has them until it is deleted.
func TestNamesThatAreTaken(t *testing.T) {
	define(t, custom("taken", "{type: object}", ""))
	waitForCondition(t, "things.taken.example.com", "NamesAccepted", "True NoConflicts")
	waitForCondition(t, "things.taken.example.com", "Established", "True InitialNamesAccepted")
	second := strings.NewReplacer("plural: things", "listKind: StuffList, plural: stuff", "name: things", "name: stuff").Replace(custom("taken", "{type: object}", ""))
	post(t, definitionsPath, []byte(second)).want(http.StatusCreated)
	t.Cleanup(func() {
		call(t, http.MethodDelete, definitionsPath+"/stuff.taken.example.com", nil).want(http.StatusOK)
	})
	waitForCondition(t, "stuff.taken.example.com", "NamesAccepted", "False KindConflict")
	waitForCondition(t, "stuff.taken.example.com", "Established", "False NotAccepted")
	call(t, http.MethodGet, "/apis/taken.example.com/v1/stuff", nil).refused(http.StatusNotFound, "NotFound")
	call(t, http.MethodDelete, definitionsPath+"/things.taken.example.com", nil).want(http.StatusOK)
	waitForCondition(t, "stuff.taken.example.com", "NamesAccepted", "True NoConflicts")
	waitForCondition(t, "stuff.taken.example.com", "Established", "True InitialNamesAccepted")
	eventually(t, func() error {
		if a := call(t, http.MethodGet, "/apis/taken.example.com/v1/stuff", nil); a.code != http.StatusOK {
			return errText(a.head())
		}
		return nil
	})
}

// The deletion of a definition deletes its objects, each with its finalizers, and refuses new ones.
func TestDeletionOfADefinition(t *testing.T) {
	define(t, custom("finalized", "{type: object, x-kubernetes-preserve-unknown-fields: true}", ""))
	at, name := things("finalized"), "things.finalized.example.com"
	created := call(t, http.MethodGet, definitionsPath+"/"+name, nil).want(http.StatusOK).object()
	if f := created.GetFinalizers(); len(f) > 0 && f[0] != "customresourcecleanup.apiextensions.k8s.io" {
		t.Errorf("finalizers of the definition = %v, want the cleanup's first", f)
	}
	post(t, at, []byte("{apiVersion: finalized.example.com/v1, kind: Thing, metadata: {name: kept, finalizers: [example.com/wait]}}")).want(http.StatusCreated)
	post(t, at, thing("finalized", "loose", "{}")).want(http.StatusCreated)
	w := openWatch(t, at+"?watch=true&fieldSelector=metadata.name%3Dkept")
	w.next()
	call(t, http.MethodDelete, definitionsPath+"/"+name, nil).want(http.StatusOK)
	waitForCondition(t, name, "Terminating", "True InstanceDeletionInProgress")
	eventually(t, func() error {
		if a := call(t, http.MethodGet, at+"/loose", nil); a.code != http.StatusNotFound {
			return errText(a.head())
		}
		if a := post(t, at, thing("finalized", "new", "{}")); a.code != http.StatusForbidden || !strings.Contains(string(a.body), "while custom resource definition is terminating") {
			return fmt.Errorf("a new one: %d %s", a.code, a.head())
		}
		return nil
	})
	if e := w.next(); e.Type != "MODIFIED" || e.Object.GetDeletionTimestamp() == nil {
		t.Errorf("watch event = %s, want MODIFIED with a deletion timestamp", e)
	}
	call(t, http.MethodPatch, at+"/kept", []byte(`{"metadata":{"finalizers":null}}`), "Content-Type", mergePatch).want(http.StatusOK)
	eventually(t, func() error {
		if a := call(t, http.MethodGet, definitionsPath+"/"+name, nil); a.code != http.StatusNotFound {
			return errText(a.head())
		}
		return nil
	})
	eventually(t, func() error {
		if a := call(t, http.MethodGet, at, nil); a.code != http.StatusNotFound {
			return fmt.Errorf("%d %s", a.code, a.head())
		}
		return nil
	})
	// A new definition of that name has no objects.
	define(t, custom("finalized", "{type: object}", ""))
	if got := call(t, http.MethodGet, at, nil).want(http.StatusOK).object(); len(got.Object["items"].([]any)) != 0 {
		t.Errorf("items after the definition was created again = %v, want none", got.Object["items"])
	}
}
