package nodes

import (
	"context"
	"errors"
	"fmt"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"portico.dev/internal/auth/rbac"
	"portico.dev/internal/request"
)

// Authorizer authorizes requests of nodes and has no opinion about other requests. It is safe for concurrent use.
type Authorizer struct {
	// AuthorizerFunc provides Authorize and the methods for conditional authorization, which has no conditions here.
	authorizer.AuthorizerFunc
	graph *graph
	rules *rbac.Rules
	ready chan struct{}
}

var (
	_ authorizer.Authorizer   = (*Authorizer)(nil)
	_ authorizer.RuleResolver = (*Authorizer)(nil)
)

// New returns an Authorizer with an empty graph. Run fills it.
func New() *Authorizer {
	a := &Authorizer{graph: newGraph(), rules: rbac.NewRules(rbac.NodeRules()), ready: make(chan struct{})}
	a.AuthorizerFunc = a.decide
	return a
}

// Ready returns a channel that is closed when Run has processed all objects. Until then requests for related objects
// are refused.
func (a *Authorizer) Ready() <-chan struct{} { return a.ready }

// RulesFor implements [authorizer.RuleResolver]. It returns an error for nodes, because their permissions cannot be
// listed.
func (a *Authorizer) RulesFor(_ context.Context, u user.Info, _ string) ([]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error) {
	if _, isNode := request.Node(u); isNode {
		return nil, nil, true, errors.New("node authorizer does not support user rule resolution")
	}
	return nil, nil, false, nil
}

func (a *Authorizer) decide(_ context.Context, attrs authorizer.Attributes) (authorizer.Decision, string, error) {
	node, isNode := request.Node(attrs.GetUser())
	switch {
	case !isNode:
		return authorizer.DecisionNoOpinion, "", nil
	case node == "":
		return refuse(fmt.Sprintf("unknown node for user %q", attrs.GetUser().GetName()))
	case attrs.IsResourceRequest():
		if check, ok := checks[schema.GroupResource{Group: attrs.GetAPIGroup(), Resource: attrs.GetResource()}]; ok {
			return check(a, node, attrs)
		}
	}
	if a.rules.Allow(attrs) {
		return allow()
	}
	return refuse("")
}

// check decides about requests for a resource whose objects are related to nodes.
type check func(a *Authorizer, node string, attrs authorizer.Attributes) (authorizer.Decision, string, error)

var checks = map[schema.GroupResource]check{
	corev1.Resource("secrets"):                        readsObject(secrets),
	corev1.Resource("configmaps"):                     readsObject(configMaps),
	corev1.Resource("persistentvolumeclaims"):         checkVolumeClaim,
	corev1.Resource("persistentvolumes"):              getOnly(volumes),
	corev1.Resource("serviceaccounts"):                checkServiceAccount,
	corev1.Resource("nodes"):                          checkNode,
	corev1.Resource("pods"):                           checkPod,
	resourcev1.Resource("resourceclaims"):             getOnly(resourceClaims),
	resourcev1.Resource("resourceslices"):             checkResourceSlice,
	storagev1.Resource("volumeattachments"):           getOnly(volumeAttachments),
	storagev1.Resource("csinodes"):                    checkCSINode,
	coordinationv1.Resource("leases"):                 checkLease,
	certificatesv1.Resource("podcertificaterequests"): checkCertificateRequest,
}

func allow() (authorizer.Decision, string, error) { return authorizer.DecisionAllow, "", nil }

func refuse(reason string) (authorizer.Decision, string, error) {
	return authorizer.DecisionNoOpinion, reason, nil
}

// related allows access to an object that is related to the node.
func (a *Authorizer) related(node string, k kind, attrs authorizer.Attributes) (authorizer.Decision, string, error) {
	if attrs.GetName() == "" {
		return refuse("No Object name found")
	}
	if !a.graph.belongs(object{k, attrs.GetNamespace(), attrs.GetName()}, node) {
		return refuse(fmt.Sprintf("no relationship found between node '%s' and this object", node))
	}
	return allow()
}

// getOnly returns a check that allows get requests for single objects.
func getOnly(k kind) check {
	return func(a *Authorizer, node string, attrs authorizer.Attributes) (authorizer.Decision, string, error) {
		switch {
		case attrs.GetVerb() != "get":
			return refuse("can only get individual resources of this type")
		case attrs.GetSubresource() != "":
			return refuse("cannot get subresource")
		}
		return a.related(node, k, attrs)
	}
}

// readsObject returns a check that allows get, list and watch of single objects. Kubelets watch the Secrets and
// ConfigMaps of their pods one by one.
func readsObject(k kind) check {
	return func(a *Authorizer, node string, attrs authorizer.Attributes) (authorizer.Decision, string, error) {
		switch {
		case !slices.Contains([]string{"get", "list", "watch"}, attrs.GetVerb()):
			return refuse("can only read resources of this type")
		case attrs.GetSubresource() != "":
			return refuse("cannot read subresource")
		case attrs.GetNamespace() == "":
			return refuse("can only read namespaced object of this type")
		}
		return a.related(node, k, attrs)
	}
}

func checkVolumeClaim(a *Authorizer, node string, attrs authorizer.Attributes) (authorizer.Decision, string, error) {
	if attrs.GetSubresource() != "status" {
		return getOnly(volumeClaims)(a, node, attrs)
	}
	if verb := attrs.GetVerb(); verb != "update" && verb != "patch" {
		return refuse("can only get/update/patch this type")
	}
	return a.related(node, volumeClaims, attrs)
}

