package plugins

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/warning"
	basemetrics "k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	podsecurity "k8s.io/pod-security-admission/admission"
	"k8s.io/pod-security-admission/admission/api/load"
	"k8s.io/pod-security-admission/admission/api/validation"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/metrics"
	"k8s.io/pod-security-admission/policy"

	"portico.dev/internal/clients"
)

// podSecurity enforces the Pod Security Standards selected by a namespace's labels pod-security.kubernetes.io/enforce, warn and
// audit. k8s.io/pod-security-admission provides the checks and messages.
type podSecurity struct {
	decide *podsecurity.Admission
}

var _ admission.ValidationInterface = podSecurity{}

// newPodSecurity returns the plugin. config is a PodSecurityConfiguration, or nil for upstream's default: privileged unless a
// label specifies another level.
//
// It reads namespaces from etcd, so that a label applies from the next pod on; upstream uses an informer. Pods are listed only
// for warnings about pods that a new label would refuse.
func newPodSecurity(config io.Reader, namespace func(ctx context.Context, name string) (*corev1.Namespace, error), pods clients.Interface) (podSecurity, error) {
	read, err := load.LoadFromReader(config)
	if err != nil {
		return podSecurity{}, err
	}
	checks, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		return podSecurity{}, fmt.Errorf("checks of pods: %w", err)
	}
	decide := &podsecurity.Admission{
		Configuration: read, Evaluator: checks, Metrics: podSecurityRecorder(), PodSpecExtractor: podsecurity.DefaultPodSpecExtractor{},
		NamespaceGetter: namespaceGetter(namespace), PodLister: podsecurity.PodListerFromClient(clients.ForLibrary(pods)),
	}
	if err := errors.Join(decide.CompleteConfiguration(), decide.ValidateConfiguration()); err != nil {
		return podSecurity{}, err
	}
	return podSecurity{decide}, nil
}

// checkPodSecurity validates a PodSecurityConfiguration.
func checkPodSecurity(config io.Reader) error {
	read, err := load.LoadFromReader(config)
	if err != nil {
		return err
	}
	return validation.ValidatePodSecurityConfiguration(read).ToAggregate()
}

// podSecurityRecorder registers upstream's metrics in k8s.io/component-base's legacyregistry. This registry is global: metrics
// of a second server in the process are not exported.
func podSecurityRecorder() metrics.Recorder {
	counts := metrics.NewPrometheusRecorder(api.GetAPIVersion())
	counts.MustRegister(func(all ...basemetrics.Registerable) {
		for _, c := range all {
			_ = legacyregistry.Register(c)
		}
	})
	return counts
}

type namespaceGetter func(ctx context.Context, name string) (*corev1.Namespace, error)

func (g namespaceGetter) GetNamespace(ctx context.Context, name string) (*corev1.Namespace, error) {
	return g(ctx, name)
}

// Handles implements admission.Interface.
func (podSecurity) Handles(operation admission.Operation) bool {
	return operation == admission.Create || operation == admission.Update
}

// Validate checks the labels of namespaces, pods, and objects with pod templates.
func (p podSecurity) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	resource := a.GetResource().GroupResource()
	if resource != corev1.Resource("namespaces") && !p.decide.PodSpecExtractor.HasPodSpec(resource) {
		return nil
	}
	answer := p.decide.Validate(ctx, podSecurityAttributes{a})
	for _, text := range answer.Warnings {
		warning.AddWarning(ctx, "", text)
	}
	for _, key := range slices.Sorted(maps.Keys(answer.AuditAnnotations)) {
		audit.AddAuditAnnotation(ctx, api.AuditAnnotationPrefix+key, answer.AuditAnnotations[key])
	}
	if answer.Allowed {
		return nil
	}
	return podSecurityForbidden(a, answer)
}

// podSecurityForbidden returns the status of k8s.io/pod-security-admission, 403 for a pod and 422 for a label, and 403 if it
// provides none.
func podSecurityForbidden(a admission.Attributes, answer *admissionv1.AdmissionResponse) error {
	err := admission.NewForbidden(a, errors.New("not allowed by PodSecurity"))
	var status *apierrors.StatusError
	if answer.Result == nil || !errors.As(err, &status) {
		return err
	}
	said := answer.Result
	if said.Message != "" {
		status.ErrStatus.Message = said.Message
	}
	if said.Reason != "" {
		status.ErrStatus.Reason = said.Reason
	}
	if said.Details != nil {
		status.ErrStatus.Details = said.Details
	}
	if said.Code != 0 {
		status.ErrStatus.Code = said.Code
	}
	return status
}

// podSecurityAttributes implements api.Attributes of k8s.io/pod-security-admission. Objects already are v1.
type podSecurityAttributes struct{ admission.Attributes }

var _ api.Attributes = podSecurityAttributes{}

func (a podSecurityAttributes) GetObject() (runtime.Object, error) {
	return a.Attributes.GetObject(), nil
}
func (a podSecurityAttributes) GetOldObject() (runtime.Object, error) {
	return a.Attributes.GetOldObject(), nil
}
func (a podSecurityAttributes) GetUserName() string { return a.GetUserInfo().GetName() }
func (a podSecurityAttributes) GetOperation() admissionv1.Operation {
	return admissionv1.Operation(a.Attributes.GetOperation())
}
