package aggregator

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"
)

const (
	// catchUpTimeout limits the wait of one request, which normally takes milliseconds.
	catchUpTimeout = time.Second
	// maxCatchUps limits the requests that wait concurrently. Further requests are served from the current state.
	maxCatchUps = 32
)

// catchUps limits the requests that wait until this replica has caught up with another replica.
type catchUps chan struct{}

// catchUp is called for a request that this replica is about to refuse because it does not know the group-version or
// the resource, or does not reach the backend yet. Another replica may already serve it. catchUp reads from etcd
// whether the request should be served, waits until this replica can serve it, and reports whether it can. Without
// other replicas it does not wait, because no replica can be ahead.
func (h *parts) catchUp(ctx context.Context, gv schema.GroupVersion, resource string) bool {
	if others, _ := h.replicas.Received(); len(others) == 0 {
		return false
	}
	select {
	case h.catchUps <- struct{}{}:
		defer func() { <-h.catchUps }()
	default:
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, catchUpTimeout)
	defer cancel()
	object, err := h.aggregator.ApiregistrationV1().APIServices().Get(ctx, gv.Version+"."+gv.Group, metav1.GetOptions{})
	if err == nil && object.Spec.Service != nil {
		return h.awaitRoute(ctx, object)
	}
	if resource == "" {
		return err == nil && h.awaitLocal(ctx, gv)
	}
	return h.core.AwaitDefined(ctx, gv.WithResource(resource)) && h.awaitLocal(ctx, gv)
}

// awaitRoute waits until requests for an APIService are sent to its backend or, if no replica reaches the backend,
// refused with the reason.
func (h *parts) awaitRoute(ctx context.Context, o *apiregistrationv1.APIService) bool {
	available := helper.IsAPIServiceConditionTrue(o, apiregistrationv1.Available)
	gv := schema.GroupVersion{Group: o.Spec.Group, Version: o.Spec.Version}
	return awaitChange(ctx, h.APIServices.Changed, func() bool {
		route, ok := h.APIServices.Table().Lookup(gv)
		return ok && (route.Reachable() || !available)
	})
}

func (h *parts) awaitLocal(ctx context.Context, gv schema.GroupVersion) bool {
	return awaitChange(ctx, h.core.Changed, func() bool { return h.localGroupVersions().Has(gv) })
}

// awaitChange waits until is returns true, and calls it again after each change. It returns false when ctx is done.
func awaitChange(ctx context.Context, changed func() <-chan struct{}, is func() bool) bool {
	for {
		next := changed()
		if is() {
			return true
		}
		select {
		case <-next:
		case <-ctx.Done():
			return false
		}
	}
}
