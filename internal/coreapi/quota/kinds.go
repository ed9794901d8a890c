package quota

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"
)

// plainNames are the kinds that could be counted before "count/" could name any kind.
var plainNames = map[schema.GroupResource]corev1.ResourceName{
	corev1.Resource("configmaps"):             corev1.ResourceConfigMaps,
	corev1.Resource("resourcequotas"):         corev1.ResourceQuotas,
	corev1.Resource("replicationcontrollers"): corev1.ResourceReplicationControllers,
	corev1.Resource("secrets"):                corev1.ResourceSecrets,
}

// uncounted is what nothing is stored of, and events: they go by themselves, and whoever writes them is not who would be
// to blame.
func uncounted(r schema.GroupResource) bool {
	switch r.Group {
	case "":
		return r.Resource == "bindings" || r.Resource == "componentstatuses" || r.Resource == "events"
	case eventsv1.GroupName:
		return r.Resource == "events"
	case "authentication.k8s.io", "authorization.k8s.io":
		return true
	}
	return false
}

// evaluatorFor knows what objects of a kind use. list is nil in admission.
func evaluatorFor(r schema.GroupResource, list lister, now func() time.Time) quota.Evaluator {
	switch r {
	case corev1.Resource("pods"):
		return pods(list, now)
	case corev1.Resource("services"):
		return services(list)
	case corev1.Resource("persistentvolumeclaims"):
		return volumeClaims(list)
	}
	return generic.NewObjectCountEvaluator(r, list, plainNames[r])
}

// Kinds are the kinds that a quota's name of something is about: none when the name is unknown.
func Kinds(name corev1.ResourceName) []schema.GroupResource {
	if counted, ok := strings.CutPrefix(string(name), "count/"); ok {
		r := schema.ParseGroupResource(counted)
		if r.Resource == "" || uncounted(r) {
			return nil
		}
		return []schema.GroupResource{r}
	}
	for r, plain := range plainNames {
		if plain == name {
			return []schema.GroupResource{r}
		}
	}
	for _, e := range []*evaluator{pods(nil, time.Now), services(nil), volumeClaims(nil)} {
		if e.names(name) {
			return []schema.GroupResource{e.resource}
		}
	}
	return nil
}
