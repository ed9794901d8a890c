package crds

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/spec3"

	"go.uber.org/zap"
)

// maxDocument is the largest document that is kept, in bytes of JSON.
const maxDocument = 16 << 20

// Document is the OpenAPI v3 document of a group-version that definitions serve.
type Document struct {
	// Path is where it belongs in the index, "apis/example.com/v1".
	Path string
	// Hash is SHA-512 of the JSON, in upper-case hex.
	Hash string
	// Packed is the JSON, compressed with gzip.
	Packed []byte
}

// Documents are those of the moment, by path. After a change of Served they follow within the time it takes to build
// them: milliseconds for each definition that changed.
func (d *Definitions) Documents() []Document { return *d.documents.Load() }

// library is the documents that were built, each with what it was built from. It holds as many as there are
// group-versions, packed.
type library map[schema.GroupVersion]volume

type volume struct {
	source   string
	document *Document // nil: it cannot be built from this source
}

// describe builds the documents that are missing or no longer true.
func (d *Definitions) describe(ctx context.Context) error {
	crds, err := d.established()
	if err != nil {
		return err
	}
	next, changed := library{}, false
	for gv, defined := range byGroupVersion(crds, d.cfg.BuiltIn) {
		if ctx.Err() != nil {
			return nil
		}
		// After a start there may be seconds of work here, and a definition that comes meanwhile should not wait for it.
		if len(d.news) > 0 {
			if err := d.publish(); err != nil {
				return err
			}
		}
		source := sourceOf(defined)
		if held, ok := d.known[gv]; ok && held.source == source {
			next[gv] = held
			continue
		}
		document, err := build(gv, defined)
		if err != nil {
			d.log.Warn("no OpenAPI document for a group-version of custom resources", zap.Stringer("groupVersion", gv), zap.Error(err))
		}
		next[gv], changed = volume{source, document}, true
	}
	changed = changed || len(next) != len(d.known)
	d.known = next
	if !changed {
		return nil
	}
	var all []Document
	for _, gv := range slices.SortedFunc(maps.Keys(next), byPreference) {
		if document := next[gv].document; document != nil {
			all = append(all, *document)
		}
	}
	d.documents.Store(&all)
	d.cfg.Changed()
	return nil
}

func byGroupVersion(crds []*apiextensionsv1.CustomResourceDefinition, builtIn func(schema.GroupVersion) bool) map[schema.GroupVersion][]*apiextensionsv1.CustomResourceDefinition {
	out := map[schema.GroupVersion][]*apiextensionsv1.CustomResourceDefinition{}
	for _, crd := range crds {
		for _, v := range crd.Spec.Versions {
			gv := schema.GroupVersion{Group: crd.Spec.Group, Version: v.Name}
			if v.Served && !builtIn(gv) {
				out[gv] = append(out[gv], crd)
			}
		}
	}
	return out
}

// sourceOf changes when a document built from the definitions would change.
func sourceOf(crds []*apiextensionsv1.CustomResourceDefinition) string {
	var source []byte
	for _, crd := range crds {
		source = fmt.Appendf(source, "%s/%d/%v\n", crd.UID, crd.Generation, crd.Status.AcceptedNames)
	}
	return string(source)
}

func build(gv schema.GroupVersion, crds []*apiextensionsv1.CustomResourceDefinition) (*Document, error) {
	var parts []*spec3.OpenAPI
	for _, crd := range crds {
		part, err := builder.BuildOpenAPIV3(crd, gv.Version, builder.Options{IncludeSelectableFields: true})
		if err != nil {
			return nil, fmt.Errorf("describe %s: %w", crd.Name, err)
		}
		parts = append(parts, part)
	}
	merged, err := builder.MergeSpecsV3(parts...)
	if err != nil {
		return nil, fmt.Errorf("merge: %w", err)
	}
	body, err := json.Marshal(merged)
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	if len(body) > maxDocument {
		return nil, fmt.Errorf("the document has %d bytes, more than %d", len(body), maxDocument)
	}
	packed, err := pack(body)
	if err != nil {
		return nil, fmt.Errorf("compress: %w", err)
	}
	return &Document{Path: "apis/" + gv.String(), Hash: fmt.Sprintf("%X", sha512.Sum512(body)), Packed: packed}, nil
}

func pack(body []byte) ([]byte, error) {
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if _, err := w.Write(body); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return packed.Bytes(), nil
}
