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
	// catchUpTimeout bounds the wait of one request. It takes milliseconds where etcd and the machine are well.
	catchUpTimeout = time.Second
	// maxCatchUps bounds the requests that wait at a time; further ones are answered by what is known.
	maxCatchUps = 32
)

// catchUps are the requests that wait for this replica to know what another one has told a client already.
type catchUps chan struct{}

// catchUp is called for a request that this replica is about to refuse because it does not know its group-version or its resource,
// or has not reached its backend yet. Another replica may: so it reads in etcd whether it should be served, and waits until it
// is. It reports whether it is. A front door without other replicas knows everything first.
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

// awaitRoute waits until requests for an APIService are sent to its backend, or, if no replica reaches that, refused with the
// reason.
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

// awaitChange waits until something is true that may become so when changed says that something has changed.
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
