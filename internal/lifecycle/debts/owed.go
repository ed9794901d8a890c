package debts

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NamespaceUIDAnnotation says which namespace an object belongs to, for backends that know: it decides alone, whatever
// the age of the object.
const NamespaceUIDAnnotation = "portico.dev/namespace-uid"

// judgement is what a debt has to say about an object.
type judgement int

const (
	// spared objects belong to somebody, or are on their way out already.
	spared judgement = iota
	// owed objects belonged to the namespace that went.
	owed
	// doubtful objects cannot be told apart from those of a new namespace of the same name, or not be deleted without
	// the risk of hitting another object of that name.
	doubtful
)

// judge decides about one object of the namespace's name. The namespace existed for Settle after the debt was recorded,
// so that what is older belonged to it, and what belongs to its successor is younger by the clock of the backend.
//
// An object that is being deleted is spared: its finalizers are for others to take away, who need the group-version to
// be available for that.
func (d Debt) judge(o *metav1.PartialObjectMetadata) judgement {
	uid, said := o.Annotations[NamespaceUIDAnnotation]
	switch {
	case o.Namespace != "" && o.Namespace != d.Namespace:
		return spared // a backend that does not heed the namespace it was asked for
	case said && uid != string(d.NamespaceUID), o.DeletionTimestamp != nil:
		return spared
	case !said && o.CreationTimestamp.IsZero():
		return doubtful
	case !said && o.CreationTimestamp.After(d.Since):
		return spared
	case o.UID == "":
		return doubtful
	}
	return owed
}
