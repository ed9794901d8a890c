package validate

import (
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// clusterRulesOf is the part of the table of contents about what pods are given: storage, networks, priorities,
// runtimes, certificates, and how much of it.
func clusterRulesOf(obj runtime.Object) (ruleset, bool) {
	switch obj.(type) {
	case *corev1.PersistentVolume:
		return full(persistentVolume, persistentVolumeUpdate, unchecked[*corev1.PersistentVolume]), true
	case *corev1.PersistentVolumeClaim:
		return full(persistentVolumeClaim, persistentVolumeClaimUpdate, persistentVolumeClaimStatus), true
	case *corev1.LimitRange:
		return same(limitRange), true
	case *corev1.ResourceQuota:
		return full(resourceQuota, resourceQuotaUpdate, resourceQuotaStatus), true
	case *networkingv1.Ingress:
		return full(ingress, ingressUpdate, ingressStatus), true
	case *networkingv1.IngressClass:
		return changing(ingressClass, ingressClassUpdate), true
	case *networkingv1.NetworkPolicy:
		return changing(networkPolicy, networkPolicyUpdate), true
	case *networkingv1.IPAddress:
		return changing(ipAddress, ipAddressUpdate), true
	case *networkingv1.ServiceCIDR:
		return changing(serviceCIDR, serviceCIDRUpdate), true
	case *schedulingv1.PriorityClass:
		return changing(priorityClass, priorityClassUpdate), true
	case *nodev1.RuntimeClass:
		return changing(runtimeClass, runtimeClassUpdate), true
	case *certificatesv1.CertificateSigningRequest:
		return full(certificateRequest, certificateRequestUpdate, certificateRequestStatus), true
	case *certificatesv1.ClusterTrustBundle:
		return changing(trustBundle, trustBundleUpdate), true
	case *certificatesv1.PodCertificateRequest:
		return full(podCertificate, podCertificateUpdate, podCertificateStatus), true
	}
	return storageRulesOf(obj)
}

func storageRulesOf(obj runtime.Object) (ruleset, bool) {
	switch obj.(type) {
	case *storagev1.StorageClass:
		return changing(storageClass, storageClassUpdate), true
	case *storagev1.VolumeAttachment:
		return full(volumeAttachment, volumeAttachmentUpdate, volumeAttachmentUpdate), true
	case *storagev1.CSIDriver:
		return changing(csiDriver, csiDriverUpdate), true
	case *storagev1.CSINode:
		return changing(csiNode, csiNodeUpdate), true
	case *storagev1.CSIStorageCapacity:
		return changing(storageCapacity, storageCapacityUpdate), true
	case *storagev1.VolumeAttributesClass:
		return changing(volumeAttributesClass, volumeAttributesClassUpdate), true
	}
	return ruleset{}, false
}

// unchecked is for statuses that say nothing that could be wrong.
func unchecked[T runtime.Object](_, _ T) field.ErrorList { return nil }

// clusterWarnings are Warnings of the kinds above.
func clusterWarnings(obj runtime.Object) []string {
	switch o := obj.(type) {
	case *corev1.PersistentVolume:
		return persistentVolumeWarnings(o)
	case *corev1.PersistentVolumeClaim:
		return persistentVolumeClaimWarnings(o)
	case *corev1.ResourceQuota:
		return resourceQuotaWarnings(o)
	case *networkingv1.Ingress:
		return ingressWarnings(o)
	case *networkingv1.NetworkPolicy:
		return networkPolicyWarnings(o)
	case *nodev1.RuntimeClass:
		return runtimeClassWarnings(o)
	case *storagev1.CSIDriver:
		return csiDriverWarnings(o)
	case *storagev1.StorageClass:
		return storageClassWarnings(o)
	}
	return nil
}
