package validate

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func environment(vars []corev1.EnvVar, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, v := range vars {
		at := path.Index(i)
		if v.Name == "" {
			errs = append(errs, field.Required(at.Child("name"), ""))
		} else {
			errs = append(errs, Invalid(at.Child("name"), v.Name, utilvalidation.IsRelaxedEnvVarName(v.Name))...)
		}
		if v.ValueFrom != nil {
			errs = append(errs, valueFrom(&v, at.Child("valueFrom"))...)
		}
	}
	return errs
}

func valueFrom(v *corev1.EnvVar, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	from := v.ValueFrom
	if from.FieldRef != nil {
		errs = append(errs, fieldRef(from.FieldRef, envFields, path.Child("fieldRef"))...)
	}
	if from.ResourceFieldRef != nil {
		errs = append(errs, resourceRef(from.ResourceFieldRef, false, path.Child("resourceFieldRef"))...)
	}
	if ref := from.ConfigMapKeyRef; ref != nil {
		errs = append(errs, keyRef(ref.Name, ref.Key, path.Child("configMapKeyRef"))...)
	}
	if ref := from.SecretKeyRef; ref != nil {
		errs = append(errs, keyRef(ref.Name, ref.Key, path.Child("secretKeyRef"))...)
	}
	if from.FileKeyRef != nil {
		errs = append(errs, fileKeyRef(from.FileKeyRef, path.Child("fileKeyRef"))...)
	}
	switch sources := pointersSet(*from); {
	case sources == 0:
		errs = append(errs, field.Invalid(path, "",
			"must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"))
	case v.Value != "":
		errs = append(errs, field.Invalid(path, "", "may not be specified when `value` is not empty"))
	case sources > 1:
		errs = append(errs, field.Invalid(path, "", "may not have more than one field specified at a time"))
	}
	return errs
}

func environmentFrom(sources []corev1.EnvFromSource, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, s := range sources {
		at := path.Index(i)
		if s.Prefix != "" {
			errs = append(errs, Invalid(at.Child("prefix"), s.Prefix, utilvalidation.IsRelaxedEnvVarName(s.Prefix))...)
		}
		if s.ConfigMapRef != nil {
			errs = append(errs, requiredSubdomain(s.ConfigMapRef.Name, at.Child("configMapRef", "name"))...)
		}
		if s.SecretRef != nil {
			errs = append(errs, requiredSubdomain(s.SecretRef.Name, at.Child("secretRef", "name"))...)
		}
		switch pointersSet(s) {
		case 0:
			errs = append(errs, field.Invalid(path, "", "must specify one of: `configMapRef` or `secretRef`"))
		case 1:
		default:
			errs = append(errs, field.Invalid(path, "", "may not have more than one field specified at a time"))
		}
	}
	return errs
}

func requiredSubdomain(name string, path *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return DnsSubdomain(name, path)
}

func keyRef(name, key string, path *field.Path) field.ErrorList {
	errs := DnsSubdomain(name, path.Child("name"))
	if key == "" {
		return append(errs, field.Required(path.Child("key"), ""))
	}
	return append(errs, Invalid(path.Child("key"), key, utilvalidation.IsConfigMapKey(key))...)
}

func fileKeyRef(r *corev1.FileKeySelector, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if r.Key == "" {
		errs = append(errs, field.Required(path.Child("key"), ""))
	} else {
		errs = append(errs, Invalid(path.Child("key"), r.Key, utilvalidation.IsRelaxedEnvVarName(r.Key))...)
	}
	if r.VolumeName == "" {
		errs = append(errs, field.Required(path.Child("volumeName"), ""))
	} else {
		errs = append(errs, DnsLabel(r.VolumeName, path.Child("volumeName"))...)
	}
	if r.Path == "" {
		return append(errs, field.Required(path.Child("path"), ""))
	}
	return append(errs, noBacksteps(r.Path, path.Child("path"))...)
}

// envFiles requires the volumes of variables from files to be emptyDirs, which other containers of the pod write.
func (p *podScope) envFiles(path *field.Path) field.ErrorList {
	sources := map[string]*corev1.VolumeSource{}
	for i := range p.spec.Volumes {
		sources[p.spec.Volumes[i].Name] = &p.spec.Volumes[i].VolumeSource
	}
	var errs field.ErrorList
	EachContainer(p.spec, path, func(c *corev1.Container, at *field.Path) {
		for i, v := range c.Env {
			if v.ValueFrom == nil || v.ValueFrom.FileKeyRef == nil {
				continue
			}
			name, here := v.ValueFrom.FileKeyRef.VolumeName, at.Child("env").Index(i).Child("valueFrom", "fileKeyRef", "volumeName")
			switch source := sources[name]; {
			case source == nil:
				errs = append(errs, field.NotFound(here, name))
			case source.EmptyDir == nil:
				errs = append(errs, field.Invalid(here, name, "referenced volume must be of type emptyDir"))
			}
		}
	})
	return errs
}

