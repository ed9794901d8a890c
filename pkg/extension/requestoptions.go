package extension

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// parseOptions parses the query of a list or watch. Errors carry a Status: 400 for invalid values, 422 for invalid
// combinations. The rules equal kube-apiserver's, on which reflectors rely for their fallbacks.
func parseOptions(r *http.Request, watch bool) (metav1.ListOptions, error) {
	query := r.URL.Query()
	var options metav1.ListOptions
	if err := metav1.Convert_url_Values_To_v1_ListOptions(&query, &options, nil); err != nil {
		return options, apierrors.NewBadRequest(err.Error())
	}
	options.Watch = watch
	if options.Limit < 0 {
		options.Limit = 0
	}
	if options.Continue != "" && options.ResourceVersion != "" && options.ResourceVersion != "0" {
		return options, apierrors.NewBadRequest("resourceVersion: not together with continue, which stands for one")
	}
	if _, err := parseVersion(options.ResourceVersion); err != nil {
		return options, apierrors.NewBadRequest(err.Error())
	}
	problems := checkListOptions(&options)
	if watch {
		problems = checkWatchOptions(&options)
	}
	if len(problems) > 0 {
		return options, apierrors.NewInvalid(metav1.SchemeGroupVersion.WithKind("ListOptions").GroupKind(), "", problems)
	}
	return options, nil
}

func checkListOptions(o *metav1.ListOptions) (problems field.ErrorList) {
	path := field.NewPath("resourceVersionMatch")
	switch match := o.ResourceVersionMatch; {
	case match == "":
	case o.Continue != "":
		problems = append(problems, field.Forbidden(path, "not together with continue"))
	case o.ResourceVersion == "":
		problems = append(problems, field.Forbidden(path, "needs a resourceVersion"))
	case match != metav1.ResourceVersionMatchExact && match != metav1.ResourceVersionMatchNotOlderThan:
		problems = append(problems, field.NotSupported(path, match,
			[]string{string(metav1.ResourceVersionMatchExact), string(metav1.ResourceVersionMatchNotOlderThan)}))
	case match == metav1.ResourceVersionMatchExact && o.ResourceVersion == "0":
		problems = append(problems, field.Forbidden(path, "Exact is not possible for resourceVersion 0"))
	}
	if o.SendInitialEvents != nil {
		problems = append(problems, field.Forbidden(field.NewPath("sendInitialEvents"), "only for watch"))
	}
	return problems
}

func checkWatchOptions(o *metav1.ListOptions) (problems field.ErrorList) {
	path := field.NewPath("resourceVersionMatch")
	switch match := o.ResourceVersionMatch; {
	case o.SendInitialEvents != nil && match != metav1.ResourceVersionMatchNotOlderThan:
		problems = append(problems, field.Forbidden(path, "sendInitialEvents needs NotOlderThan"))
	case o.SendInitialEvents == nil && match != "":
		problems = append(problems, field.Forbidden(path, "only with sendInitialEvents for watch"))
	}
	return problems
}

// parseVersion parses a resourceVersion. The host only issues decimal numbers.
func parseVersion(text string) (uint64, error) {
	if text == "" {
		return 0, nil
	}
	v, err := strconv.ParseUint(text, 10, 64)
	if err != nil || (text[0] == '0' && text != "0") {
		return 0, fmt.Errorf("resourceVersion %q: must be a decimal number", text)
	}
	return v, nil
}

// selection selects objects of a resource.
type selection struct {
	namespace, name string
	labels          labels.Selector
	fields          fields.Selector
	source          source
}

// parseSelection parses the selectors of a request. Errors are a 400 that lists the supported field labels.
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
	// A namespace in a field selector restricts the query in the same way as a namespace in the path.
	if ns, ok := sel.fields.RequiresExactMatch("metadata.namespace"); ok && sel.namespace == "" && s.namespaced {
		sel.namespace = ns
	}
	return sel, nil
}

// query returns the selection as a Query.
func (sel selection) query() Query {
	return Query{Namespace: sel.namespace, Name: sel.name, Labels: sel.labels, Fields: sel.fields}
}

// matches reports whether the selection contains o.
func (sel selection) matches(o object) bool {
	if sel.namespace != "" && o.GetNamespace() != sel.namespace {
		return false
	}
	if !sel.labels.Empty() && !sel.labels.Matches(labels.Set(o.GetLabels())) {
		return false
	}
	return sel.fields.Empty() || sel.fields.Matches(fieldsOf{o, sel.source})
}

// selectsAll reports whether the selection has no selectors. It may have a namespace.
func (sel selection) selectsAll() bool { return sel.labels.Empty() && sel.fields.Empty() }

// filter returns the selected items in their order. The result may be items itself.
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

// fieldsOf implements fields.Fields for an object without building a map for each object.
type fieldsOf struct {
	object object
	source source
}

// Has returns true for every label, because parseSelection rejects unknown ones.
func (f fieldsOf) Has(string) bool { return true }

func (f fieldsOf) Get(label string) string { return f.source.field(f.object, label) }
