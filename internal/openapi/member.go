package openapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	openapi_v2 "github.com/google/gnostic-models/openapiv2"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/handler"
	"k8s.io/kube-openapi/pkg/util/proto"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// members takes the wanted group-versions out of a backend's version 2 document, each as a document of its own: its paths
// and what they refer to. What the document does not describe is not in the result. An error of one does not touch the
// others.
//
// Every client reads the merged document whole: one dangling reference in it, or one entry that cannot be written as
// protobuf, takes the descriptions of all kinds from everybody (kubernetes-sigs/metrics-server#1868). So what a member
// says is read here once the way clients are going to read it.
func members(body []byte, wanted []schema.GroupVersion) (results map[schema.GroupVersion]heard, err error) {
	defer catch(&err)
	var whole spec.Swagger
	if err := json.Unmarshal(body, &whole); err != nil {
		return nil, fmt.Errorf("the OpenAPI v2 document does not parse: %w", err)
	}
	if !strings.HasPrefix(whole.Swagger, "2.") || whole.Paths == nil {
		return nil, fmt.Errorf("the OpenAPI v2 document is of version %q, not 2, or describes no path", whole.Swagger)
	}
	whole.Definitions = handler.PruneDefaults(whole.Definitions)
	for name, definition := range whole.Definitions {
		whole.Definitions[name] = speakForOwn(definition, wanted)
	}
	// Written anew it has no white space, and its fields have an order.
	canonical, err := whole.MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("write the OpenAPI v2 document: %w", err)
	}
	results = map[schema.GroupVersion]heard{}
	for _, gv := range wanted {
		s, err := openSwagger(canonical)
		if err != nil {
			return nil, err
		}
		s.retain(func(path string) bool { return isUnder(path, gv) })
		if len(s.paths) > 0 {
			results[gv] = s.member(gv)
		}
	}
	return results, nil
}

// catch turns a panic over what a backend wrote into an error: the parsers of OpenAPI were made for documents of friends.
func catch(err *error) {
	if why := recover(); why != nil {
		*err = fmt.Errorf("the OpenAPI document cannot be read: %v", why)
	}
}

func isUnder(path string, gv schema.GroupVersion) bool {
	root := "/" + indexPath(gv)
	return path == root || strings.HasPrefix(path, root+"/")
}

func (s *swagger) member(gv schema.GroupVersion) heard {
	used := map[string]bool{}
	for _, item := range s.paths {
		s.use(item, used)
	}
	for _, key := range slices.Sorted(maps.Keys(used)) {
		if _, ok := s.named[key]; !ok {
			return heard{err: fmt.Errorf("the OpenAPI v2 document of %s has a reference that leads nowhere: %q", gv, key)}
		}
	}
	var body bytes.Buffer
	writeSwagger(&body, s)
	if err := readAsClient(body.Bytes()); err != nil {
		return heard{err: fmt.Errorf("clients could not read the OpenAPI v2 document of %s: %w", gv, err)}
	}
	document, err := NewDocument(indexPath(gv), body.Bytes())
	return heard{document: &document, err: err}
}

// readAsClient reads a document as kubectl does.
func readAsClient(body []byte) error {
	document, err := openapi_v2.ParseDocument(body)
	if err != nil {
		return err
	}
	_, err = proto.NewOpenAPIData(document)
	return err
}

// speakForOwn leaves a definition only those kinds that are in the backend's own group-versions. A client that looks for
// ClusterRole must not be shown what a backend says it looks like.
func speakForOwn(definition spec.Schema, own []schema.GroupVersion) spec.Schema {
	listed, ok := definition.Extensions[kindsField]
	if !ok {
		return definition
	}
	kinds, _ := listed.([]any)
	kept := slices.DeleteFunc(slices.Clone(kinds), func(kind any) bool {
		fields, _ := kind.(map[string]any)
		group, _ := fields["group"].(string)
		version, _ := fields["version"].(string)
		return !slices.Contains(own, schema.GroupVersion{Group: group, Version: version})
	})
	extensions := maps.Clone(definition.Extensions)
	if extensions[kindsField] = kept; len(kept) == 0 {
		delete(extensions, kindsField)
	}
	definition.Extensions = extensions
	return definition
}
