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

	"portico.dev/internal/coreapi/openapidocs"
)

// maxDocument limits a published document, in bytes of JSON.
const maxDocument = 16 << 20

// Documents returns the current OpenAPI v3 documents, ordered by path. They follow a change of Served after the build time:
// milliseconds for each changed definition.
func (d *Definitions) Documents() []openapidocs.Document { return *d.documents.Load() }

// builtDocuments contains the documents of all group-versions with their sources.
type builtDocuments map[schema.GroupVersion]builtDocument

type builtDocument struct {
	source   string
	document *openapidocs.Document // nil if it cannot be built from source
}

// describe builds missing and outdated documents.
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
		// After a start this loop can take seconds, which must not delay a definition that is created in the meantime.
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
			d.log.Warn("failed to build the OpenAPI document for a group-version of custom resources", zap.Stringer("groupVersion", gv), zap.Error(err))
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

// sourceOf returns a string that changes whenever a document built from the definitions would change.
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

// Swagger is the OpenAPI v2 document of one version of a definition. Few clients read it, and building it takes megabytes and
// milliseconds. It is built on request and not cached here.
type Swagger struct {
	// Hash changes with the document.
	Hash       string
	definition *apiextensionsv1.CustomResourceDefinition
	version    string
}

// Swagger returns the documents of all served definitions, with the preferred version of a group first. It builds none.
func (d *Definitions) Swagger() ([]Swagger, error) {
	crds, err := d.established()
	if err != nil {
		return nil, err
	}
	var all []Swagger
	defined := byGroupVersion(crds, d.cfg.BuiltIn)
	for _, gv := range slices.SortedFunc(maps.Keys(defined), byPreference) {
		for _, crd := range defined[gv] {
			source := fmt.Sprintln(gv, sourceOf([]*apiextensionsv1.CustomResourceDefinition{crd}))
			all = append(all, Swagger{Hash: fmt.Sprintf("%X", sha512.Sum512([]byte(source))), definition: crd, version: gv.Version})
		}
	}
	return all, nil
}

// Build returns the document in JSON.
func (s Swagger) Build() ([]byte, error) {
	built, err := builder.BuildOpenAPIV2(s.definition, s.version, builder.Options{V2: true, IncludeSelectableFields: true})
	if err != nil {
		return nil, fmt.Errorf("describe version %s of %s: %w", s.version, s.definition.Name, err)
	}
	built.Info = nil // the merged document has its own Info
	// The documents of built-in groups have no defaults either. With defaults the shared definitions would differ.
	built.Definitions = handler.PruneDefaults(built.Definitions)
	body, err := json.Marshal(built)
	if err != nil {
		return nil, fmt.Errorf("encode the OpenAPI v2 document of %s: %w", s.definition.Name, err)
	}
	return body, nil
}
