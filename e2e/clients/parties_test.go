package clients

import "portico.dev/e2e/compat"

// The operations on all clients.
const (
	restarted  = "restart of the front door, after which all connections use the new CA's certificate"
	rotated    = "change of the serving certificate's CA, with overlap"
	registered = "deletion and re-creation of an APIService that it uses"
	emptied    = "deletion of its namespace"
)

// survives returns the common steps of all clients.
func survives(first ...string) (steps []compat.Step) {
	for _, what := range append(first, rotated, restarted, registered, emptied) {
		steps = append(steps, compat.Step{What: what})
	}
	return steps
}

const (
	leads      = "leader election"
	everyVerb  = "get, list, create, update, patches (merge, JSON, strategic), apply, status, scale, token, binding, eviction, delete, deletecollection"
	reconciles = "typed, unstructured and metadata watches, finalizers, owned objects, conditions, events"

	grants  = "Roles and RoleBindings for annotated service accounts, as a service account with few permissions"
	refuses = "grants of permissions that it does not have are rejected"

	follows = "typed (protobuf), dynamic and metadata informers of local kinds, custom resources and a remote group"

	typed = "apply, diff, label, scale, get, wait, api-resources, auth can-i, delete, while a backend is dead"

	cycle  = "install, upgrade, rollback, history, uninstall of a chart with a CRD, while a backend is dead"
	desert = "the same while all extension servers are dead"
)

var (
	controllerRuntime = &compat.Party{
		Name: "controller-runtime", Module: "sigs.k8s.io/controller-runtime", In: "e2e/clients/manager",
		Is:    "A manager that reconciles its own CRD, and watches service accounts and a resource of an extension server.",
		Steps: survives(leads, everyVerb, reconciles),
	}
	clientGo = &compat.Party{
		Name: "client-go, an operator for service accounts", Module: "k8s.io/client-go",
		Is:    "A controller that uses a service account token and has only the permissions that it needs.",
		Steps: survives(grants, refuses),
	}
	watchLists = &compat.Party{
		Name: "client-go, shared informers with WatchList", Module: "k8s.io/client-go",
		Is:    "Informers with default options. Every event must arrive exactly once.",
		Steps: survives(follows),
	}
	lists = &compat.Party{
		Name: "client-go, shared informers with list and watch", Module: "k8s.io/client-go",
		Is:    "The same informers with KUBE_FEATURE_WatchListClient=false, as in older releases.",
		Steps: survives(follows),
	}
	helm = &compat.Party{
		Name: "Helm", Module: "helm.sh/helm/v4", In: "e2e/clients/installer",
		Is:    "Helm's library with the Secrets driver. The chart has a Deployment, Service, ConfigMap, ServiceAccount, Role, RoleBinding, and a CRD with a custom resource.",
		Steps: survives(cycle, desert),
	}
	commandLine = &compat.Party{
		Name: "kubectl", Module: "k8s.io/kubectl", In: "e2e/kubectl",
		Is:    "Module version v0.x.y is kubectl v1.x.y. The scenarios in e2e/testdata also run kubectl.",
		Steps: survives(typed),
	}

	parties = []*compat.Party{commandLine, controllerRuntime, clientGo, watchLists, lists, helm}
)
