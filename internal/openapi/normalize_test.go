package openapi

import (
	"encoding/json"
	"strings"
	"testing"

	openapi_v3 "github.com/google/gnostic-models/openapiv3"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/handler3"
	"k8s.io/kube-openapi/pkg/spec3"
)

// convert returns the version 3 document of gadgets, which must be valid in both encodings.
func convert(t *testing.T, document string) *spec3.OpenAPI {
	t.Helper()
	converted, err := fromV2([]byte(document), []schema.GroupVersion{gadgets})
	if err != nil {
		t.Fatal(err)
	}
	body := converted[gadgets]
	if err := check(body, gadgets); err != nil {
		t.Fatal(err)
	}
	encoded, err := handler3.ToV3ProtoBinary(body)
	if err != nil {
		t.Fatalf("the protobuf form failed: %v, want no error\n%s", err, body)
	}
	if err := proto.Unmarshal(encoded, &openapi_v3.Document{}); err != nil {
		t.Fatal(err)
	}
	for _, key := range references(body) {
		name, ok := strings.CutPrefix(key, "components/schemas/")
		if !ok && key != "" {
			t.Errorf("a reference leads to %q, want one to a schema", key)
		}
		if ok && !strings.Contains(string(body), `"`+name+`":{`) {
			t.Errorf("a reference leads to %q, want a schema in %s", key, body)
		}
	}
	parsed := &spec3.OpenAPI{}
	if err := json.Unmarshal(body, parsed); err != nil {
		t.Fatal(err)
	}
	return parsed
}

const gadgetDefinitions = `"definitions":{"Gadget":{"type":"object","discriminator":"kind","properties":{"spec":{"allOf":[{"$ref":"#/definitions/Spec"}]},
	"kind":{"type":"string"}},"x-kubernetes-group-version-kind":[{"group":"example.com","version":"v1","kind":"Gadget"}]},"Spec":{"type":"object"}}`

// gadgetPost is a document with one POST operation, which has the fields.
func gadgetPost(fields, more string) string {
	return `{"swagger":"2.0","info":{"title":"x","version":"1"},"paths":{"/apis/example.com/v1/gadgets":{"post":{` + fields + `}}},` + more + gadgetDefinitions + `}`
}

const (
	gadgetBody     = `{"in":"body","name":"body","required":true,"schema":{"$ref":"#/definitions/Gadget"}}`
	gadgetResponse = `"responses":{"200":{"description":"OK","schema":{"$ref":"#/definitions/Gadget"}}}`
)

// contentTypes returns the media types whose content is a gadget.
func contentTypes(content map[string]*spec3.MediaType) string {
	var types []string
	for mediaType, c := range content {
		if c.Schema == nil || c.Schema.Ref.String() != "#/components/schemas/Gadget" {
			mediaType += " without the schema of a gadget"
		}
		types = append(types, mediaType)
	}
	return strings.Join(types, ",")
}

func TestV2BodiesHaveMediaType(t *testing.T) {
	for situation, c := range map[string]struct{ document, consumes, produces string }{
		"no media types": {gadgetPost(`"parameters":[`+gadgetBody+`],`+gadgetResponse, ""), "*/*", "*/*"},
		"empty media types": {
			gadgetPost(`"consumes":[],"produces":[],"parameters":[`+gadgetBody+`],`+gadgetResponse, ""), "*/*", "*/*"},
		"those of the operation": {
			gadgetPost(`"consumes":["application/json"],"produces":["application/yaml"],"parameters":[`+gadgetBody+`],`+gadgetResponse,
				`"consumes":["text/plain"],"produces":["text/plain"],`), "application/json", "application/yaml"},
		"those of the document": {
			gadgetPost(`"parameters":[`+gadgetBody+`],`+gadgetResponse, `"consumes":["application/json"],"produces":["application/yaml"],`),
			"application/json", "application/yaml"},
		"a body with another name": {
			gadgetPost(`"parameters":[{"in":"body","name":"gadget","schema":{"$ref":"#/definitions/Gadget"}}],`+gadgetResponse, ""), "*/*", "*/*"},
		"a shared body and response": {
			gadgetPost(`"parameters":[{"$ref":"#/parameters/b"}],"responses":{"200":{"$ref":"#/responses/r"}}`,
				`"parameters":{"b":`+gadgetBody+`},"responses":{"r":{"description":"","schema":{"$ref":"#/definitions/Gadget"}}},`), "*/*", "*/*"},
		"a body of the path": {
			strings.Replace(gadgetPost(gadgetResponse, ""), `{"post":`, `{"parameters":[`+gadgetBody+`],"post":`, 1), "*/*", "*/*"},
	} {
		t.Run(situation, func(t *testing.T) {
			path := convert(t, c.document).Paths.Paths["/apis/example.com/v1/gadgets"]
			if path.Post.RequestBody == nil {
				t.Fatal("the operation has no body, want one")
			}
			if got := contentTypes(path.Post.RequestBody.Content); got != c.consumes {
				t.Errorf("media types of the body = %q, want %q", got, c.consumes)
			}
			if got := contentTypes(path.Post.Responses.StatusCodeResponses[200].Content); got != c.produces {
				t.Errorf("media types of the response = %q, want %q", got, c.produces)
			}
			if n := len(path.Parameters) + len(path.Post.Parameters); n != 0 {
				t.Errorf("%d parameters are left, want 0", n)
			}
		})
	}
}

