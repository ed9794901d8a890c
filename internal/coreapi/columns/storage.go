package columns

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

func PersistentVolumeColumns() Printer {
	spec, status := corev1.PersistentVolumeSpec{}.SwaggerDoc(), corev1.PersistentVolumeStatus{}.SwaggerDoc()
	return show(func(v *corev1.PersistentVolume, now time.Time) []any {
		claim := ""
		if ref := v.Spec.ClaimRef; ref != nil {
			claim = ref.Namespace + "/" + ref.Name
		}
		size := v.Spec.Capacity[corev1.ResourceStorage]
		return []any{
			v.Name, size.String(), shortModes(v.Spec.AccessModes), string(v.Spec.PersistentVolumeReclaimPolicy),
			volumePhase(string(v.Status.Phase), v), claim, classOf(v.Annotations, &v.Spec.StorageClassName),
			orUnset(v.Spec.VolumeAttributesClassName), v.Status.Reason, ageOf(v, now), orUnset(v.Spec.VolumeMode),
		}
	}, name(), text("Capacity", spec["capacity"]), text("Access Modes", spec["accessModes"]),
		text("Reclaim Policy", spec["persistentVolumeReclaimPolicy"]), text("Status", status["phase"]), text("Claim", spec["claimRef"]),
		text("StorageClass", "The storage class of the volume"), text("VolumeAttributesClass", "The attributes class of the volume"),
		text("Reason", status["reason"]), age(), wide(text("VolumeMode", spec["volumeMode"])))
}

func PersistentVolumeClaimColumns() Printer {
	spec, status := corev1.PersistentVolumeClaimSpec{}.SwaggerDoc(), corev1.PersistentVolumeClaimStatus{}.SwaggerDoc()
	return show(func(c *corev1.PersistentVolumeClaim, now time.Time) []any {
		capacity, modes := "", "" // of the volume, once there is one
		if c.Spec.VolumeName != "" {
			size := c.Status.Capacity[corev1.ResourceStorage]
			capacity, modes = size.String(), shortModes(c.Status.AccessModes)
		}
		return []any{
			c.Name, volumePhase(string(c.Status.Phase), c), c.Spec.VolumeName, capacity, modes,
			classOf(c.Annotations, c.Spec.StorageClassName), orUnset(c.Spec.VolumeAttributesClassName), ageOf(c, now),
			orUnset(c.Spec.VolumeMode),
		}
	}, name(), text("Status", status["phase"]), text("Volume", spec["volumeName"]), text("Capacity", status["capacity"]),
		text("Access Modes", status["accessModes"]), text("StorageClass", "The storage class of the claim"),
		text("VolumeAttributesClass", "The attributes class of the claim"), age(), wide(text("VolumeMode", spec["volumeMode"])))
}

func orUnset[T ~string](value *T) string {
	if value == nil {
		return unset
	}
	return string(*value)
}

func volumePhase(phase string, object interface{ GetDeletionTimestamp() *metav1.Time }) string {
	if object.GetDeletionTimestamp() != nil {
		return "Terminating"
	}
	return phase
}

// classOf prefers the annotation from before the field, as controllers do.
func classOf(annotations map[string]string, class *string) string {
	if old, set := annotations[corev1.BetaStorageClassAnnotation]; set {
		return old
	}
	if class == nil {
		return ""
	}
	return *class
}

func shortModes(modes []corev1.PersistentVolumeAccessMode) string {
	var short []string
	for _, mode := range []struct {
		mode  corev1.PersistentVolumeAccessMode
		short string
	}{
		{corev1.ReadWriteOnce, "RWO"}, {corev1.ReadOnlyMany, "ROX"}, {corev1.ReadWriteMany, "RWX"}, {corev1.ReadWriteOncePod, "RWOP"},
	} {
		if slices.Contains(modes, mode.mode) {
			short = append(short, mode.short)
		}
	}
	return strings.Join(short, ",")
}

// StorageClassColumns marks the default class in a list: of several that say that they are it, the newest.
func StorageClassColumns() Printer {
	doc := storagev1.StorageClass{}.SwaggerDoc()
	cells := func(c *storagev1.StorageClass, now time.Time, mark string) []any {
		policy, binding := corev1.PersistentVolumeReclaimDelete, storagev1.VolumeBindingImmediate
		if c.ReclaimPolicy != nil {
			policy = *c.ReclaimPolicy
		}
		if c.VolumeBindingMode != nil {
			binding = *c.VolumeBindingMode
		}
		return []any{c.Name + mark, c.Provisioner, string(policy), string(binding), c.AllowVolumeExpansion != nil && *c.AllowVolumeExpansion, ageOf(c, now)}
	}
	p := show(func(c *storagev1.StorageClass, now time.Time) []any { return cells(c, now, "") },
		name(), text("Provisioner", doc["provisioner"]), text("ReclaimPolicy", doc["reclaimPolicy"]),
		text("VolumeBindingMode", doc["volumeBindingMode"]), text("AllowVolumeExpansion", doc["allowVolumeExpansion"]), age())
	p.among = func(items []runtime.Object) Printer {
		chosen := defaultClass(items)
		return show(func(c *storagev1.StorageClass, now time.Time) []any {
			if c.Name == chosen {
				return cells(c, now, " (default)")
			}
			return cells(c, now, "")
		}, p.columns...)
	}
	return p
}

