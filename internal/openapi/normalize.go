package openapi

import (
	"bytes"
	"cmp"
	"net/http"
	"strings"

	"k8s.io/kube-openapi/pkg/validation/spec"
)

// anyMediaType is the media type of bodies for which a version 2 document specifies none.
const anyMediaType = "*/*"

// normalizeForV3 rewrites the parts of a version 2 document that kube-openapi's converter loses, or converts to invalid
// version 3. The converter ignores the document's global media types and parameters, as well as references to these
// parameters, and recognizes a body by its name. A document that clients read as protobuf must be valid in every detail.
func normalizeForV3(document *spec.Swagger) {
	if document.Info == nil {
		document.Info = &spec.Info{}
	}
	document.Info.Title = cmp.Or(document.Info.Title, "Kubernetes")
	document.Info.Version = cmp.Or(document.Info.Version, "unversioned")
	// OAuth flows have different names in version 3. Clients authenticate as the front door requires.
	for name, scheme := range document.SecurityDefinitions {
		if scheme == nil || scheme.Type != "apiKey" {
			delete(document.SecurityDefinitions, name)
		}
	}
	for name, definition := range document.Definitions {
		definition.Discriminator = "" // an object in version 3
		document.Definitions[name] = definition
	}
	for path, item := range document.Paths.Paths {
		item.Ref = spec.Ref{} // version 2 does not define the referenced path
		shared, body := splitBody(resolveParameters(item.Parameters, document.Parameters))
		item.Parameters = shared
		for _, operation := range []*spec.Operation{item.Get, item.Put, item.Post, item.Delete, item.Options, item.Head, item.Patch} {
			if operation != nil {
				normalizeOperation(operation, body, document)
			}
		}
		document.Paths.Paths[path] = item
	}
	document.Parameters, document.Responses = nil, nil // operations contain them now
}

// normalizeOperation sets the media types of an operation and makes it independent of the rest of the document. pathBody is
// the body declared by its path, or nil.
func normalizeOperation(operation *spec.Operation, pathBody *spec.Parameter, document *spec.Swagger) {
	if docs := operation.ExternalDocs; docs != nil && docs.URL == "" {
		operation.ExternalDocs = nil // version 3 requires the URL
	}
	operation.Consumes = mediaTypes(operation.Consumes, document.Consumes)
	operation.Produces = mediaTypes(operation.Produces, document.Produces)
	parameters, body := splitBody(resolveParameters(operation.Parameters, document.Parameters))
	if body == nil {
		body = pathBody
	}
	if body != nil {
		parameters = append(parameters, *body)
	}
	operation.Parameters = parameters
	if operation.Responses == nil {
		operation.Responses = &spec.Responses{}
	}
	r := &operation.Responses.ResponsesProps
	for code, response := range r.StatusCodeResponses {
		r.StatusCodeResponses[code] = normalizeResponse(response, document.Responses, http.StatusText(code))
	}
	if r.Default != nil {
		response := normalizeResponse(*r.Default, document.Responses, "")
		r.Default = &response
	}
	if r.Default == nil && len(r.StatusCodeResponses) == 0 { // version 3 requires a response
		r.Default = &spec.Response{ResponseProps: spec.ResponseProps{Description: defaultDescription}}
	}
}

func mediaTypes(own, shared []string) []string {
	for _, declared := range [][]string{own, shared} {
		if len(declared) > 0 {
			return declared
		}
	}
	return []string{anyMediaType}
}

// resolveParameters replaces references by the parameters of the document. A dangling reference is dropped.
func resolveParameters(parameters []spec.Parameter, shared map[string]spec.Parameter) []spec.Parameter {
	var resolved []spec.Parameter
	for _, p := range parameters {
		if ref := p.Ref.String(); ref != "" {
			name, _ := strings.CutPrefix(referenceKey(ref), "parameters/")
			if p = shared[name]; p.Name == "" || p.Ref.String() != "" {
				continue
			}
		}
		resolved = append(resolved, p)
	}
	return resolved
}

// splitBody separates the body from the other parameters, which get a schema. Form fields are dropped, because version 3
// does not support them as parameters.
func splitBody(parameters []spec.Parameter) (others []spec.Parameter, body *spec.Parameter) {
	for _, p := range parameters {
		switch p.In {
		case "body":
			p.Name = "body" // the name by which the converter recognizes it
			if p.Schema == nil {
				p.Schema = &spec.Schema{}
			}
			body = &p
		case "formData":
		default:
			p.Schema = schemaOf(p.SimpleSchema, p.CommonValidations)
			if p.Name == "body" {
				continue // the converter would treat it as the body
			}
			others = append(others, p)
		}
	}
	return others, body
}

// schemaOf returns the schema of a value that is not a body.
func schemaOf(simple spec.SimpleSchema, v spec.CommonValidations) *spec.Schema {
	s := &spec.Schema{SchemaProps: spec.SchemaProps{
		Format: simple.Format, Default: simple.Default, Enum: v.Enum, Pattern: v.Pattern, UniqueItems: v.UniqueItems,
		Maximum: v.Maximum, ExclusiveMaximum: v.ExclusiveMaximum, Minimum: v.Minimum, ExclusiveMinimum: v.ExclusiveMinimum,
		MaxLength: v.MaxLength, MinLength: v.MinLength, MaxItems: v.MaxItems, MinItems: v.MinItems, MultipleOf: v.MultipleOf,
	}}
	if simple.Type != "" {
		s.Type = spec.StringOrArray{simple.Type}
	}
	if items := simple.Items; items != nil {
		s.Items = &spec.SchemaOrArray{Schema: schemaOf(items.SimpleSchema, items.CommonValidations)}
	}
	return s
}

// defaultDescription describes a response without a description, which version 3 requires.
const defaultDescription = "Response"

func normalizeResponse(response spec.Response, shared map[string]spec.Response, description string) spec.Response {
	if ref := response.Ref.String(); ref != "" {
		name, _ := strings.CutPrefix(referenceKey(ref), "responses/")
		response = shared[name]
		response.Ref = spec.Ref{}
	}
	response.Description = cmp.Or(response.Description, description, defaultDescription)
	return response
}

// pointToComponents updates references that the converter does not find, for example below allOf, in JSON without white
// space.
func pointToComponents(document []byte) []byte {
	return bytes.ReplaceAll(document, []byte(`"$ref":"#/definitions/`), []byte(`"$ref":"#/components/schemas/`))
}