func TestIncompleteV2DocumentsBecomeValidV3(t *testing.T) {
	for situation, document := range map[string]string{
		"no info":                          strings.Replace(gadgetPost(gadgetResponse, ""), `"info":{"title":"x","version":"1"},`, "", 1),
		"no text in info":                  strings.Replace(gadgetPost(gadgetResponse, ""), `"title":"x","version":"1"`, "", 1),
		"no responses":                     gadgetPost(`"operationId":"create"`, ""),
		"empty responses":                  gadgetPost(`"responses":{}`, ""),
		"a response without a description": gadgetPost(`"responses":{"200":{},"999":{"description":""},"default":{}}`, ""),
		"a response that is not there":     gadgetPost(`"responses":{"200":{"$ref":"#/responses/none"},"default":{"$ref":"#/responses/none"}}`, ""),
		"a parameter that is not there":    gadgetPost(`"parameters":[{"$ref":"#/parameters/none"}],`+gadgetResponse, ""),
		"a parameter that leads to itself": gadgetPost(`"parameters":[{"$ref":"#/parameters/a"}],`+gadgetResponse,
			`"parameters":{"a":{"$ref":"#/parameters/a"}},`),
		"a body without a schema":              gadgetPost(`"parameters":[{"in":"body","name":"body"}],`+gadgetResponse, ""),
		"a form":                               gadgetPost(`"parameters":[{"in":"formData","name":"a","type":"string"}],`+gadgetResponse, ""),
		"external documentation without a URL": gadgetPost(`"externalDocs":{"description":"d"},`+gadgetResponse, ""),
		"OAuth": gadgetPost(gadgetResponse, `"securityDefinitions":{"o":{"type":"oauth2","flow":"accessCode","authorizationUrl":"https://a","tokenUrl":"https://t",
			"scopes":{"a":"b"}},"b":{"type":"basic"},"k":{"type":"apiKey","name":"authorization","in":"header"}},`),
	} {
		t.Run(situation, func(t *testing.T) {
			if convert(t, document).Paths.Paths["/apis/example.com/v1/gadgets"].Post == nil {
				t.Error("the operation is missing, want it kept")
			}
		})
	}
}

func TestV2ParametersKeepSchema(t *testing.T) {
	got := convert(t, gadgetPost(`"parameters":[{"$ref":"#/parameters/limit"},{"in":"query","name":"names","type":"array","items":{"type":"string"}},
		{"in":"query","name":"untyped"}],`+gadgetResponse, `"parameters":{"limit":{"in":"query","name":"limit","type":"integer","format":"int32","maximum":7}},`))
	parameters := got.Paths.Paths["/apis/example.com/v1/gadgets"].Post.Parameters
	if len(parameters) != 3 {
		t.Fatalf("%d parameters, want 3", len(parameters))
	}
	limit, names, untyped := parameters[0], parameters[1], parameters[2]
	if limit.Name != "limit" || !limit.Schema.Type.Contains("integer") || limit.Schema.Format != "int32" || *limit.Schema.Maximum != 7 {
		t.Errorf("parameter = %+v, want the shared parameter limit", limit)
	}
	if !names.Schema.Type.Contains("array") || !names.Schema.Items.Schema.Type.Contains("string") {
		t.Errorf("schema = %+v, want an array of strings", names.Schema)
	}
	if len(untyped.Schema.Type) != 0 {
		t.Errorf("type = %q, want none", untyped.Schema.Type)
	}
}
