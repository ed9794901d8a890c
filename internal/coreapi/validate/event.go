package validate

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	maxEventWords = 128  // of reportingInstance, action and reason
	maxEventNote  = 1024 // of the message
)

// EventContent contains the fields that are checked for both Event kinds. As in kube-apiserver, errors have the field names of
// core/v1 for both kinds, except for the reporter.
type EventContent struct {
	Namespace, Reporter, Instance, Action, Reason, Message string
	About                                                  corev1.ObjectReference
	ReporterField                                          string
	EventTime                                              time.Time
}

// Errors validates an event. An event with an eventTime is of the newer kind, and only such events must follow the newer rules.
func (h EventContent) Errors() field.ErrorList {
	var errs field.ErrorList
	if !h.namespaceAgrees() {
		errs = append(errs, field.Invalid(field.NewPath("involvedObject", "namespace"), h.About.Namespace,
			"does not match event.namespace"))
	}
	if !h.EventTime.IsZero() {
		if h.Reporter == "" {
			errs = append(errs, field.Required(field.NewPath(h.ReporterField), ""))
		}
		errs = append(errs, Qualified(h.Reporter, field.NewPath(h.ReporterField))...)
		errs = append(errs, words(h.Instance, "reportingInstance")...)
		errs = append(errs, words(h.Action, "action")...)
		errs = append(errs, words(h.Reason, "reason")...)
		errs = append(errs, atMost(h.Message, "message", maxEventNote)...)
	}
	return append(errs, Invalid(field.NewPath("namespace"), h.Namespace, utilvalidation.IsDNS1123Subdomain(h.Namespace))...)
}

// namespaceAgrees requires an event of the older kind to be in the namespace of its object, so that clients without access to
// the object cannot read the event. Events of the newer kind about namespaced objects are not restricted. Events about
// cluster-scoped objects are in default, or kube-system for the newer kind.
func (h EventContent) namespaceAgrees() bool {
	switch {
	case h.About.Namespace == "" && h.EventTime.IsZero():
		return h.Namespace == metav1.NamespaceNone || h.Namespace == metav1.NamespaceDefault
	case h.About.Namespace == "":
		return h.Namespace == metav1.NamespaceDefault || h.Namespace == metav1.NamespaceSystem
	case h.EventTime.IsZero():
		return h.Namespace == h.About.Namespace
	}
	return true
}

func words(value, name string) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(field.NewPath(name), "")}
	}
	return atMost(value, name, maxEventWords)
}

func atMost(value, name string, limit int) field.ErrorList {
	if len(value) <= limit {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath(name), "", fmt.Sprintf("can have at most %d characters", limit))}
}
