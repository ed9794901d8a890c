package selectable

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
)

const (
	Involved  = "involvedObject."
	Regarding = "regarding."
)

// ObjectFields returns the fields of the object that an event is about.
func ObjectFields(prefix string) []string {
	return []string{prefix + "kind", prefix + "namespace", prefix + "name", prefix + "uid", prefix + "apiVersion",
		prefix + "resourceVersion", prefix + "fieldPath"}
}

func AddEvent(set fields.Set, about corev1.ObjectReference, source, reporter, reason, kind string) {
	set["involvedObject.kind"] = about.Kind
	set["involvedObject.namespace"] = about.Namespace
	set["involvedObject.name"] = about.Name
	set["involvedObject.uid"] = string(about.UID)
	set["involvedObject.apiVersion"] = about.APIVersion
	set["involvedObject.resourceVersion"] = about.ResourceVersion
	set["involvedObject.fieldPath"] = about.FieldPath
	set["reason"] = reason
	set["reportingComponent"] = reporter
	set["type"] = kind
	// Events written through events.k8s.io have no source. Their reporting component is used instead.
	set["source"] = source
	if source == "" {
		set["source"] = reporter
	}
}
