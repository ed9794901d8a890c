package core

import (
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico.dev/internal/coreapi/columns"
	"portico.dev/internal/coreapi/defaults"
	"portico.dev/internal/coreapi/registry"
	"portico.dev/internal/coreapi/selectable"
	"portico.dev/internal/coreapi/validate"
)

//lint:file-ignore SA1019 v1 Endpoints are deprecated, and still served to clients from before EndpointSlices

func nodeResource() registry.Resource {
	return registry.Resource{
		Name: "nodes", Singular: "node", ShortNames: []string{"no"}, ClusterScoped: true,
		Object: &corev1.Node{}, List: &corev1.NodeList{}, Directory: "minions", WatchCache: true, AllowUnconditionalUpdate: true,
		Samples: []string{
			"metadata: {name: n.example.com}\n" +
				"status: {capacity: {cpu: 2, memory: 4Gi, example.com/gpu: 1}}",
		},
		Rules:    validate.WithStatus(validateNode, validateNodeUpdate, validateNodeStatus),
		Defaults: defaults.Of(DefaultNode),
		Columns:  nodeColumns,
		Fields:   nodeFields(),
		Spec:     registry.SpecOf(func(n *corev1.Node) *corev1.NodeSpec { return &n.Spec }),
		Status:   registry.StatusOf(func(n *corev1.Node) *corev1.NodeStatus { return &n.Status }), StatusChangesMetadata: true, StatusOnCreate: true,
		Storages: nodeStorages,
	}
}

func nodeColumns() columns.Printer {
	info, status := corev1.NodeSystemInfo{}.SwaggerDoc(), corev1.NodeStatus{}.SwaggerDoc()
	return columns.Show(func(n *corev1.Node, now time.Time) []any {
		i := n.Status.NodeInfo
		return []any{
			n.Name, nodeStatus(n), columns.OrElse(strings.Join(nodeRoles(n.Labels), ","), columns.None), columns.AgeOf(n, now), i.KubeletVersion,
			nodeAddress(n, corev1.NodeInternalIP), nodeAddress(n, corev1.NodeExternalIP),
			columns.OrElse(i.OSImage, columns.Unknown), columns.OrElse(i.KernelVersion, columns.Unknown), columns.OrElse(i.ContainerRuntimeVersion, columns.Unknown),
		}
	}, columns.Name(), columns.Text("Status", "Ready, NotReady or Unknown, and whether scheduling is disabled"),
		columns.Text("Roles", "The roles that the node's labels give it"), columns.Age(), columns.Text("Version", info["kubeletVersion"]),
		columns.Wide(columns.Text("Internal-IP", status["addresses"])), columns.Wide(columns.Text("External-IP", status["addresses"])),
		columns.Wide(columns.Text("OS-Image", info["osImage"])), columns.Wide(columns.Text("Kernel-Version", info["kernelVersion"])),
		columns.Wide(columns.Text("Container-Runtime", info["containerRuntimeVersion"])))
}

func nodeStatus(n *corev1.Node) string {
	status := "Unknown"
	for _, condition := range n.Status.Conditions {
		if condition.Type != corev1.NodeReady {
			continue
		}
		status = "NotReady"
		if condition.Status == corev1.ConditionTrue {
			status = "Ready"
		}
	}
	if n.Spec.Unschedulable {
		status += ",SchedulingDisabled"
	}
	return status
}

// nodeRoles returns the roles from both label formats: node-role.kubernetes.io/<role> and kubernetes.io/role=<role>.
func nodeRoles(labels map[string]string) []string {
	var roles []string
	for key, value := range labels {
		if role, found := strings.CutPrefix(key, "node-role.kubernetes.io/"); found && role != "" {
			roles = append(roles, role)
		}
		if key == "kubernetes.io/role" && value != "" {
			roles = append(roles, value)
		}
	}
	slices.Sort(roles)
	return slices.Compact(roles)
}

func nodeAddress(n *corev1.Node, kind corev1.NodeAddressType) string {
	for _, address := range n.Status.Addresses {
		if address.Type == kind {
			return address.Address
		}
	}
	return columns.None
}

// DefaultNode sets the defaults of a node. The allocatable resources default to the capacity.
func DefaultNode(n *corev1.Node) {
	if cidr := n.Spec.PodCIDR; cidr != "" && (len(n.Spec.PodCIDRs) == 0 || n.Spec.PodCIDRs[0] != cidr) {
		n.Spec.PodCIDRs = []string{cidr} // the old field takes precedence, because its writers may not know the new one
	} else if cidr == "" && len(n.Spec.PodCIDRs) > 0 {
		n.Spec.PodCIDR = n.Spec.PodCIDRs[0]
	}
	defaults.Milli(n.Status.Capacity)
	defaults.Milli(n.Status.Allocatable)
	if n.Status.Allocatable == nil && n.Status.Capacity != nil {
		n.Status.Allocatable = n.Status.Capacity.DeepCopy()
	}
}

