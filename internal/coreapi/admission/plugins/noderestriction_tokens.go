package plugins

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/component-helpers/storage/ephemeral"
)

// Requests of nodes on behalf of service accounts: tokens, and certificates of pods. Both must be for a pod that runs on the
// node, and for an audience or signer that the pod uses.

// tokens allows tokens that are bound to a pod of the node, for an audience that the pod's volumes specify.
func (p nodeRestriction) tokens(ctx context.Context, node string, a admission.Attributes) error {
	if a.GetOperation() != admission.Create || a.GetSubresource() != "token" {
		return nil
	}
	wanted, ok := a.GetObject().(*authenticationv1.TokenRequest)
	if !ok {
		return nodeForbidden(a, "unexpected type %T", a.GetObject())
	}
	ref := wanted.Spec.BoundObjectRef
	if ref == nil || ref.APIVersion != "v1" || ref.Kind != "Pod" || ref.Name == "" {
		return nodeForbidden(a, "node requested token not bound to a pod")
	}
	if ref.UID == "" {
		return nodeForbidden(a, "node requested token with a pod binding without a uid")
	}
	pod, err := p.Objects.Pod(ctx, a.GetNamespace(), ref.Name)
	if err != nil {
		return notFoundOr(a, err)
	}
	if ref.UID != pod.UID {
		return nodeForbidden(a, "the UID in the bound object reference (%s) does not match the UID in record. The object might have been deleted and then recreated", ref.UID)
	}
	if pod.Spec.NodeName != node {
		return nodeForbidden(a, "node requested token bound to a pod scheduled on a different node")
	}
	if err := p.audience(ctx, wanted.Spec.Audiences, pod, a); err != nil {
		return admission.NewForbidden(a, err)
	}
	return nil
}

// audience refuses audiences that no volume of the pod specifies, unless RBAC grants the node the permission for this audience.
func (p nodeRestriction) audience(ctx context.Context, audiences []string, pod *corev1.Pod, a admission.Attributes) error {
	wanted := ""
	switch len(audiences) {
	case 0:
	case 1:
		wanted = audiences[0]
	default:
		return errors.New("node may only request 0 or 1 audiences")
	}
	used, err := p.usesAudience(ctx, pod, wanted)
	if err != nil {
		return fmt.Errorf("error validating audience %q: %w", wanted, err)
	}
	if used {
		return nil
	}
	allowed, err := p.mayRequest(ctx, a, "request-serviceaccounts-token-audience", wanted, a.GetName())
	switch user := a.GetUserInfo().GetName(); {
	case allowed:
		return nil
	case err != nil:
		return fmt.Errorf("error authorizing %s to request tokens for audience %q: %w", user, wanted, err)
	default:
		return fmt.Errorf("%s is not authorized to request tokens for audience %q", user, wanted)
	}
}

// mayRequest authorizes a node's request for a service account, with a resource that is not served.
func (p nodeRestriction) mayRequest(ctx context.Context, a admission.Attributes, verb, resource, account string) (bool, error) {
	decision, _, err := p.Authorizer.Authorize(ctx, authorizer.AttributesRecord{
		User: a.GetUserInfo(), Verb: verb, APIGroup: a.GetResource().Group, APIVersion: a.GetResource().Version, Resource: resource,
		Namespace: a.GetNamespace(), Name: account, ResourceRequest: true,
	})
	return decision == authorizer.DecisionAllow, err
}

