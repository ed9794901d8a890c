package openapi

import (
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/aggregator"
	"k8s.io/kube-openapi/pkg/openapiconv"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// indexPath is where a group-version is in the index of version 3.
func indexPath(gv schema.GroupVersion) string {
	if gv.Group == "" {
		return "api/" + gv.Version
	}
	return "apis/" + gv.Group + "/" + gv.Version
}

// check refuses a document that is not OpenAPI v3, or that describes paths of another group-version: shown to clients, it
// would let one backend say what another one's objects look like.
func check(body []byte, gv schema.GroupVersion) (err error) {
	defer catch(&err)
	var document spec3.OpenAPI
	if err := json.Unmarshal(body, &document); err != nil {
		return fmt.Errorf("the OpenAPI document of %s does not parse: %w", gv, err)
	}
	if !strings.HasPrefix(document.Version, "3.") {
		return fmt.Errorf("the OpenAPI document of %s is of version %q, not 3", gv, document.Version)
	}
	if document.Paths == nil || len(document.Paths.Paths) == 0 {
		return fmt.Errorf("the OpenAPI document of %s describes no path", gv)
	}
	root := "/" + indexPath(gv)
	for path := range document.Paths.Paths {
		if path != root && !strings.HasPrefix(path, root+"/") {
			return fmt.Errorf("the OpenAPI document of %s claims %s, which is not under %s", gv, path, root)
		}
	}
	return nil
}

// fromV2 makes version 3 documents of the wanted group-versions from a version 2 document, which describes everything
// that the backend has in one. What it does not describe is not in the result.
//
// The conversion loses what version 2 cannot say (nullable, oneOf, defaults of references), which is why a backend is
// asked for version 3 again every time.
func fromV2(body []byte, wanted []schema.GroupVersion) (documents map[schema.GroupVersion][]byte, err error) {
	defer catch(&err)
	var whole spec.Swagger
	if err := json.Unmarshal(body, &whole); err != nil {
		return nil, fmt.Errorf("the OpenAPI v2 document does not parse: %w", err)
	}
	if !strings.HasPrefix(whole.Swagger, "2.") || whole.Paths == nil {
		return nil, fmt.Errorf("the OpenAPI v2 document is of version %q, not 2, or describes no path", whole.Swagger)
	}
	documents = map[schema.GroupVersion][]byte{}
	for _, gv := range wanted {
		part := aggregator.FilterSpecByPathsWithoutSideEffects(&whole, []string{"/" + indexPath(gv) + "/"})
		if len(part.Paths.Paths) == 0 {
			continue
		}
		converted, err := json.Marshal(openapiconv.ConvertV2ToV3(part))
		if err != nil {
			return nil, fmt.Errorf("convert the OpenAPI v2 document of %s: %w", gv, err)
		}
		documents[gv] = converted
	}
	return documents, nil
}

// root is the index of version 3, as clients and backends write it.
type root struct {
	Paths map[string]rootEntry `json:"paths"`
}

type rootEntry struct {
	ServerRelativeURL string `json:"serverRelativeURL"`
}
