package validate

import (
	"reflect"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// volumes returns the names that containers may mount, and what is wrong.
func volumes(list []corev1.Volume, path *field.Path) (sets.Set[string], field.ErrorList) {
	var errs field.ErrorList
	names := sets.New[string]()
	for i := range list {
		v, at := &list[i], path.Index(i)
		switch {
		case v.Name == "":
			errs = append(errs, field.Required(at.Child("name"), ""))
		case names.Has(v.Name):
			errs = append(errs, field.Duplicate(at.Child("name"), v.Name))
		default:
			errs = append(errs, dnsLabel(v.Name, at.Child("name"))...)
		}
		names.Insert(v.Name)
		switch pointersSet(v.VolumeSource) {
		case 0:
			errs = append(errs, field.Required(at, "must specify a volume type"))
		case 1:
			errs = append(errs, volumeSource(&v.VolumeSource, at)...)
		default:
			errs = append(errs, field.Forbidden(at, "may not specify more than 1 volume type"))
		}
	}
	return names, errs
}

// volumeSource looks into the sources that read other objects of the local groups, and into the host's own files.
func volumeSource(v *corev1.VolumeSource, path *field.Path) field.ErrorList {
	switch {
	case v.HostPath != nil:
		at := path.Child("hostPath", "path")
		if v.HostPath.Path == "" {
			return field.ErrorList{field.Required(at, "")}
		}
		return noBacksteps(v.HostPath.Path, at)
	case v.Secret != nil:
		errs := present(v.Secret.SecretName, path.Child("secret", "secretName"))
		return append(errs, fileMode(v.Secret.DefaultMode, path.Child("secret", "defaultMode"))...)
	case v.ConfigMap != nil:
		errs := present(v.ConfigMap.Name, path.Child("configMap", "name"))
		return append(errs, fileMode(v.ConfigMap.DefaultMode, path.Child("configMap", "defaultMode"))...)
	case v.PersistentVolumeClaim != nil:
		return present(v.PersistentVolumeClaim.ClaimName, path.Child("persistentVolumeClaim", "claimName"))
	}
	return nil
}

func present(name string, path *field.Path) field.ErrorList {
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
