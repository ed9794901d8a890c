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

// podSecurity refuses pods by the label pod-security.kubernetes.io/enforce, and warns and annotates audit events by warn and
// audit. The standards, their versions and the words are the library's.
type podSecurity struct {
	decide *podsecurity.Admission
}

var _ admission.ValidationInterface = podSecurity{}

// New takes a PodSecurityConfiguration, nil for upstream's default: privileged wherever no label says otherwise.
//
// It reads each namespace from etcd where upstream asks an informer: whoever has labelled a namespace and was told so may
// rely on it with the next pod. Pods are listed only to warn of those that a new label would refuse.
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

// checkPodSecurity says what is wrong with a PodSecurityConfiguration.
func checkPodSecurity(config io.Reader) error {
	read, err := load.LoadFromReader(config)
	if err != nil {
		return err
	}
	return validation.ValidatePodSecurityConfiguration(read).ToAggregate()
}

// podSecurityRecorder counts under upstream's names, where the library keeps its own counts. That registry is one for the process:
// what a second server in it counts is not shown.
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

// Handles what makes pods what they are.
func (podSecurity) Handles(operation admission.Operation) bool {
	return operation == admission.Create || operation == admission.Update
}

// Validate asks about namespaces, whose labels must mean something, pods, and what makes pods.
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

// podSecurityForbidden says what the library says, which is 403 for a pod and 422 for a label, and 403 where it says nothing.
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

// podSecurityAttributes are those of a request as the library wants them. Objects here are v1 already.
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
