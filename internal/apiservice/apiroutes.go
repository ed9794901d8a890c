package apiservice

import (
	"fmt"
	"slices"
	"strings"

	"go.uber.org/zap"
	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico.dev/internal/gateway/adoption"
	routingclient "portico.dev/internal/routes/client"
	"portico.dev/internal/routes/routing"
	"portico.dev/internal/routes/v1alpha1"
	"portico.dev/internal/routetable"
	"portico.dev/internal/transport"
)

// APIRoutes configures how a Controller follows APIRoutes.
type APIRoutes struct {
	// Client writes the status of APIRoutes.
	Client *routingclient.APIRoutes
	// Informer is the informer of APIRoutes.
	Informer cache.SharedIndexInformer
	// Namespaces are read for rules that select namespaces by labels.
	Namespaces corelisters.NamespaceLister
	// Missing returns the status message of an APIRoute without an APIService of its name. By default, the message is that
	// there is none.
	Missing func(apiService string) string
	// OwnsStatus, if set, reports whether this program writes the status of an APIRoute. Only one program of a cluster may
	// return true for an APIRoute. If nil, this program writes the status of all APIRoutes, unless their APIServices
	// lead to a gateway.
	OwnsStatus func(apiRoute string) bool
}

// missing returns the status message of an APIRoute without an APIService.
func (a *APIRoutes) missing(apiService string) string {
	if a.Missing != nil {
		return a.Missing(apiService)
	}
	return "there is no APIService " + apiService + ": create one, which refers to a Service"
}

// An APIRoute has the name of an APIService. Each of its backends has an entry like an APIService, with endpoints, probes,
// and a verdict on each replica. The names of these entries are "<APIService>/<backend>", which is not a valid APIService
// name. The entry of the APIService then has no backend. Its verdict follows from the verdicts on the backends, and its
// Route refers to their routes in Parts.

// partName returns the name of a backend's entry.
func partName(apiService, backend string) string { return apiService + "/" + backend }

// cutPart is the reverse of partName.
func cutPart(name string) (apiService, backend string, isPart bool) { return strings.Cut(name, "/") }

// routingOf returns the compiled APIRoute of an APIService, or nil if none is in effect. before is the previous one. If the
// APIService leads to a gateway, the gateway implements the APIRoute: otherwise the gateway would not receive the requests
// that it routes.
func (c *Controller) routingOf(object *apiregistrationv1.APIService, before *routing.Route) *routing.Route {
	if c.cfg.APIRoutes == nil || object.Spec.Service == nil || leadsToGateway(object) {
		return nil
	}
	o, err := c.apiRoutes.Get(object.Name)
	if err != nil {
		return nil // a cache only fails with not found
	}
	if before != nil && before.UID == o.UID && before.Generation == o.Generation && before.RolledBack == routing.RolledBack(o) {
		return before
	}
	compiled, err := routing.Compile(o, c.namespaceLabels)
	if err != nil {
		c.log.Warn("APIRoute has no effect", zap.String("apiroute", o.Name), zap.Error(err))
		return nil
	}
	return compiled
}

func leadsToGateway(o *apiregistrationv1.APIService) bool {
	original, err := adoption.OriginalOf(o)
	return err == nil && adoption.ServiceOf(o.Spec.Service) != original.Service
}

func (c *Controller) namespaceLabels(name string) (labels.Set, bool) {
	namespace, err := c.cfg.APIRoutes.Namespaces.Get(name)
	if err != nil {
		return nil, false
	}
	return namespace.Labels, true
}

// partObject returns an APIService for a backend of an APIRoute, or nil if there is no such backend.
func (c *Controller) partObject(apiService, backend string) *apiregistrationv1.APIService {
	parent := c.entries[apiService]
	if parent == nil || parent.routing == nil {
		return nil
	}
	i := slices.IndexFunc(parent.routing.Backends, func(b v1alpha1.APIRouteBackend) bool { return b.Name == backend })
	if i < 0 {
		return nil
	}
	b, gv := &parent.routing.Backends[i], parent.routing.Version(i)
	part := &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: partName(apiService, backend), UID: parent.routing.UID, Annotations: parent.object.Annotations},
		Spec:       parent.object.Spec,
	}
	part.Spec.Group, part.Spec.Version = gv.Group, gv.Version
	if b.CustomResources != nil {
		part.Spec.Service, part.Spec.CABundle, part.Spec.InsecureSkipTLSVerify = nil, nil, false
	}
	if b.Service != nil {
		part.Spec.Service = &apiregistrationv1.ServiceReference{Namespace: b.Service.Namespace, Name: b.Service.Name, Port: b.Service.Port}
		part.Spec.CABundle, part.Spec.InsecureSkipTLSVerify = b.CABundle, b.InsecureSkipTLSVerify
	}
	return part
}

