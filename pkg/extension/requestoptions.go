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

// parseOptions reads the query of a list or watch. The error is a Status: 400 for what cannot be read, 422 for
// combinations that mean nothing, with the rules of kube-apiserver, on which reflectors rely to fall back.
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

// parseVersion reads a resourceVersion: a decimal number, as every version that we issue is.
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
