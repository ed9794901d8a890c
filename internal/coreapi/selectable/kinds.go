package selectable

import (
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// kind is what selectors of one kind may say. labels maps what a client writes to the field that is compared: mostly the
// same, but some are older names, and the fields of events.k8s.io are compared under their names in core/v1.
type kind struct {
	gvk    schema.GroupVersionKind
	labels map[string]string
}

func kinds() []kind {
	core := corev1.SchemeGroupVersion.WithKind
	return []kind{
		{core("Pod"), withAliases(own(namespaceField, "spec.nodeName", "spec.restartPolicy", "spec.schedulerName",
			"spec.serviceAccountName", "spec.hostNetwork", "status.phase", "status.podIP", "status.podIPs",
			"status.nominatedNodeName"), map[string]string{"spec.host": "spec.nodeName"})},
		{core("Node"), own("spec.unschedulable")},
		{core("Namespace"), own("status.phase")},
		{core("Secret"), own(namespaceField, "type")},
		{core("Service"), own(namespaceField, "spec.clusterIP", "spec.type")},
		{core("ReplicationController"), own(namespaceField, "status.replicas")},
		{batchv1.SchemeGroupVersion.WithKind("Job"), own(namespaceField, "status.successful")},
		{certificatesv1.SchemeGroupVersion.WithKind("CertificateSigningRequest"), own("spec.signerName")},
		{certificatesv1.SchemeGroupVersion.WithKind("ClusterTrustBundle"), own("spec.signerName")},
		{certificatesv1.SchemeGroupVersion.WithKind("PodCertificateRequest"), own(namespaceField, "spec.signerName", "spec.podName", "spec.nodeName")},
		{core("Event"), own(append(objectFields(involved), namespaceField, "reason", "reportingComponent", "source",
			"type")...)},
		{eventsv1.SchemeGroupVersion.WithKind("Event"), withAliases(own(namespaceField, "reason", "type"), newEventLabels())},
	}
}

// own maps labels that are also the names of their fields; every kind can be selected by name.
func own(names ...string) map[string]string {
	labels := map[string]string{nameField: nameField}
	for _, name := range names {
		labels[name] = name
	}
	return labels
}

func withAliases(labels, aliases map[string]string) map[string]string {
	for alias, name := range aliases {
		labels[alias] = name
	}
	return labels
}

const (
	involved  = "involvedObject."
	regarding = "regarding."
)

// objectFields are the fields of the object that an event is about.
func objectFields(prefix string) []string {
	return []string{prefix + "kind", prefix + "namespace", prefix + "name", prefix + "uid", prefix + "apiVersion",
		prefix + "resourceVersion", prefix + "fieldPath"}
}

func newEventLabels() map[string]string {
	labels := map[string]string{"reportingController": "reportingComponent"}
	from, to := objectFields(regarding), objectFields(involved)
	for i := range from {
		labels[from[i]] = to[i]
	}
	return labels
}

// addKindFields adds the values under the names that kinds maps to.
func addKindFields(set fields.Set, obj runtime.Object) {
	switch o := obj.(type) {
	case *corev1.Pod:
		addPod(set, o)
	case *corev1.Node:
		set["spec.unschedulable"] = strconv.FormatBool(o.Spec.Unschedulable)
	case *corev1.Namespace:
		set["status.phase"] = string(o.Status.Phase)
		set["name"] = o.Name // an old mistake of kube-apiserver that admission plugins may rely on; no label maps to it
	case *corev1.Secret:
		set["type"] = string(o.Type)
	case *corev1.Service:
		set["spec.clusterIP"] = o.Spec.ClusterIP
		set["spec.type"] = string(o.Spec.Type)
	case *corev1.ReplicationController:
		set["status.replicas"] = strconv.Itoa(int(o.Status.Replicas))
	case *batchv1.Job:
		set["status.successful"] = strconv.Itoa(int(o.Status.Succeeded))
	case *certificatesv1.CertificateSigningRequest:
		set["spec.signerName"] = o.Spec.SignerName
	case *certificatesv1.ClusterTrustBundle:
		set["spec.signerName"] = o.Spec.SignerName
	case *certificatesv1.PodCertificateRequest:
		set["spec.signerName"], set["spec.podName"], set["spec.nodeName"] = o.Spec.SignerName, o.Spec.PodName, string(o.Spec.NodeName)
	case *corev1.Event:
		addEvent(set, o.InvolvedObject, o.Source.Component, o.ReportingController, o.Reason, o.Type)
	case *eventsv1.Event:
		addEvent(set, o.Regarding, o.DeprecatedSource.Component, o.ReportingController, o.Reason, o.Type)
	}
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
