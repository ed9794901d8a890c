package thirdparty

import (
	"encoding/json"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const consolePath = "/apis/" + upgradeGroup + "/v1/namespaces/{namespace}/virtualmachineinstances/{name}/console"

// documented serves the documents for tools: unaggregated discovery, with any Accept header, and OpenAPI v2.
func documented(w http.ResponseWriter, r *http.Request) bool {
	version := metav1.GroupVersionForDiscovery{GroupVersion: upgradeV1.String(), Version: "v1"}
	group := metav1.APIGroup{TypeMeta: metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}, Name: upgradeGroup,
		Versions: []metav1.GroupVersionForDiscovery{version}, PreferredVersion: version}
	subresource := func(name string, verbs ...string) metav1.APIResource {
		return metav1.APIResource{Name: "virtualmachineinstances/" + name, Namespaced: true, Verbs: verbs}
	}
	var answer any
	switch r.URL.Path {
	case "/apis":
		answer = metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: []metav1.APIGroup{group}}
	case "/apis/" + upgradeGroup:
		answer = group
	case "/apis/" + upgradeV1.String():
		answer = metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: upgradeV1.String(),
			APIResources: []metav1.APIResource{subresource("console", "get"), subresource("pause", "update")}}
	case "/openapi/v2":
		answer = map[string]any{
			"swagger": "2.0", "info": map[string]any{"title": "consoles", "version": "v1"}, "definitions": map[string]any{},
			"paths": map[string]any{consolePath: map[string]any{"get": map[string]any{
				"operationId": "console", "responses": map[string]any{"101": map[string]any{"description": "a websocket"}},
				"parameters": []any{
					map[string]any{"name": "namespace", "in": "path", "required": true, "type": "string"},
					map[string]any{"name": "name", "in": "path", "required": true, "type": "string"},
				},
			}}},
		}
	default:
		return false
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer)
	return true
}