// checkServiceAccount allows a node to get the service accounts of its pods and to create tokens for them.
func checkServiceAccount(a *Authorizer, node string, attrs authorizer.Attributes) (authorizer.Decision, string, error) {
	switch {
	case attrs.GetVerb() == "get" && attrs.GetSubresource() == "":
		return readsObject(serviceAccounts)(a, node, attrs)
	case attrs.GetVerb() != "create" || attrs.GetName() == "":
		return refuse("can only create tokens for individual service accounts")
	case attrs.GetSubresource() != "token":
		return refuse("can only create token subresource of serviceaccount")
	}
	return a.related(node, serviceAccounts, attrs)
}

// ownVerbs are the verbs allowed on objects that have the name of their node. NodeRestriction checks the name in a
// create request, which is in the body.
var ownVerbs = []string{"get", "create", "update", "patch", "delete"}

func checkLease(_ *Authorizer, node string, attrs authorizer.Attributes) (authorizer.Decision, string, error) {
	switch verb := attrs.GetVerb(); {
	case !slices.Contains(ownVerbs, verb):
		return refuse("can only get, create, update, patch, or delete a node lease")
	case attrs.GetNamespace() != corev1.NamespaceNodeLease:
		return refuse(fmt.Sprintf("can only access leases in the %q system namespace", corev1.NamespaceNodeLease))
	case verb != "create" && attrs.GetName() != node:
		return refuse("can only access node lease with the same name as the requesting node")
	}
	return allow()
}

func checkCSINode(_ *Authorizer, node string, attrs authorizer.Attributes) (authorizer.Decision, string, error) {
	switch verb := attrs.GetVerb(); {
	case attrs.GetSubresource() == "status":
		return refuse("CSINode status access requires CSIVolumeHealth feature") // alpha, not supported
	case attrs.GetSubresource() != "":
		return refuse("cannot authorize CSINode subresources")
	case !slices.Contains(ownVerbs, verb):
		return refuse("can only get, create, update, patch, or delete a CSINode")
	case verb != "create" && attrs.GetName() != node:
		return refuse("can only access CSINode with the same name as the requesting node")
	}
	return allow()
}

// ofNode reports whether attrs has a field selector for the objects of the node.
func ofNode(attrs authorizer.Attributes, node string) bool {
	requirements, _ := attrs.GetFieldSelector()
	return slices.ContainsFunc(requirements, func(r fields.Requirement) bool {
		return r.Field == "spec.nodeName" && r.Operator == selection.Equals && r.Value == node
	})
}

func checkResourceSlice(a *Authorizer, node string, attrs authorizer.Attributes) (authorizer.Decision, string, error) {
	if attrs.GetSubresource() != "" {
		return refuse("cannot authorize ResourceSlice subresources")
	}
	switch attrs.GetVerb() {
	case "create": // NodeRestriction checks the node in the object
		return allow()
	case "get", "update", "patch", "delete":
		return a.related(node, resourceSlices, attrs)
	case "watch", "list", "deletecollection":
		if ofNode(attrs, node) {
			return allow()
		}
		return refuse("can only list/watch/deletecollection resourceslices with nodeName field selector")
	}
	return refuse("only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, delete, deletecollection")
}

func checkCertificateRequest(a *Authorizer, node string, attrs authorizer.Attributes) (authorizer.Decision, string, error) {
	if attrs.GetSubresource() != "" {
		return refuse("nodes may not access the status subresource of PodCertificateRequests")
	}
	switch attrs.GetVerb() {
	case "create": // NodeRestriction checks what is requested
		return allow()
	case "get":
		return a.related(node, certificateRequests, attrs)
	case "list", "watch":
		if ofNode(attrs, node) {
			return allow()
		}
		return refuse("can only list/watch podcertificaterequests with nodeName field selector")
	}
	return refuse(fmt.Sprintf("nodes may not %s podcertificaterequests", attrs.GetVerb()))
}

func checkNode(_ *Authorizer, node string, attrs authorizer.Attributes) (authorizer.Decision, string, error) {
	switch verb := attrs.GetVerb(); attrs.GetSubresource() {
	case "":
		switch verb {
		case "create", "update", "patch": // NodeRestriction checks which node
			return allow()
		case "get", "list", "watch":
			// Matched by name, not by existing objects: kubelets read their Node before they create it.
			switch attrs.GetName() {
			case node:
				return allow()
			case "":
				return refuse(fmt.Sprintf("node '%s' cannot read all nodes, only its own Node object", node))
			}
			return refuse(fmt.Sprintf("node '%s' cannot read '%s', only its own Node object", node, attrs.GetName()))
		}
	case "status":
		if verb == "update" || verb == "patch" {
			return allow()
		}
	}
	return refuse("")
}

// checkPod allows a node to read its pods. NodeRestriction restricts status updates and evictions to the node's pods,
// and creation and deletion to mirror pods.
func checkPod(a *Authorizer, node string, attrs authorizer.Attributes) (authorizer.Decision, string, error) {
	switch verb := attrs.GetVerb(); attrs.GetSubresource() {
	case "":
		switch verb {
		case "get":
			return getOnly(pods)(a, node, attrs)
		case "list", "watch":
			if ofNode(attrs, node) {
				return allow()
			}
			if attrs.GetName() != "" {
				return a.related(node, pods, attrs)
			}
			return refuse("can only list/watch pods with spec.nodeName field selector")
		case "create", "delete":
			return allow()
		}
	case "status":
		if verb == "update" || verb == "patch" {
			return allow()
		}
	case "eviction":
		if verb == "create" {
			return allow()
		}
	}
	return refuse("")
}
