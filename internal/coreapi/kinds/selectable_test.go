package kinds_test

import (
	"maps"
	"slices"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func newScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		batchv1.AddToScheme, certificatesv1.AddToScheme, corev1.AddToScheme, eventsv1.AddToScheme, rbacv1.AddToScheme, resourcev1.AddToScheme, registerAll,
	} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return scheme
}

func TestFieldSelectors(t *testing.T) {
	core := corev1.SchemeGroupVersion.WithKind
	named := metav1.ObjectMeta{Name: "a", Namespace: "ns"}
	about := corev1.ObjectReference{Kind: "Pod", Namespace: "ns", Name: "web", UID: "u1"}
	pod := &corev1.Pod{ObjectMeta: named,
		Spec:   corev1.PodSpec{NodeName: "n1", RestartPolicy: corev1.RestartPolicyNever, ServiceAccountName: "robot"},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIPs: []corev1.PodIP{{IP: "10.0.0.7"}, {IP: "fd00::7"}}}}
	newEvent := &eventsv1.Event{ObjectMeta: named, Regarding: about, Reason: "Killing", ReportingController: "kubelet"}
	oldEvent := &corev1.Event{ObjectMeta: named, InvolvedObject: about, Source: corev1.EventSource{Component: "kubelet"}}
	newEventKind := eventsv1.SchemeGroupVersion.WithKind("Event")
	for _, c := range []struct {
		situation string
		gvk       schema.GroupVersionKind
		obj       runtime.Object
		selector  string
		matches   bool
	}{
		{"pods of a node", core("Pod"), pod, "spec.nodeName=n1", true},
		{"pods of a node, by its name of 2015", core("Pod"), pod, "spec.host=n1", true},
		{"pods of another node", core("Pod"), pod, "spec.nodeName=n2", false},
		{"pods that are not done", core("Pod"), pod, "status.phase!=Succeeded,status.phase!=Failed", true},
		{"pods of a service account", core("Pod"), pod, "spec.serviceAccountName=robot", true},
		{"pods outside the host's network", core("Pod"), pod, "spec.hostNetwork=false", true},
		{"the pod behind an address", core("Pod"), pod, "status.podIP=10.0.0.7", true},
		{"one object by name and namespace", core("Pod"), pod, "metadata.name=a,metadata.namespace=ns", true},
		{"cordoned nodes", core("Node"), &corev1.Node{Spec: corev1.NodeSpec{Unschedulable: true}}, "spec.unschedulable=true", true},
		{"namespaces on their way out", core("Namespace"),
			&corev1.Namespace{Status: corev1.NamespaceStatus{Phase: corev1.NamespaceTerminating}}, "status.phase=Terminating", true},
		{"secrets of a type", core("Secret"), &corev1.Secret{Type: corev1.SecretTypeTLS}, "type=kubernetes.io/tls", true},
		{"headless services", core("Service"), &corev1.Service{Spec: corev1.ServiceSpec{ClusterIP: "None"}}, "spec.clusterIP=None", true},
		{"services of a type", core("Service"), &corev1.Service{Spec: corev1.ServiceSpec{Type: "NodePort"}}, "spec.type=ClusterIP", false},
		{"kubectl describe asks for events of an object", core("Event"), oldEvent,
			"involvedObject.name=web,involvedObject.namespace=ns,involvedObject.kind=Pod,involvedObject.uid=u1", true},
		{"events by source", core("Event"), oldEvent, "source=kubelet", true},
		{"events of the newer API by what they regard", newEventKind, newEvent, "regarding.name=web,regarding.kind=Pod", true},
		{"events of the newer API by reporter", newEventKind, newEvent, "reportingController=kubelet,reason=Killing", true},
		{"requests to a signer", certificatesv1.SchemeGroupVersion.WithKind("CertificateSigningRequest"),
			&certificatesv1.CertificateSigningRequest{Spec: certificatesv1.CertificateSigningRequestSpec{SignerName: "example.com/s"}}, "spec.signerName=example.com/s", true},
		{"bundles of a signer", certificatesv1.SchemeGroupVersion.WithKind("ClusterTrustBundle"),
			&certificatesv1.ClusterTrustBundle{Spec: certificatesv1.ClusterTrustBundleSpec{SignerName: "example.com/s"}}, "spec.signerName=example.com/s", true},
		{"requests of the pods of a node", certificatesv1.SchemeGroupVersion.WithKind("PodCertificateRequest"),
			&certificatesv1.PodCertificateRequest{Spec: certificatesv1.PodCertificateRequestSpec{NodeName: "n", PodName: "p"}}, "spec.nodeName=n,spec.podName=p", true},
		{"jobs by what they completed", batchv1.SchemeGroupVersion.WithKind("Job"), &batchv1.Job{Status: batchv1.JobStatus{Succeeded: 2}}, "status.successful=2", true},
		{"replication controllers by size", core("ReplicationController"), &corev1.ReplicationController{Status: corev1.ReplicationControllerStatus{Replicas: 3}}, "status.replicas=2", false},
		{"a kind without fields of its own, by name", rbacv1.SchemeGroupVersion.WithKind("Role"),
			&rbacv1.Role{ObjectMeta: named}, "metadata.name=a", true},
	} {
		t.Run(c.situation, func(t *testing.T) {
			scheme := newScheme(t)
			selector, err := fields.ParseAndTransformSelector(c.selector, func(label, value string) (string, string, error) {
				return scheme.ConvertFieldLabel(c.gvk, label, value)
			})
			if err != nil {
				t.Fatal(err)
			}
			_, set, err := attrsOf(c.obj)
			if err != nil {
				t.Fatal(err)
			}
			if got := selector.Matches(set); got != c.matches {
				t.Errorf("selector %q matches %v = %v, want %v", c.selector, set, got, c.matches)
			}
		})
	}
}

