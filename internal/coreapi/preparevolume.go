package coreapi

import (
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"
)

// What volumes and claims are before anybody has looked at them, and what is noted when that changes.

func prepareVolume(obj runtime.Object) {
	now := metav1.Now()
	obj.(*corev1.PersistentVolume).Status = corev1.PersistentVolumeStatus{Phase: corev1.VolumePending, LastPhaseTransitionTime: &now}
}

// datePhase notes when a volume came into its phase, unless the controller has said so itself.
func datePhase(obj, old runtime.Object) {
	status, before := &obj.(*corev1.PersistentVolume).Status, old.(*corev1.PersistentVolume).Status
	said := status.LastPhaseTransitionTime
	switch {
	case status.Phase == before.Phase && said == nil:
		status.LastPhaseTransitionTime = before.LastPhaseTransitionTime
	case status.Phase != before.Phase && (said == nil || said.Equal(before.LastPhaseTransitionTime)):
		now := metav1.Now()
		status.LastPhaseTransitionTime = &now
	}
}

func prepareClaim(obj runtime.Object) {
	claim := obj.(*corev1.PersistentVolumeClaim)
	claim.Status = corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending}
	fillFrom(&claim.Spec, nil)
}

func updateClaim(obj, old runtime.Object) {
	before := &old.(*corev1.PersistentVolumeClaim).Spec
	fillFrom(&obj.(*corev1.PersistentVolumeClaim).Spec, before)
	sameSource(before) // what an older server stored may have only one of the two
}

// fillFrom settles what a claim is to be filled from. dataSource has always dropped kinds that it does not know;
// dataSourceRef came later (KEP-1495), and keeps them.
func fillFrom(s, old *corev1.PersistentVolumeClaimSpec) {
	if s.DataSourceRef != nil && s.DataSourceRef.Namespace != nil && *s.DataSourceRef.Namespace != "" {
		// Another namespace's data (CrossNamespaceVolumeDataSource) is alpha, and off.
		if old == nil || old.DataSourceRef == nil {
			s.DataSourceRef = nil
		}
	}
	inUse := old != nil && (old.DataSource != nil || old.DataSourceRef != nil)
	if !inUse && s.DataSourceRef == nil && s.DataSource != nil {
		group := ""
		if s.DataSource.APIGroup != nil {
			group = *s.DataSource.APIGroup
		}
		claim := group == "" && s.DataSource.Kind == "PersistentVolumeClaim"
		if snapshot := group == "snapshot.storage.k8s.io" && s.DataSource.Kind == "VolumeSnapshot"; !claim && !snapshot {
			s.DataSource = nil
		}
	}
	sameSource(s)
}

// sameSource copies the one of the two fields that is set to the other.
func sameSource(s *corev1.PersistentVolumeClaimSpec) {
	source, ref := s.DataSource, s.DataSourceRef
	switch {
	case source != nil && ref == nil:
		s.DataSourceRef = &corev1.TypedObjectReference{APIGroup: source.APIGroup, Kind: source.Kind, Name: source.Name}
	case source == nil && ref != nil && (ref.Namespace == nil || *ref.Namespace == ""):
		s.DataSource = &corev1.TypedLocalObjectReference{APIGroup: ref.APIGroup, Kind: ref.Kind, Name: ref.Name}
	}
}

// dropVolumeHealth and dropStorageHealth leave out what kube-apiserver leaves out too: CSIVolumeHealth is alpha, and off.
func dropVolumeHealth(obj, old runtime.Object) {
	if old.(*corev1.PersistentVolumeClaim).Status.HealthStatus == nil {
		obj.(*corev1.PersistentVolumeClaim).Status.HealthStatus = nil
	}
}

func dropStorageHealth(obj, old runtime.Object) {
	if old.(*storagev1.CSINode).Status.StorageHealth == nil {
		obj.(*storagev1.CSINode).Status.StorageHealth = nil
	}
}

// nameLimitRange gives a nameless one a name, as kube-apiserver always has.
func nameLimitRange(obj runtime.Object) {
	if limits := obj.(*corev1.LimitRange); limits.Name == "" {
		limits.Name = string(uuid.NewUUID())
	}
}

// countDriverChanges gives a CSIDriver a generation with its first change: new ones have none, as with kube-apiserver.
func countDriverChanges(obj, old runtime.Object) {
	if !apiequality.Semantic.DeepEqual(obj.(*storagev1.CSIDriver).Spec, old.(*storagev1.CSIDriver).Spec) {
		setGeneration(obj, generation(old)+1)
	}
}
