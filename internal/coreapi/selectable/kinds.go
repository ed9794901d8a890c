package selectable

import (
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/fields"
)

func PodFields() *Fields {
	return Of(WithAliases(InNamespace("spec.nodeName", "spec.restartPolicy", "spec.schedulerName",
		"spec.serviceAccountName", "spec.hostNetwork", "status.phase", "status.podIP", "status.podIPs",
		"status.nominatedNodeName"), map[string]string{"spec.host": "spec.nodeName"}), addPod)
}

func NodeFields() *Fields {
	return Of(Own("spec.unschedulable"), func(set fields.Set, o *corev1.Node) {
		set["spec.unschedulable"] = strconv.FormatBool(o.Spec.Unschedulable)
	})
}

func NamespaceFields() *Fields {
	return Of(Own("status.phase"), func(set fields.Set, o *corev1.Namespace) {
		set["status.phase"] = string(o.Status.Phase)
		set["name"] = o.Name // an old mistake of kube-apiserver that admission plugins may rely on; no label maps to it
	})
}

func SecretFields() *Fields {
	return Of(InNamespace("type"), func(set fields.Set, o *corev1.Secret) {
		set["type"] = string(o.Type)
	})
}

func ServiceFields() *Fields {
	return Of(InNamespace("spec.clusterIP", "spec.type"), func(set fields.Set, o *corev1.Service) {
		set["spec.clusterIP"] = o.Spec.ClusterIP
		set["spec.type"] = string(o.Spec.Type)
	})
}

func ReplicationControllerFields() *Fields {
	return Of(InNamespace("status.replicas"), func(set fields.Set, o *corev1.ReplicationController) {
		set["status.replicas"] = strconv.Itoa(int(o.Status.Replicas))
	})
}

func JobFields() *Fields {
	return Of(InNamespace("status.successful"), func(set fields.Set, o *batchv1.Job) {
		set["status.successful"] = strconv.Itoa(int(o.Status.Succeeded))
	})
}

func CertificateSigningRequestFields() *Fields {
	return Of(Own("spec.signerName"), func(set fields.Set, o *certificatesv1.CertificateSigningRequest) {
		set["spec.signerName"] = o.Spec.SignerName
	})
}

func ClusterTrustBundleFields() *Fields {
	return Of(Own("spec.signerName"), func(set fields.Set, o *certificatesv1.ClusterTrustBundle) {
		set["spec.signerName"] = o.Spec.SignerName
	})
}

func PodCertificateRequestFields() *Fields {
	return Of(InNamespace("spec.signerName", "spec.podName", "spec.nodeName"), func(set fields.Set, o *certificatesv1.PodCertificateRequest) {
		set["spec.signerName"], set["spec.podName"], set["spec.nodeName"] = o.Spec.SignerName, o.Spec.PodName, string(o.Spec.NodeName)
	})
}

func EventFields() *Fields {
	return Of(InNamespace(append(ObjectFields(involved), "reason", "reportingComponent", "source", "type")...), func(set fields.Set, o *corev1.Event) {
		addEvent(set, o.InvolvedObject, o.Source.Component, o.ReportingController, o.Reason, o.Type)
	})
}

// NewEventFields are those of events.k8s.io.
func NewEventFields() *Fields {
	return Of(WithAliases(InNamespace("reason", "type"), newEventLabels()), func(set fields.Set, o *eventsv1.Event) {
		addEvent(set, o.Regarding, o.DeprecatedSource.Component, o.ReportingController, o.Reason, o.Type)
	})
}

const (
	involved  = "involvedObject."
	regarding = "regarding."
)

// ObjectFields are the fields of the object that an event is about.
func ObjectFields(prefix string) []string {
	return []string{prefix + "kind", prefix + "namespace", prefix + "name", prefix + "uid", prefix + "apiVersion",
		prefix + "resourceVersion", prefix + "fieldPath"}
}

func newEventLabels() map[string]string {
	labels := map[string]string{"reportingController": "reportingComponent"}
	from, to := ObjectFields(regarding), ObjectFields(involved)
	for i := range from {
		labels[from[i]] = to[i]
	}
	return labels
}

func addPod(set fields.Set, pod *corev1.Pod) {
	set["spec.nodeName"] = pod.Spec.NodeName
	set["spec.restartPolicy"] = string(pod.Spec.RestartPolicy)
	set["spec.schedulerName"] = pod.Spec.SchedulerName
	set["spec.serviceAccountName"] = pod.Spec.ServiceAccountName
	set["spec.hostNetwork"] = strconv.FormatBool(pod.Spec.HostNetwork)
	set["status.phase"] = string(pod.Status.Phase)
	set["status.nominatedNodeName"] = pod.Status.NominatedNodeName
	set["status.podIP"], set["status.podIPs"] = pod.Status.PodIP, pod.Status.PodIP
	if len(pod.Status.PodIPs) > 0 {
		set["status.podIP"], set["status.podIPs"] = pod.Status.PodIPs[0].IP, pod.Status.PodIPs[0].IP
	}
}

func addEvent(set fields.Set, about corev1.ObjectReference, source, reporter, reason, kind string) {
	set["involvedObject.kind"] = about.Kind
	set["involvedObject.namespace"] = about.Namespace
	set["involvedObject.name"] = about.Name
	set["involvedObject.uid"] = string(about.UID)
	set["involvedObject.apiVersion"] = about.APIVersion
	set["involvedObject.resourceVersion"] = about.ResourceVersion
	set["involvedObject.fieldPath"] = about.FieldPath
	set["reason"] = reason
	set["reportingComponent"] = reporter
	set["type"] = kind
	// Events written through the newer API have no source; their reporter answers for it.
	set["source"] = source
	if source == "" {
		set["source"] = reporter
	}
}
