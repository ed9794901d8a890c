package faulty

import "net/http"

// openapi serves the minimum that clients accept: the index and one document with one path and one schema.
func (s *Server) openapi(w http.ResponseWriter, r *http.Request) {
	k := s.kind()
	path := "apis/" + s.cfg.Group + "/v1"
	switch r.URL.Path {
	case "/openapi/v3":
		answer(w, http.StatusOK, map[string]any{"paths": map[string]any{
			path: map[string]string{"serverRelativeURL": "/openapi/v3/" + path + "?hash=1"},
		}})
	case "/openapi/v3/" + path:
		answer(w, http.StatusOK, map[string]any{
			"openapi": "3.0.0",
			"info":    map[string]string{"title": "drill", "version": "v1"},
			"paths": map[string]any{"/" + path + "/namespaces/{namespace}/" + k.plural: map[string]any{
				"get": map[string]any{"responses": map[string]any{"200": map[string]string{"description": "OK"}}},
			}},
			"components": map[string]any{"schemas": map[string]any{
				"dev.portico.drill.v1." + k.name: map[string]any{
					"type": "object",
					"x-kubernetes-group-version-kind": []map[string]string{
						{"group": s.cfg.Group, "version": "v1", "kind": k.name},
					},
				},
			}},
		})
	default:
		refuse(w, http.StatusNotFound, "NotFound", "the server could not find the requested resource")
	}
}
