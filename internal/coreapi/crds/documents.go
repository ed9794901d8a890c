package crds

import (
	"context"
	"crypto/sha512"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"go.uber.org/zap"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/handler"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"portico.dev/internal/coreapi/openapidocs"
)

// maxDocument is the largest document that is published, in bytes of JSON.
const maxDocument = 16 << 20

// Documents returns the current OpenAPI v3 documents, by path. They follow a change of Served after the time that building
// takes: milliseconds for each definition that changed.
func (d *Definitions) Documents() []openapidocs.Document { return *d.documents.Load() }

// builtDocuments are the documents of all group-versions, each with what it was built from.
type builtDocuments map[schema.GroupVersion]builtDocument

type builtDocument struct {
	source   string
	document *openapidocs.Document // nil: it cannot be built from this source
}

// describe builds the documents that are missing or outdated.
func (d *Definitions) describe(ctx context.Context) error {
	crds, err := d.established()
	if err != nil {
		return err
	}
	next, changed := builtDocuments{}, false
	for gv, defined := range byGroupVersion(crds, d.cfg.BuiltIn) {
		if ctx.Err() != nil {
			return nil
		}
		// After a start this loop can take seconds, and a definition that is created meanwhile should not wait for it.
		if len(d.changed) > 0 {
			if err := d.publish(); err != nil {
				return err
			}
		}
		source := sourceOf(defined)
		if held, ok := d.built[gv]; ok && held.source == source {
			next[gv] = held
			continue
		}
		document, err := build(gv, defined)
		if err != nil {
			d.log.Warn("no OpenAPI document for a group-version of custom resources", zap.Stringer("groupVersion", gv), zap.Error(err))
		}
		next[gv], changed = builtDocument{source, document}, true
	}
	changed = changed || len(next) != len(d.built)
	d.built = next
	if !changed {
		return nil
	}
	var all []openapidocs.Document
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

// sourceOf returns a text that changes when a document built from the definitions would change.
func sourceOf(crds []*apiextensionsv1.CustomResourceDefinition) string {
	var source []byte
	for _, crd := range crds {
		source = fmt.Appendf(source, "%s/%d/%v\n", crd.UID, crd.Generation, crd.Status.AcceptedNames)
	}
	return string(source)
}

func build(gv schema.GroupVersion, crds []*apiextensionsv1.CustomResourceDefinition) (*openapidocs.Document, error) {
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
	document := openapidocs.New("apis/"+gv.String(), body)
	return &document, nil
}

// Swagger is the OpenAPI v2 document of everything that definitions serve at one moment. Few clients read it, and building
// it costs megabytes and milliseconds for each definition, so that it is built when somebody asks, and kept nowhere here.
type Swagger struct {
	// Hash changes when the document does.
	Hash    string
	defined map[schema.GroupVersion][]*apiextensionsv1.CustomResourceDefinition
	log     *zap.Logger
}

// Swagger costs little: nothing is built yet.
func (d *Definitions) Swagger() (Swagger, error) {
	crds, err := d.established()
	if err != nil {
		return Swagger{}, err
	}
	defined := byGroupVersion(crds, d.cfg.BuiltIn)
	sum := sha512.New()
	for _, gv := range slices.SortedFunc(maps.Keys(defined), byPreference) {
		_, _ = fmt.Fprintln(sum, gv, sourceOf(defined[gv])) // a hash takes everything
	}
	return Swagger{Hash: fmt.Sprintf("%X", sum.Sum(nil)), defined: defined, log: d.log}, nil
}

// Build makes the document, in JSON. What cannot be described is left out.
func (s Swagger) Build() ([]byte, error) {
	merged := &spec.Swagger{}
	for _, gv := range slices.SortedFunc(maps.Keys(s.defined), byPreference) {
		for _, crd := range s.defined[gv] {
			part, err := builder.BuildOpenAPIV2(crd, gv.Version, builder.Options{V2: true, IncludeSelectableFields: true})
			if err != nil {
				s.log.Warn("no OpenAPI v2 document for a custom resource", zap.String("definition", crd.Name), zap.String("version", gv.Version), zap.Error(err))
				continue
			}
			// The documents of what is built in have no defaults either; with them the shared definitions would differ.
			part.Definitions = handler.PruneDefaults(part.Definitions)
			if merged, err = builder.MergeSpecs(merged, part); err != nil {
				return nil, fmt.Errorf("merge the OpenAPI v2 document of %s: %w", crd.Name, err)
			}
		}
	}
	body, err := json.Marshal(merged)
	if err != nil {
		return nil, fmt.Errorf("encode the OpenAPI v2 document of custom resources: %w", err)
	}
	return body, nil
}
