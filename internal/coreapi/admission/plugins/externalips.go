package plugins

import (
	"context"
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/admission"
)

// denyServiceExternalIPs refuses external addresses that a Service does not have yet.
//
// A user who may write a Service can give it any address as an external one. Where kube-proxy runs, cluster traffic to that
// address then goes to the Service (CVE-2020-8554).
type denyServiceExternalIPs struct{}

var _ admission.ValidationInterface = denyServiceExternalIPs{}

// Handles implements admission.Interface.
func (denyServiceExternalIPs) Handles(operation admission.Operation) bool {
	return operation == admission.Create || operation == admission.Update
}

// Validate implements admission.ValidationInterface.
func (denyServiceExternalIPs) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	service, ok := a.GetObject().(*corev1.Service)
	if !ok || a.GetSubresource() != "" {
		return nil
	}
	var had []string
	if old, ok := a.GetOldObject().(*corev1.Service); ok {
		had = old.Spec.ExternalIPs
	}
	if slices.ContainsFunc(service.Spec.ExternalIPs, func(ip string) bool { return !slices.Contains(had, ip) }) {
		//lint:ignore ST1005 these are kube-apiserver's words
		return admission.NewForbidden(a, errors.New("Use of external IPs is denied by admission control"))
	}
	return nil
}