// usesAudience reports whether a volume of the pod needs tokens for an audience: a projected volume, or the CSI driver of a
// volume. It returns errors only if no volume does.
func (p nodeRestriction) usesAudience(ctx context.Context, pod *corev1.Pod, audience string) (bool, error) {
	var errs []error
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if projectsAudience(v, audience) {
			return true, nil
		}
		name, err := p.driverOf(ctx, pod, v)
		if err == nil && name != "" {
			var driver *storagev1.CSIDriver
			if driver, err = p.Objects.CSIDriver(ctx, name); err == nil &&
				slices.ContainsFunc(driver.Spec.TokenRequests, func(r storagev1.TokenRequest) bool { return r.Audience == audience }) {
				return true, nil
			}
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	return false, utilerrors.NewAggregate(errs)
}

func projectsAudience(v *corev1.Volume, audience string) bool {
	return v.Projected != nil && slices.ContainsFunc(v.Projected.Sources, func(s corev1.VolumeProjection) bool {
		return s.ServiceAccountToken != nil && s.ServiceAccountToken.Audience == audience
	})
}

// inTreeDrivers are the CSI drivers that replace volumes of cloud providers. k8s.io/csi-translation-lib, which translates such
// volumes, would add 100 KB for these names; a test compares them.
var inTreeDrivers = [...]string{
	"ebs.csi.aws.com", "pd.csi.storage.gke.io", "disk.csi.azure.com", "cinder.csi.openstack.org", "file.csi.azure.com", "csi.vsphere.vmware.com", "pxd.portworx.com",
}

// inTreeDriver returns the driver of a volume, or "" if it has none. is reports for each of inTreeDrivers, in order, whether
// the volume is of its kind.
func inTreeDriver(is [len(inTreeDrivers)]bool) string {
	for i, driver := range inTreeDrivers {
		if is[i] {
			return driver
		}
	}
	return ""
}

// driverOf returns the CSI driver of a volume, or "" if it has none.
func (p nodeRestriction) driverOf(ctx context.Context, pod *corev1.Pod, v *corev1.Volume) (string, error) {
	switch {
	case v.Ephemeral != nil && v.Ephemeral.VolumeClaimTemplate != nil:
		return p.driverOfClaim(ctx, pod.Namespace, ephemeral.VolumeClaimName(pod, v))
	case v.PersistentVolumeClaim != nil:
		return p.driverOfClaim(ctx, pod.Namespace, v.PersistentVolumeClaim.ClaimName)
	case v.CSI != nil:
		return v.CSI.Driver, nil
	}
	return inTreeDriver([...]bool{
		v.AWSElasticBlockStore != nil, v.GCEPersistentDisk != nil, v.AzureDisk != nil, v.Cinder != nil, v.AzureFile != nil, v.VsphereVolume != nil, v.PortworxVolume != nil,
	}), nil
}

func (p nodeRestriction) driverOfClaim(ctx context.Context, namespace, name string) (string, error) {
	claim, err := p.Objects.VolumeClaim(ctx, namespace, name)
	if err != nil {
		return "", err
	}
	if claim.Spec.VolumeName == "" {
		return "", apierrors.NewNotFound(corev1.Resource("persistentvolumes"), "")
	}
	volume, err := p.Objects.Volume(ctx, claim.Spec.VolumeName)
	if err != nil {
		return "", err
	}
	s := &volume.Spec.PersistentVolumeSource
	if s.CSI != nil {
		return s.CSI.Driver, nil
	}
	return inTreeDriver([...]bool{
		s.AWSElasticBlockStore != nil, s.GCEPersistentDisk != nil, s.AzureDisk != nil, s.Cinder != nil, s.AzureFile != nil, s.VsphereVolume != nil, s.PortworxVolume != nil,
	}), nil
}

// podCertificates allows requests for a pod of the node if all values match the stored objects. A mismatched UID may be due to
// a delay between storage and kubelet, so it returns a plain error instead of Forbidden, and kubelets retry.
func (p nodeRestriction) podCertificates(ctx context.Context, node string, a admission.Attributes) error {
	if a.GetOperation() != admission.Create {
		return nodeForbidden(a, "unexpected operation %v", a.GetOperation())
	}
	if a.GetSubresource() != "" {
		return nodeForbidden(a, "unexpected subresource %v", a.GetSubresource())
	}
	wanted, ok := a.GetObject().(*certificatesv1.PodCertificateRequest)
	if !ok {
		return nodeForbidden(a, "unexpected type %T", a.GetObject())
	}
	spec, namespace := &wanted.Spec, a.GetNamespace()
	if string(spec.NodeName) != node {
		return nodeForbidden(a, "PodCertificateRequest.Spec.NodeName=%q, which is not the requesting node %q", spec.NodeName, node)
	}
	podName, accountName := namespace+"/"+spec.PodName, namespace+"/"+spec.ServiceAccountName
	object, err := p.Objects.Node(ctx, node)
	if err != nil {
		return namedIn(a, err, "while retrieving node %q named in the PodCertificateRequest: %w", node)
	}
	if object.UID != spec.NodeUID {
		return fmt.Errorf("PodCertificateRequest for pod %q names node UID %q, inconsistent with the running node (%q)", podName, spec.NodeUID, object.UID)
	}
	pod, err := p.Objects.Pod(ctx, namespace, spec.PodName)
	if err != nil {
		return namedIn(a, err, "while retrieving pod %q named in the PodCertificateRequest: %w", podName)
	}
	if pod.UID != spec.PodUID {
		return fmt.Errorf("PodCertificateRequest for pod %q contains pod UID (%q) which differs from running pod %q", podName, spec.PodUID, string(pod.UID))
	}
	if pod.Spec.NodeName != node {
		return nodeForbidden(a, "pod %q is not running on node %q named in the PodCertificateRequest", podName, node)
	}
	if _, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		return nodeForbidden(a, "pod %q is a mirror pod", podName)
	}
	if spec.ServiceAccountName != pod.Spec.ServiceAccountName {
		return nodeForbidden(a, "PodCertificateRequest for pod %q contains serviceAccountName (%q) that differs from running pod (%q)", podName, spec.ServiceAccountName, pod.Spec.ServiceAccountName)
	}
	account, err := p.Objects.ServiceAccount(ctx, namespace, spec.ServiceAccountName)
	if err != nil {
		return namedIn(a, err, "while retrieving service account %q named in the PodCertificateRequest: %w", accountName)
	}
	if account.UID != spec.ServiceAccountUID {
		return fmt.Errorf("PodCertificateRequest for pod %q names service account UID %q, which differs from the running service account (%q)", accountName, spec.ServiceAccountUID, account.UID)
	}
	if err := p.podSigner(ctx, pod, spec, a); err != nil {
		return admission.NewForbidden(a, err)
	}
	return nil
}

