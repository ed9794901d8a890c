package validate

import (
	"reflect"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// volumeList checks the volumes and remembers the sound ones, which containers may mount.
func (p *podScope) volumeList(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	made := sets.New[string]() // claims that come with the pod
	for _, v := range p.spec.Volumes {
		if v.Ephemeral != nil && p.meta != nil && p.meta.Name != "" {
			made.Insert(p.meta.Name + "-" + v.Name)
		}
	}
	for i := range p.spec.Volumes {
		v, at := &p.spec.Volumes[i], path.Index(i)
		bad := p.volumeKind(v, at)
		if v.Name == "" {
			bad = append(bad, field.Required(at.Child("name"), ""))
		} else {
			bad = append(bad, DnsLabel(v.Name, at.Child("name"))...)
		}
		if p.volumes[v.Name] != nil {
			bad = append(bad, field.Duplicate(at.Child("name"), v.Name))
		}
		if len(bad) == 0 {
			p.volumes[v.Name] = &v.VolumeSource
		}
		errs = append(errs, bad...)
		if c := v.PersistentVolumeClaim; c != nil && made.Has(c.ClaimName) {
			errs = append(errs, field.Invalid(at.Child("persistentVolumeClaim", "claimName"), c.ClaimName,
				"must not reference a PVC that gets created for an ephemeral volume"))
		}
	}
	return errs
}

// volumeKind looks into the first kind that is set; any other is one too many.
func (p *podScope) volumeKind(v *corev1.Volume, path *field.Path) field.ErrorList {
	only, others := firstKind(v.VolumeSource, podVolumeOrder)
	if only == "" {
		return field.ErrorList{field.Required(path, "must specify a volume type")}
	}
	single := corev1.Volume{Name: v.Name}
	copyKind(&single.VolumeSource, v.VolumeSource, only)
	return append(p.volumeSource(&single, path, path.Child(only)), tooMany(others, path)...)
}

// volumeSource looks into a volume; at is the path of its kind.
func (p *podScope) volumeSource(v *corev1.Volume, path, at *field.Path) field.ErrorList {
	switch {
	case v.EmptyDir != nil:
		if limit := v.EmptyDir.SizeLimit; limit != nil && limit.Sign() < 0 {
			return field.ErrorList{field.Forbidden(at.Child("sizeLimit"), "SizeLimit field must be a valid resource quantity")}
		}
		return nil
	case v.HostPath != nil:
		return hostPath(v.HostPath, at)
	case v.GitRepo != nil:
		return append(Present(v.GitRepo.Repository, at.Child("repository")), descendingPath(v.GitRepo.Directory, at.Child("directory"))...)
	case v.Secret != nil:
		errs := Present(v.Secret.SecretName, at.Child("secretName"))
		errs = append(errs, fileMode(v.Secret.DefaultMode, at.Child("defaultMode"))...)
		return append(errs, keyFiles(v.Secret.Items, at.Child("items"))...)
	case v.ConfigMap != nil:
		errs := Present(v.ConfigMap.Name, at.Child("name"))
		errs = append(errs, fileMode(v.ConfigMap.DefaultMode, at.Child("defaultMode"))...)
		return append(errs, keyFiles(v.ConfigMap.Items, at.Child("items"))...)
	case v.DownwardAPI != nil:
		errs := fileMode(v.DownwardAPI.DefaultMode, at.Child("defaultMode"))
		for i := range v.DownwardAPI.Items {
			errs = append(errs, downwardFile(&v.DownwardAPI.Items[i], at)...)
		}
		return errs
	case v.Projected != nil:
		return projected(v.Projected, at)
	case v.PersistentVolumeClaim != nil:
		return Present(v.PersistentVolumeClaim.ClaimName, at.Child("claimName"))
	case v.Ephemeral != nil:
		return p.ephemeralVolume(v, path, at)
	case v.CSI != nil:
		errs := DriverName(v.CSI.Driver, at.Child("driver"))
		if ref := v.CSI.NodePublishSecretRef; ref != nil {
			if ref.Name == "" {
				return append(errs, field.Required(at.Child("nodePublishSecretRef", "name"), ""))
			}
			errs = append(errs, DnsSubdomain(ref.Name, at.Child("name"))...) // kube-apiserver leaves out whose name
		}
		return errs
	case v.Image != nil:
		errs := Present(v.Image.Reference, at.Child("reference"))
		return append(errs, Required(v.Image.PullPolicy, at.Child("pullPolicy"), corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever)...)
	case v.NFS != nil:
		return nfs(v.NFS, at)
	case v.FC != nil:
		return fibreChannel(v.FC, at)
	case v.ISCSI != nil:
		return iscsi(&corev1.ISCSIPersistentVolumeSource{
			TargetPortal: v.ISCSI.TargetPortal, IQN: v.ISCSI.IQN, Lun: v.ISCSI.Lun, DiscoveryCHAPAuth: v.ISCSI.DiscoveryCHAPAuth,
			SessionCHAPAuth: v.ISCSI.SessionCHAPAuth, InitiatorName: v.ISCSI.InitiatorName, SecretRef: chapSecret(v.ISCSI.SecretRef),
		}, v.Name, at)
	}
	return clusterVolume(v, at)
}

func chapSecret(r *corev1.LocalObjectReference) *corev1.SecretReference {
	if r == nil {
		return nil
	}
	return &corev1.SecretReference{Name: r.Name}
}

// ephemeralVolume checks a claim that is made for the pod, under a name made of both.
func (p *podScope) ephemeralVolume(v *corev1.Volume, path, at *field.Path) field.ErrorList {
	claim := v.Ephemeral.VolumeClaimTemplate
	at = at.Child("volumeClaimTemplate")
	if claim == nil {
		return field.ErrorList{field.Required(at, "")}
	}
	errs := validation.ValidateAnnotations(claim.Annotations, at.Child("metadata", "annotations"))
	errs = append(errs, metav1validation.ValidateLabels(claim.Labels, at.Child("metadata", "labels"))...)
	errs = append(errs, onlyFields(claim.ObjectMeta, sets.New("Annotations", "Labels"), "cannot be set", at.Child("metadata"))...)
	errs = append(errs, ClaimSpec(&claim.Spec, at.Child("spec"))...)
	if p.meta == nil || p.meta.Name == "" || v.Name == "" {
		return errs
	}
	name := p.meta.Name + "-" + v.Name
	for _, message := range validation.NameIsDNSSubdomain(name, false) {
		errs = append(errs, field.Invalid(path.Child("name"), v.Name, "PVC name \""+name+"\": "+message))
	}
	return errs
}

func keyFiles(items []corev1.KeyToPath, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, item := range items {
		at := path.Index(i)
		errs = append(errs, Present(item.Key, at.Child("key"))...)
		errs = append(errs, Present(item.Path, at.Child("path"))...)
		errs = append(errs, fileName(item.Path, at.Child("path"))...)
		errs = append(errs, fileMode(item.Mode, at.Child("mode"))...)
	}
	return errs
}

func downwardFile(f *corev1.DownwardAPIVolumeFile, path *field.Path) field.ErrorList {
	errs := append(Present(f.Path, path.Child("path")), fileName(f.Path, path.Child("path"))...)
	switch {
	case f.FieldRef != nil:
		errs = append(errs, fieldRef(f.FieldRef, fileFields, path.Child("fieldRef"))...)
		if f.ResourceFieldRef != nil {
			errs = append(errs, field.Invalid(path, "resource", "fieldRef and resourceFieldRef can not be specified simultaneously"))
		}
	case f.ResourceFieldRef != nil:
		errs = append(errs, resourceRef(f.ResourceFieldRef, true, path.Child("resourceFieldRef"))...)
	default:
		errs = append(errs, field.Required(path, "one of fieldRef and resourceFieldRef is required"))
	}
	return append(errs, fileMode(f.Mode, path.Child("mode"))...)
}

func Present(name string, path *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return nil
}

func fileMode(mode *int32, path *field.Path) field.ErrorList {
	if mode != nil && (*mode < 0 || *mode > 0o777) {
		return field.ErrorList{field.Invalid(path, *mode, "must be a number between 0 and 0777 (octal), both inclusive")}
	}
	return nil
}

// pointersSet counts the members that are set of a struct that is a choice between pointers.
func pointersSet(choice any) int {
	count := 0
	for _, member := range reflect.ValueOf(choice).Fields() {
		if member.Kind() == reflect.Pointer && !member.IsNil() {
			count++
		}
	}
	return count
}
