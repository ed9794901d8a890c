package validate

import (
	"reflect"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// The order in which kube-apiserver looks for the kinds of a volume: the first is looked into, the others are too many.
var (
	podVolumeOrder = []string{
		"emptyDir", "hostPath", "gitRepo", "gcePersistentDisk", "awsElasticBlockStore", "secret", "nfs", "iscsi", "glusterfs",
		"flocker", "persistentVolumeClaim", "rbd", "cinder", "cephfs", "quobyte", "downwardAPI", "fc", "flexVolume", "configMap",
		"azureFile", "vsphereVolume", "photonPersistentDisk", "portworxVolume", "azureDisk", "storageos", "projected", "scaleIO",
		"csi", "ephemeral", "image",
	}
	persistentVolumeOrder = []string{
		"hostPath", "gcePersistentDisk", "awsElasticBlockStore", "glusterfs", "flocker", "nfs", "rbd", "quobyte", "cephfs", "iscsi",
		"cinder", "fc", "flexVolume", "azureFile", "vsphereVolume", "photonPersistentDisk", "portworxVolume", "azureDisk", "scaleIO",
		"local", "storageos", "csi",
	}
)

// spelled are names that kube-apiserver spells otherwise where it refuses a second kind.
var spelled = map[string]string{"cephfs": "cephFS", "downwardAPI": "downwarAPI"}

// firstKind returns the kind that counts, and those beside it. choice is a struct of pointers, one for each kind.
func firstKind(choice any, order []string) (first string, others []string) {
	set := map[string]bool{}
	for f, member := range reflect.ValueOf(choice).Fields() {
		set[jsonName(f)] = !member.IsNil()
	}
	for _, name := range order {
		switch {
		case !set[name]:
		case first == "":
			first = name
		default:
			others = append(others, name)
		}
	}
	return first, others
}

// copyKind sets in to, a pointer to a struct like from, the one kind that is called name.
func copyKind(to, from any, name string) {
	source, target := reflect.ValueOf(from), reflect.ValueOf(to).Elem()
	for i := range source.NumField() {
		if jsonName(source.Type().Field(i)) == name {
			target.Field(i).Set(source.Field(i))
		}
	}
}

func tooMany(others []string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, name := range others {
		if as, ok := spelled[name]; ok {
			name = as
		}
		errs = append(errs, field.Forbidden(path.Child(name), "may not specify more than 1 volume type"))
	}
	return errs
}
