package crds

import (
	"crypto/sha512"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/handler"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"go.uber.org/zap"
)

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
