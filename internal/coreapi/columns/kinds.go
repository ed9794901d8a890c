package columns

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// printerOf is the table of contents: which kind is printed by what.
func printerOf(kind schema.GroupKind) (printer, bool) {
	switch kind.Group {
	case corev1.GroupName:
		return corePrinter(kind.Kind)
	case admissionregistrationv1.GroupName:
		return admissionPrinter(kind.Kind)
	case appsv1.GroupName:
		return workloadPrinter(kind.Kind)
	case networkingv1.GroupName:
		return networkPrinter(kind.Kind)
	case storagev1.GroupName:
		return storagePrinter(kind.Kind)
	}
	switch kind {
	case schema.GroupKind{Group: autoscalingv2.GroupName, Kind: "HorizontalPodAutoscaler"}:
		return autoscalers(), true
	case schema.GroupKind{Group: autoscalingv2.GroupName, Kind: "Scale"}:
		return scales(), true
	case schema.GroupKind{Group: batchv1.GroupName, Kind: "Job"}:
		return jobs(), true
	case schema.GroupKind{Group: batchv1.GroupName, Kind: "CronJob"}:
		return cronJobs(), true
	case schema.GroupKind{Group: policyv1.GroupName, Kind: "PodDisruptionBudget"}:
		return disruptionBudgets(), true
	case schema.GroupKind{Group: certificatesv1.GroupName, Kind: "CertificateSigningRequest"}:
		return certificateRequests(), true
	case schema.GroupKind{Group: certificatesv1.GroupName, Kind: "ClusterTrustBundle"}:
		return trustBundles(), true
	case schema.GroupKind{Group: certificatesv1.GroupName, Kind: "PodCertificateRequest"}:
		return podCertificates(), true
	case schema.GroupKind{Group: nodev1.GroupName, Kind: "RuntimeClass"}:
		return runtimeClasses(), true
	case schema.GroupKind{Group: schedulingv1.GroupName, Kind: "PriorityClass"}:
		return priorityClasses(), true
	case schema.GroupKind{Group: apiregistrationv1.GroupName, Kind: "APIService"}:
		return apiServices(), true
	case schema.GroupKind{Group: coordinationv1.GroupName, Kind: "Lease"}:
		return leases(), true
	case schema.GroupKind{Group: discoveryv1.GroupName, Kind: "EndpointSlice"}:
		return endpointSlices(), true
	case schema.GroupKind{Group: eventsv1.GroupName, Kind: "Event"}:
		return newEvents(), true
	case schema.GroupKind{Group: flowcontrolv1.GroupName, Kind: "FlowSchema"}:
		return flowSchemas(), true
	case schema.GroupKind{Group: flowcontrolv1.GroupName, Kind: "PriorityLevelConfiguration"}:
		return priorityLevels(), true
	case schema.GroupKind{Group: rbacv1.GroupName, Kind: "RoleBinding"}:
		return roleBindings(), true
	case schema.GroupKind{Group: rbacv1.GroupName, Kind: "ClusterRoleBinding"}:
		return clusterRoleBindings(), true
	}
	return printer{}, false
}

func corePrinter(kind string) (printer, bool) {
	switch kind {
	case "Namespace":
		return namespaces(), true
	case "ConfigMap":
		return configMaps(), true
	case "Secret":
		return secrets(), true
	case "ServiceAccount":
		return serviceAccounts(), true
	case "Service":
		return services(), true
	case "Endpoints":
		return endpoints(), true
	case "Event":
		return coreEvents(), true
	case "Node":
		return nodes(), true
	case "Pod":
		return pods(), true
	case "PersistentVolume":
		return persistentVolumes(), true
	case "PersistentVolumeClaim":
		return persistentVolumeClaims(), true
	case "ResourceQuota":
		return resourceQuotas(), true
	case "ComponentStatus":
		return componentStatuses(), true
	case "PodTemplate":
		return podTemplates(), true
	case "ReplicationController":
		return replicationControllers(), true
	}
	return printer{}, false
}

func admissionPrinter(kind string) (printer, bool) {
	switch kind {
	case "ValidatingWebhookConfiguration":
		return validatingWebhooks(), true
	case "MutatingWebhookConfiguration":
		return mutatingWebhooks(), true
	case "ValidatingAdmissionPolicy":
		return validatingPolicies(), true
	case "ValidatingAdmissionPolicyBinding":
		return validatingBindings(), true
	case "MutatingAdmissionPolicy":
		return mutatingPolicies(), true
	case "MutatingAdmissionPolicyBinding":
		return mutatingBindings(), true
	}
	return printer{}, false
}