func TestUnsupportedFieldSelectorsAreRejected(t *testing.T) {
	scheme := newScheme(t)
	for situation, c := range map[string]struct {
		gvk         schema.GroupVersionKind
		label, want string
	}{
		"a field that exists but cannot be selected": {corev1.SchemeGroupVersion.WithKind("Pod"), "spec.priority",
			"field label not supported: spec.priority"},
		"namespaces by the field that only admission sees": {corev1.SchemeGroupVersion.WithKind("Namespace"), "name",
			"field label not supported: name"},
		"core's name for a field of the newer events": {eventsv1.SchemeGroupVersion.WithKind("Event"), "involvedObject.name",
			"field label not supported: involvedObject.name"},
		"slices by the generation of their pool": {resourcev1.SchemeGroupVersion.WithKind("ResourceSlice"), "spec.pool.generation",
			"field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: spec.pool.generation"},
		"any field of a kind that has none": {rbacv1.SchemeGroupVersion.WithKind("Role"), "rules",
			`"rules" is not a known field selector: only "metadata.name", "metadata.namespace"`},
	} {
		t.Run(situation, func(t *testing.T) {
			_, _, err := scheme.ConvertFieldLabel(c.gvk, c.label, "x")
			if err == nil || err.Error() != c.want {
				t.Errorf("ConvertFieldLabel(%q) error = %v, want %s", c.label, err, c.want)
			}
		})
	}
}

// A selectable label whose field Attrs does not set would match no object and report no error.
func TestEverySelectableFieldHasValue(t *testing.T) {
	scheme := newScheme(t)
	for _, kind := range selectableKinds() {
		obj, err := scheme.New(kind.gvk)
		if err != nil {
			t.Fatal(err)
		}
		obj.(metav1.Object).SetNamespace("ns")
		_, set, err := attrsOf(obj)
		if err != nil {
			t.Fatal(err)
		}
		for _, field := range slices.Sorted(maps.Values(kind.fields.Labels())) {
			if _, ok := set[field]; !ok {
				t.Errorf("%s: the field %s has no value, want one", kind.gvk, field)
			}
		}
	}
}

func TestObjectWithoutMetadataHasNoSelectableFields(t *testing.T) {
	if _, _, err := attrsOf(&metav1.Status{}); err == nil {
		t.Error("attrsOf(Status) returned no error, want an error")
	}
}