// defaultClass is the one that claims without a class get.
func defaultClass(items []runtime.Object) string {
	var chosen *storagev1.StorageClass
	for _, item := range items {
		class, ok := item.(*storagev1.StorageClass)
		if !ok || class.Annotations["storageclass.kubernetes.io/is-default-class"] != "true" &&
			class.Annotations["storageclass.beta.kubernetes.io/is-default-class"] != "true" {
			continue
		}
		if chosen == nil || chosen.CreationTimestamp.Before(&class.CreationTimestamp) ||
			chosen.CreationTimestamp.Equal(&class.CreationTimestamp) && class.Name < chosen.Name {
			chosen = class
		}
	}
	if chosen == nil {
		return ""
	}
	return chosen.Name
}

func VolumeAttachmentColumns() Printer {
	spec := storagev1.VolumeAttachmentSpec{}.SwaggerDoc()
	attacher := text("Attacher", spec["attacher"])
	attacher.Format = "name" // kube-apiserver says so, and kubectl ignores it
	return show(func(a *storagev1.VolumeAttachment, now time.Time) []any {
		volume := ""
		if a.Spec.Source.PersistentVolumeName != nil {
			volume = *a.Spec.Source.PersistentVolumeName
		}
		return []any{a.Name, a.Spec.Attacher, volume, a.Spec.NodeName, a.Status.Attached, ageOf(a, now)}
	}, name(), attacher, text("PV", storagev1.VolumeAttachmentSource{}.SwaggerDoc()["persistentVolumeName"]),
		text("Node", spec["nodeName"]), yesNo("Attached", storagev1.VolumeAttachmentStatus{}.SwaggerDoc()["attached"]), age())
}

func CSIDriverColumns() Printer {
	doc := storagev1.CSIDriverSpec{}.SwaggerDoc()
	return show(func(d *storagev1.CSIDriver, now time.Time) []any {
		s := d.Spec
		audiences := unset
		if s.TokenRequests != nil {
			var list []string
			for _, request := range s.TokenRequests {
				list = append(list, request.Audience)
			}
			audiences = strings.Join(list, ",")
		}
		var modes []string
		for _, mode := range s.VolumeLifecycleModes {
			modes = append(modes, string(mode))
		}
		return []any{
			d.Name, s.AttachRequired == nil || *s.AttachRequired, s.PodInfoOnMount != nil && *s.PodInfoOnMount,
			s.StorageCapacity != nil && *s.StorageCapacity, audiences, s.RequiresRepublish != nil && *s.RequiresRepublish,
			orElse(strings.Join(modes, ","), none), ageOf(d, now),
		}
	}, name(), yesNo("AttachRequired", doc["attachRequired"]), yesNo("PodInfoOnMount", doc["podInfoOnMount"]),
		yesNo("StorageCapacity", doc["storageCapacity"]), text("TokenRequests", doc["tokenRequests"]),
		yesNo("RequiresRepublish", doc["requiresRepublish"]), text("Modes", doc["volumeLifecycleModes"]), age())
}

func CSINodeColumns() Printer {
	return show(func(n *storagev1.CSINode, now time.Time) []any {
		return []any{n.Name, int64(len(n.Spec.Drivers)), ageOf(n, now)}
	}, name(), number("Drivers", "How many storage drivers the node has"), age())
}

func CSIStorageCapacityColumns() Printer {
	doc := storagev1.CSIStorageCapacity{}.SwaggerDoc()
	return show(func(c *storagev1.CSIStorageCapacity, _ time.Time) []any {
		capacity := unset
		if c.Capacity != nil {
			capacity = c.Capacity.String()
		}
		return []any{c.Name, c.StorageClassName, capacity}
	}, name(), text("StorageClassName", doc["storageClassName"]), text("Capacity", doc["capacity"]))
}

func VolumeAttributesClassColumns() Printer {
	return show(func(c *storagev1.VolumeAttributesClass, now time.Time) []any {
		return []any{c.Name, c.DriverName, ageOf(c, now)}
	}, name(), text("DriverName", storagev1.VolumeAttributesClass{}.SwaggerDoc()["driverName"]), age())
}