// customResourcesProblem returns why the custom resources of a group-version are not available as a backend, or nil if they
// are.
func (c *Controller) customResourcesProblem(gv schema.GroupVersion) *problem {
	unavailable := func(why string) *problem {
		return &problem{apiregistrationv1.ConditionFalse, v1alpha1.ReasonNoCustomResources, why}
	}
	if c.local.crds == nil {
		return unavailable("custom resources are not served here")
	}
	crds, err := c.local.crds.List(labels.Everything())
	if err != nil {
		return unavailable("custom resource definitions cannot be listed: " + err.Error())
	}
	waiting := ""
	for _, crd := range crds {
		if !slices.Contains(servedVersions(crd), gv) {
			continue
		}
		if apihelpers.IsCRDConditionTrue(crd, apiextensionsv1.Established) {
			return nil
		}
		waiting = crd.Name
	}
	if waiting != "" {
		return unavailable("CustomResourceDefinition " + waiting + " is not established yet")
	}
	return unavailable(fmt.Sprintf("no CustomResourceDefinition of group %s serves version %s: create one", gv.Group, gv.Version))
}

// expand returns the backend entries that are affected by changes of names, and adds the APIServices of the backends in
// names to names. The entries of APIServices are up to date already.
func (c *Controller) expand(names sets.Set[string]) (parts sets.Set[string]) {
	if c.cfg.APIRoutes == nil {
		return nil
	}
	parts = sets.New[string]()
	for _, name := range names.UnsortedList() {
		if apiService, _, isPart := cutPart(name); isPart {
			parts.Insert(name)
			names.Delete(name)
			names.Insert(apiService)
			continue
		}
		parts.Insert(c.parts[name]...)
		delete(c.parts, name)
		e := c.entries[name]
		if e == nil || e.routing == nil {
			continue
		}
		for _, b := range e.routing.Backends {
			c.parts[name] = append(c.parts[name], partName(name, b.Name))
		}
		parts.Insert(c.parts[name]...)
	}
	c.routed.Store(int64(len(c.parts)))
	return parts
}

// partsOf returns the routes of the backends of an APIService, in the order of its APIRoute.
func (c *Controller) partsOf(e *entry) []*routetable.Route {
	if e.routing == nil {
		return nil
	}
	parts := make([]*routetable.Route, len(e.routing.Backends))
	for i, b := range e.routing.Backends {
		if part := c.entries[partName(e.object.Name, b.Name)]; part != nil && part.route != nil {
			parts[i] = part.route
		} else {
			parts[i] = &routetable.Route{Name: partName(e.object.Name, b.Name), GroupVersion: e.routing.Version(i), Of: e.object.Name, Local: b.CustomResources != nil,
				Condition: condition(apiregistrationv1.ConditionUnknown, routetable.ReasonNotChecked, "the backend has not answered yet")}
		}
	}
	return parts
}

// firstBackend returns the backend of the first part that has one. Custom resources have none.
func firstBackend(parts []*routetable.Route) *transport.Backend {
	for _, part := range parts {
		if part.Backend != nil {
			return part.Backend
		}
	}
	return nil
}

// derive returns the verdict on an APIService from the verdicts on its backends in use: it is available if at least one of
// them is.
func derive(r *routing.Route, parts []*routetable.Route, previous *apiregistrationv1.APIServiceCondition) *apiregistrationv1.APIServiceCondition {
	var available, unchecked int
	var first *apiregistrationv1.APIServiceCondition
	var missing []string
	used := r.InUse()
	for i, part := range parts {
		switch {
		case !used[i]:
		case part.Available():
			available++
		default:
			if part.Condition.Reason == routetable.ReasonNotChecked {
				unchecked++
			}
			if first == nil {
				first = &part.Condition
			}
			missing = append(missing, fmt.Sprintf("%s: %s: %s", r.Backends[i].Name, part.Condition.Reason, part.Condition.Message))
		}
	}
	out := condition(apiregistrationv1.ConditionTrue, reasonPassed, "all checks passed")
	switch {
	case len(missing) == 0:
	case available > 0:
		out = condition(apiregistrationv1.ConditionTrue, reasonSomeBackends, "backends that are not available: "+SingleLine(strings.Join(missing, "; ")))
	case unchecked > 0 && previous != nil:
		// As with a new Service, the last verdict stands until the first probe.
		out = condition(previous.Status, previous.Reason, previous.Message)
	case len(missing) == 1:
		out = condition(first.Status, first.Reason, first.Message)
	default:
		out = condition(first.Status, first.Reason, SingleLine(strings.Join(missing, "; ")))
	}
	return &out
}

// apiRouteEvent enqueues the APIService of a changed APIRoute.
func (c *Controller) apiRouteEvent(before, after *v1alpha1.APIRoute) {
	o := after
	if o == nil {
		o = before
	}
	if o == nil {
		return
	}
	c.routeStatus.queue.Add(o.Name)
	if before != nil && after != nil && before.UID == after.UID && before.Generation == after.Generation && routing.RolledBack(before) == routing.RolledBack(after) {
		return // only the status changed, without an effect on requests
	}
	c.queue.Add(queueItem{apiService: o.Name})
}

// apiRoute returns the APIRoute of the given name, or nil.
func (c *Controller) apiRoute(name string) (*v1alpha1.APIRoute, error) {
	o, err := c.apiRoutes.Get(name)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return o, err
}
