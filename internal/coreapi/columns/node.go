package columns

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

func NodeColumns() Printer {
	info, status := corev1.NodeSystemInfo{}.SwaggerDoc(), corev1.NodeStatus{}.SwaggerDoc()
	return show(func(n *corev1.Node, now time.Time) []any {
		i := n.Status.NodeInfo
		return []any{
			n.Name, nodeStatus(n), orElse(strings.Join(nodeRoles(n.Labels), ","), none), ageOf(n, now), i.KubeletVersion,
			nodeAddress(n, corev1.NodeInternalIP), nodeAddress(n, corev1.NodeExternalIP),
			orElse(i.OSImage, unknown), orElse(i.KernelVersion, unknown), orElse(i.ContainerRuntimeVersion, unknown),
		}
	}, name(), text("Status", "Ready, NotReady or Unknown, and whether scheduling is disabled"),
		text("Roles", "The roles that the node's labels give it"), age(), text("Version", info["kubeletVersion"]),
		wide(text("Internal-IP", status["addresses"])), wide(text("External-IP", status["addresses"])),
		wide(text("OS-Image", info["osImage"])), wide(text("Kernel-Version", info["kernelVersion"])),
		wide(text("Container-Runtime", info["containerRuntimeVersion"])))
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

// nodeRoles reads both ways in which a label names a role: node-role.kubernetes.io/<role> and kubernetes.io/role=<role>.
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
	return none
}
