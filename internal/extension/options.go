package extension

import (
	"fmt"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
