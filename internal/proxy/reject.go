package proxy

import (
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// checkInitialEvents refuses a watch that asks for initial events, for backends that would take it for a plain watch and
// leave the client waiting for the bookmark at their end for ever (kubernetes/kubernetes#140890, antrea#8123). To a 422
// client-go answers with a list and a plain watch, which every server can do.
func (x *exchange) checkInitialEvents() error {
	if !x.target.RejectSendInitialEvents || x.info == nil || x.info.Verb != "watch" || !asksInitialEvents(x.r.URL) {
		return nil
	}
	return apierrors.NewInvalid(schema.GroupKind{Group: "meta.k8s.io", Kind: "ListOptions"}, "", field.ErrorList{
		field.Forbidden(field.NewPath("sendInitialEvents"),
			"the extension server of APIService "+x.target.APIService+" does not support it; list first, then watch"),
	})
}

// asksInitialEvents reads the parameter as the Kubernetes libraries do: all but "0" and "false" is true.
func asksInitialEvents(u *url.URL) bool {
	const name = "sendInitialEvents"
	if !strings.Contains(u.RawQuery, name) {
		return false
	}
	values, ok := u.Query()[name]
	return ok && values[0] != "0" && !strings.EqualFold(values[0], "false")
}
