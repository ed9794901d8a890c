package extension

import (
	"encoding/json"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// includePolicy reads ?includeObject=, which says how much of each object a Table row carries.
func includePolicy(r *http.Request) (metav1.IncludeObjectPolicy, error) {
	switch policy := metav1.IncludeObjectPolicy(r.URL.Query().Get("includeObject")); policy {
	case "":
		return metav1.IncludeMetadata, nil
	case metav1.IncludeNone, metav1.IncludeMetadata, metav1.IncludeObject:
		return policy, nil
	default:
		return "", apierrors.NewBadRequest(fmt.Sprintf("includeObject %q: must be None, Metadata or Object", policy))
	}
}

func metaKind(kind, version string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "meta.k8s.io", Version: version, Kind: kind}
}

// tableDocument is the rows and columns of items.
func tableDocument(s Resource, version string, meta metav1.ListMeta, items []object, include metav1.IncludeObjectPolicy) (document, error) {
	table, err := newTable(s, version, meta, items, include)
	if err != nil {
		return document{}, err
	}
	return document{kind: metaKind("Table", version), value: table}, nil
}

func newTable(s Resource, version string, meta metav1.ListMeta, items []object, include metav1.IncludeObjectPolicy) (*metav1.Table, error) {
	table := &metav1.Table{ListMeta: meta, ColumnDefinitions: s.source.columns(items), Rows: make([]metav1.TableRow, len(items))}
	table.SetGroupVersionKind(metaKind("Table", version))
	for i, cells := range s.source.cells(items) {
		described, err := rowObject(items[i], version, include)
		if err != nil {
			return nil, err
		}
		table.Rows[i] = metav1.TableRow{Cells: cells, Object: described}
	}
	return table, nil
}

func rowObject(o object, version string, include metav1.IncludeObjectPolicy) (runtime.RawExtension, error) {
	var v any
	switch include {
	case metav1.IncludeNone:
		return runtime.RawExtension{}, nil
	case metav1.IncludeObject:
		v = o
	default:
		v = partial(o, version)
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return runtime.RawExtension{}, fmt.Errorf("encode %s %q: %w", o.GetObjectKind().GroupVersionKind().Kind, o.GetName(), err)
	}
	return runtime.RawExtension{Raw: raw}, nil
}

// partial is the metadata of o and nothing else.
func partial(o object, version string) *metav1.PartialObjectMetadata {
	p := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Name:                       o.GetName(),
		GenerateName:               o.GetGenerateName(),
		Namespace:                  o.GetNamespace(),
		UID:                        o.GetUID(),
		ResourceVersion:            o.GetResourceVersion(),
		Generation:                 o.GetGeneration(),
		CreationTimestamp:          o.GetCreationTimestamp(),
		DeletionTimestamp:          o.GetDeletionTimestamp(),
		DeletionGracePeriodSeconds: o.GetDeletionGracePeriodSeconds(),
		Labels:                     o.GetLabels(),
		Annotations:                o.GetAnnotations(),
		OwnerReferences:            o.GetOwnerReferences(),
		Finalizers:                 o.GetFinalizers(),
		ManagedFields:              o.GetManagedFields(),
	}}
	p.SetGroupVersionKind(metaKind("PartialObjectMetadata", version))
	return p
}

// metadataDocument is one object's metadata.
func metadataDocument(o object, version string) document {
	p := partial(o, version)
	return document{kind: metaKind("PartialObjectMetadata", version), value: p, message: p.Marshal}
}

// metadataListDocument is the metadata of items.
func metadataListDocument(version string, meta metav1.ListMeta, items []object) document {
	partials := make([]*metav1.PartialObjectMetadata, len(items))
	for i, o := range items {
		partials[i] = partial(o, version)
	}
	return listDocument(metaKind("PartialObjectMetadata", version), meta, partials)
}