// EachContainer calls visit for each init, main and ephemeral container, with its path.
func EachContainer(s *corev1.PodSpec, path *field.Path, visit func(*corev1.Container, *field.Path)) {
	for i := range s.InitContainers {
		visit(&s.InitContainers[i], path.Child("initContainers").Index(i))
	}
	for i := range s.Containers {
		visit(&s.Containers[i], path.Child("containers").Index(i))
	}
	for i := range s.EphemeralContainers {
		visit((*corev1.Container)(&s.EphemeralContainers[i].EphemeralContainerCommon), path.Child("ephemeralContainers").Index(i))
	}
}

// Fields of the pod that a container may read in variables and in files.
var (
	envFields = sets.New("metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName",
		"status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs")
	fileFields = sets.New("metadata.name", "metadata.namespace", "metadata.labels", "metadata.annotations", "metadata.uid")
	podFields  = envFields.Union(fileFields).Insert("spec.restartPolicy", "spec.schedulerName", "status.phase", "spec.host")
)

func fieldRef(r *corev1.ObjectFieldSelector, allowed sets.Set[string], path *field.Path) field.ErrorList {
	if r.APIVersion == "" {
		return field.ErrorList{field.Required(path.Child("apiVersion"), "")}
	}
	at := path.Child("fieldPath")
	if r.FieldPath == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	broken := func(why string) field.ErrorList {
		return field.ErrorList{field.Invalid(at, r.FieldPath, "error converting fieldPath: "+why)}
	}
	if r.APIVersion != "v1" {
		return broken("unsupported pod version: " + r.APIVersion)
	}
	name, key, subscripted := subscript(r.FieldPath)
	switch {
	case subscripted && name == "metadata.annotations":
		return Qualified(strings.ToLower(key), path)
	case subscripted && name == "metadata.labels":
		return Qualified(key, path)
	case subscripted:
		return broken("field label does not support subscript: " + r.FieldPath)
	case !podFields.Has(name):
		return broken("field label not supported: " + name)
	}
	if name == "spec.host" {
		name = "spec.nodeName"
	}
	if !allowed.Has(name) {
		return field.ErrorList{field.NotSupported(at, name, sets.List(allowed))}
	}
	return nil
}

// subscript splits metadata.labels['key'].
func subscript(path string) (name, key string, found bool) {
	inner, closed := strings.CutSuffix(path, "']")
	name, key, open := strings.Cut(inner, "['")
	if !closed || !open || name == "" {
		return path, "", false
	}
	return name, key, true
}

var (
	byteDivisors = sets.New("1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei")
	cpuDivisors  = sets.New("1m", "1")
	ofContainers = []string{"limits.cpu", "limits.ephemeral-storage", "limits.memory", "requests.cpu", "requests.ephemeral-storage", "requests.memory"}
)

func resourceRef(r *corev1.ResourceFieldSelector, inVolume bool, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	huge := strings.HasPrefix(r.Resource, "requests.hugepages-") || strings.HasPrefix(r.Resource, "limits.hugepages-")
	switch {
	case inVolume && r.ContainerName == "":
		errs = append(errs, field.Required(path.Child("containerName"), ""))
	case r.Resource == "":
		errs = append(errs, field.Required(path.Child("resource"), ""))
	case !huge && !slices.Contains(ofContainers, r.Resource):
		errs = append(errs, field.NotSupported(path.Child("resource"), r.Resource, ofContainers))
	}
	if r.Divisor.IsZero() {
		return errs
	}
	allowed, of := byteDivisors, ""
	switch _, name, _ := strings.Cut(r.Resource, "."); {
	case name == "cpu":
		if !cpuDivisors.Has(r.Divisor.String()) {
			errs = append(errs, field.Invalid(path.Child("divisor"), r.Resource, "only divisor's values 1m and 1 are supported with the cpu resource"))
		}
		return errs
	case name == "memory":
		of = "memory"
	case name == "ephemeral-storage":
		of = "local ephemeral storage"
	case huge:
		of = "hugepages"
	default:
		return errs
	}
	if !allowed.Has(r.Divisor.String()) {
		errs = append(errs, field.Invalid(path.Child("divisor"), r.Resource, fmt.Sprintf("only divisor's values 1, 1k, 1M, 1G, 1T, 1P, "+
			"1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei are supported with the %s resource", of)))
	}
	return errs
}
