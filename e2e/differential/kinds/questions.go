package kinds

import (
	"maps"
	"slices"
	"strings"
)

// dry makes a write a dry run.
const dry = "?dryRun=All&fieldManager=kinds"

// questions returns the requests about one subject, in order. The first one creates it and the last one deletes it.
func (s subject) questions() []question {
	var out []question
	name := s.Names
	one := s.At + "/" + name
	add := func(q question) {
		q.Name = s.String() + ": " + q.Name
		if strings.HasPrefix(s.Kind, "certificates.") { // the object contains its creator
			q.As, q.Groups = "somebody", []string{"system:masters"}
		}
		out = append(out, q)
	}
	var under path
	if s.Under != "" {
		under = strings.Split(s.Under, ".")
	}
	changed := mutations(s.Object, s.fixture, under)
	for _, m := range changed {
		add(question{Name: "create with " + m.name, Method: "POST", Path: s.At + dry, Body: m.object})
	}
	if s.Under == "" {
		for _, q := range s.names() {
			add(q)
		}
	}
	add(question{Name: "create", Method: "POST", Path: s.At + "?fieldManager=kinds", Body: s.Object})
	add(question{Name: "create again", Method: "POST", Path: s.At + "?fieldManager=kinds", Body: s.Object})
	add(question{Name: "strict", Method: "PUT", Path: one + dry + "&fieldValidation=Strict", Body: with(s.Object, path{"unknown"}, "x")})
	table := question{Name: "as a table", Method: "GET", Path: one, Accept: "application/json;as=Table;g=meta.k8s.io;v=v1"}
	if s.Kind == "apiextensions.k8s.io.v1.CustomResourceDefinition" {
		table.Await = map[string]string{"body.rows.0.cells.7": "true"} // Established, set by a controller
	}
	add(table)
	for _, m := range changed {
		add(question{Name: "update with " + m.name, Method: "PUT", Path: one + dry, Body: m.object})
	}
	for _, m := range s.metadata() {
		add(question{Name: "update with " + m.name, Method: "PUT", Path: one + dry, Body: m.object})
	}
	if s.fixture != nil {
		status, _ := lookup(s.fixture, path{"status"})
		fixture, _ := status.(map[string]any)
		for _, field := range slices.Sorted(maps.Keys(fixture)) {
			add(question{Name: "status with " + field + " of the fixture", Method: "PUT", Path: one + "/status" + dry,
				Body: with(s.Object, path{"status"}, map[string]any{field: fixture[field]})})
		}
	}
	apply := map[string]any{"apiVersion": s.Object["apiVersion"], "kind": s.Object["kind"], "metadata": map[string]any{"name": name, "labels": map[string]any{"applied": "yes"}}}
	whole := maps.Clone(s.Object)
	add(question{Name: "apply", Method: "PATCH", Path: one + "?dryRun=All&fieldManager=other", Type: "application/apply-patch+yaml", Body: apply})
	add(question{Name: "apply all", Method: "PATCH", Path: one + "?dryRun=All&fieldManager=other", Type: "application/apply-patch+yaml", Body: whole})
	if s.fixture != nil {
		add(question{Name: "apply the fixture", Method: "PATCH", Path: one + "?dryRun=All&fieldManager=other", Type: "application/apply-patch+yaml", Body: with(with(s.fixture, path{"metadata"}, s.Object["metadata"]), path{"status"}, gone{})})
		add(question{Name: "the fixture", Method: "POST", Path: s.At + dry, Body: with(s.fixture, path{"metadata"}, s.Object["metadata"])})
	}
	add(question{Name: "patch nothing", Method: "PATCH", Path: one + dry, Type: "application/merge-patch+json", Body: map[string]any{}})
	add(question{Name: "delete another", Method: "DELETE", Path: one, Body: map[string]any{"preconditions": map[string]any{"uid": "no"}}})
	add(question{Name: "delete", Method: "DELETE", Path: one + "?gracePeriodSeconds=0"})
	add(question{Name: "delete again", Method: "DELETE", Path: one})
	return out
}

// names returns creations with names that not every kind accepts.
func (s subject) names() []question {
	var out []question
	for _, name := range []string{"", "A", "a_b", "a.b", "a:b", "a/b", "..", "-a", "1a", strings.Repeat("a", 64), strings.Repeat("a", 254)} {
		out = append(out, question{Name: "create the name " + name, Method: "POST", Path: s.At + dry, Body: with(s.Object, path{"metadata", "name"}, name)})
	}
	for _, prefix := range []string{"random-", "Random-", strings.Repeat("r", 300)} {
		out = append(out, question{Name: "create a name from " + prefix, Method: "POST", Path: s.At + dry,
			Body: with(with(s.Object, path{"metadata", "name"}, gone{}), path{"metadata", "generateName"}, prefix)})
	}
	return out
}

// metadata returns variants of an object's metadata.
func (s subject) metadata() []mutation {
	var out []mutation
	for _, c := range []struct {
		name  string
		value any
	}{
		{"labels", map[string]any{"a/b/c": "v"}}, {"labels", map[string]any{"a": "-"}}, {"annotations", map[string]any{"A b": "v"}},
		{"finalizers", []any{"x"}}, {"finalizers", []any{"example.com/x"}}, {"uid", "other"}, {"resourceVersion", "1"}, {"resourceVersion", "x"},
		{"name", "other"}, {"namespace", "other"}, {"generation", 7}, {"deletionGracePeriodSeconds", 7},
		{"ownerReferences", []any{map[string]any{"apiVersion": "v1", "kind": "Pod", "name": "p"}}},
		{"ownerReferences", []any{map[string]any{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": true}, map[string]any{"apiVersion": "v1", "kind": "Pod", "name": "q", "uid": "w", "controller": true}}},
		{"managedFields", []any{map[string]any{"manager": "m"}}},
	} {
		out = append(out, mutation{"metadata." + c.name + " " + text(c.value), with(s.Object, path{"metadata", c.name}, c.value)})
	}
	return out
}