// namedIn adds the name of an object that could not be read. If it does not exist, the error is not Forbidden.
func namedIn(a admission.Attributes, err error, format, name string) error {
	said := fmt.Errorf(format, name, err)
	if apierrors.IsNotFound(err) {
		return said
	}
	return admission.NewForbidden(a, said)
}

// podSigner refuses signers that no volume of the pod specifies, unless RBAC grants the node the permission for this signer.
// Signer names have a slash, which resource names cannot have.
func (p nodeRestriction) podSigner(ctx context.Context, pod *corev1.Pod, spec *certificatesv1.PodCertificateRequestSpec, a admission.Attributes) error {
	for i := range pod.Spec.Volumes {
		if projected := pod.Spec.Volumes[i].Projected; projected != nil && slices.ContainsFunc(projected.Sources, func(s corev1.VolumeProjection) bool {
			return s.PodCertificate != nil && s.PodCertificate.SignerName == spec.SignerName
		}) {
			return nil
		}
	}
	allowed, err := p.mayRequest(ctx, a, "request-serviceaccounts-podcertificate-signer", strings.ReplaceAll(spec.SignerName, "/", ":"), spec.ServiceAccountName)
	switch {
	case allowed:
		return nil
	case err != nil:
		return fmt.Errorf("error authorizing %s to request podcertificaterequests for signer %q: %w", a.GetUserInfo().GetName(), spec.SignerName, err)
	default:
		return fmt.Errorf("pod %q does not mount a podCertificate projected volume for signer %q", a.GetNamespace()+"/"+spec.PodName, spec.SignerName)
	}
}