func nodeFields() *selectable.Fields {
	return selectable.Of(selectable.Own("spec.unschedulable"), func(set fields.Set, o *corev1.Node) {
		set["spec.unschedulable"] = strconv.FormatBool(o.Spec.Unschedulable)
	})
}

func validateNode(n *corev1.Node) field.ErrorList {
	errs := validate.ObjectMeta(&n.ObjectMeta, validate.ClusterScoped, validation.NameIsDNSSubdomain)
	errs = append(errs, taints(n.Spec.Taints)...)
	errs = append(errs, nodeResources(n)...)
	return append(errs, podCIDRs(n.Spec.PodCIDRs)...)
}

// validateNodeUpdate allows the pod CIDR and the provider ID to be set once.
func validateNodeUpdate(n, old *corev1.Node) field.ErrorList {
	errs := append(taints(n.Spec.Taints), validateNodeStatus(n, old)...)
	spec := field.NewPath("spec")
	const once = `node updates may not change podCIDR except from "" to valid`
	if len(old.Spec.PodCIDRs) > 0 && !slices.Equal(n.Spec.PodCIDRs, old.Spec.PodCIDRs) {
		errs = append(errs, field.Forbidden(spec.Child("podCIDRs"), once))
	} else if len(old.Spec.PodCIDRs) == 0 {
		errs = append(errs, podCIDRs(n.Spec.PodCIDRs)...)
	}
	switch {
	case old.Spec.ProviderID == "" || old.Spec.ProviderID == n.Spec.ProviderID:
	case n.Spec.ProviderID == "":
		errs = append(errs, field.Invalid(spec.Child("providerID"), nil, "field cannot be cleared once set"))
	default:
		errs = append(errs, field.Invalid(spec.Child("providerID"), nil, "field cannot be modified once set"))
	}
	if n.Spec.DoNotUseExternalID != old.Spec.DoNotUseExternalID {
		errs = append(errs, field.Forbidden(spec.Child("externalID"), "may not be updated"))
	}
	return errs
}

func validateNodeStatus(n, _ *corev1.Node) field.ErrorList {
	errs := nodeResources(n)
	seen := sets.New[corev1.NodeAddress]()
	for i, address := range n.Status.Addresses {
		if seen.Has(address) {
			errs = append(errs, field.Duplicate(field.NewPath("status", "addresses").Index(i), address))
		}
		seen.Insert(address)
	}
	return errs
}

func nodeResources(n *corev1.Node) field.ErrorList {
	status := field.NewPath("status")
	var errs field.ErrorList
	for name, quantity := range n.Status.Capacity {
		errs = append(errs, validate.ResourceQuantity(name, quantity, status.Child("capacity", string(name)))...)
	}
	for name, quantity := range n.Status.Allocatable {
		errs = append(errs, validate.ResourceQuantity(name, quantity, status.Child("allocatable", string(name)))...)
	}
	return errs
}

func podCIDRs(cidrs []string) field.ErrorList {
	path := field.NewPath("spec", "podCIDRs")
	var errs field.ErrorList
	for i, cidr := range cidrs {
		errs = append(errs, utilvalidation.IsValidCIDRForLegacyField(path.Index(i), cidr, true, nil)...)
	}
	if len(cidrs) > 2 || len(cidrs) == 2 && strings.Contains(cidrs[0], ":") == strings.Contains(cidrs[1], ":") {
		errs = append(errs, field.Invalid(path, cidrs, "may specify no more than one CIDR for each IP family"))
	}
	return errs
}

// taints reports errors below metadata, as kube-apiserver does, although taints are in the spec.
func taints(list []corev1.Taint) field.ErrorList {
	type key struct {
		key    string
		effect corev1.TaintEffect
	}
	var errs field.ErrorList
	seen := sets.New[key]()
	for i, taint := range list {
		path := field.NewPath("metadata", "taints").Index(i)
		errs = append(errs, metav1validation.ValidateLabelName(taint.Key, path.Child("key"))...)
		errs = append(errs, validate.Invalid(path.Child("value"), taint.Value, utilvalidation.IsValidLabelValue(taint.Value))...)
		errs = append(errs, validate.Required(taint.Effect, path.Child("effect"), corev1.TaintEffectNoSchedule,
			corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute)...)
		if k := (key{taint.Key, taint.Effect}); seen.Has(k) {
			duplicate := field.Duplicate(path, taint)
			duplicate.Detail = "taints must be unique by key and effect pair"
			errs = append(errs, duplicate)
		} else {
			seen.Insert(k)
		}
	}
	return errs
}
