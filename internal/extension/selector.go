package extension

import (
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

// selection is which objects of a resource one request wants.
type selection struct {
	namespace, name string
	labels          labels.Selector
	fields          fields.Selector
	source          source
}

// parseSelection reads the selectors of a request. The error is a Status: 400 with what would have been accepted.
func parseSelection(s Resource, namespace, labelSelector, fieldSelector string) (selection, error) {
	sel := selection{namespace: namespace, source: s.source}
	var err error
	if sel.labels, err = labels.Parse(labelSelector); err != nil {
		return sel, apierrors.NewBadRequest(fmt.Sprintf("labelSelector %q: %v", labelSelector, err))
	}
	if sel.fields, err = fields.ParseSelector(fieldSelector); err != nil {
		return sel, apierrors.NewBadRequest(fmt.Sprintf("fieldSelector %q: %v", fieldSelector, err))
	}
	known := append([]string{"metadata.name", "metadata.namespace"}, s.source.fieldLabels()...)
	slices.Sort(known[2:])
	for _, requirement := range sel.fields.Requirements() {
		if !slices.Contains(known, requirement.Field) {
			return sel, apierrors.NewBadRequest(fmt.Sprintf("%q is not a known field selector: only \"%s\"",
				requirement.Field, strings.Join(known, `", "`)))
		}
	}
	if name, ok := sel.fields.RequiresExactMatch("metadata.name"); ok {
		sel.name = name
	}
	// A namespace that is asked for by selector narrows the query as the one in the path does.
	if ns, ok := sel.fields.RequiresExactMatch("metadata.namespace"); ok && sel.namespace == "" && s.namespaced {
		sel.namespace = ns
	}
	return sel, nil
}

// query is the selection in the words of a provider.
func (sel selection) query() Query {
	return Query{Namespace: sel.namespace, Name: sel.name, Labels: sel.labels, Fields: sel.fields}
}

// matches reports whether o is wanted.
func (sel selection) matches(o object) bool {
	if sel.namespace != "" && o.GetNamespace() != sel.namespace {
		return false
	}
	if !sel.labels.Empty() && !sel.labels.Matches(labels.Set(o.GetLabels())) {
		return false
	}
	return sel.fields.Empty() || sel.fields.Matches(fieldsOf{o, sel.source})
}

// selectsAll reports whether nothing but the namespace narrows the selection.
func (sel selection) selectsAll() bool { return sel.labels.Empty() && sel.fields.Empty() }

// filter keeps what is wanted, in the order that it has. The result may be items itself.
func (sel selection) filter(items []object) []object {
	if sel.selectsAll() && sel.namespace == "" {
		return items
	}
	out := make([]object, 0, len(items))
	for _, o := range items {
		if sel.matches(o) {
			out = append(out, o)
		}
	}
	return out
}

// fieldsOf shows the selectable fields of an object to a field selector without building a map for each object.
type fieldsOf struct {
	object object
	source source
}

// Has is true for every label: parseSelection has refused the others.
func (f fieldsOf) Has(string) bool { return true }

func (f fieldsOf) Get(label string) string { return f.source.field(f.object, label) }
