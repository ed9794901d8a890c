package rights

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// resource is a resource in discovery.
type resource struct {
	Group      string   `json:"group,omitempty"`
	Version    string   `json:"version"`
	Name       string   `json:"name"`
	Kind       string   `json:"kind"`
	Namespaced bool     `json:"namespaced,omitempty"`
	Verbs      []string `json:"verbs"`
	// Below contains its subresources.
	Below []resource `json:"below,omitempty"`
}

// String returns its name in questions: pods, deployments.v1.apps, pods/eviction.
func (r resource) String() string {
	if r.Group == "" {
		return r.Name
	}
	return r.Name + "." + r.Version + "." + r.Group
}

func (r resource) groupVersion() string {
	if r.Group == "" {
		return r.Version
	}
	return r.Group + "/" + r.Version
}

// at returns the path of its collection. An empty namespace means all namespaces. It is ignored for cluster-scoped
// resources.
func (r resource) at(namespace string) string {
	path := "/apis/" + r.groupVersion()
	if r.Group == "" {
		path = "/api/" + r.Version
	}
	if r.Namespaced && namespace != "" {
		path += "/namespaces/" + namespace
	}
	return path + "/" + r.Name
}

func (r resource) may(verb string) bool { return slices.Contains(r.Verbs, verb) }

// list contains the required parts of discovery documents.
type list struct {
	Versions []string `json:"versions"`
	Groups   []struct {
		Versions []struct {
			GroupVersion string `json:"groupVersion"`
		} `json:"versions"`
	} `json:"groups"`
	Resources []resource `json:"resources"`
}

// resources returns all resources that the server lists, sorted by name.
func (s *server) resources(ctx context.Context) ([]resource, error) {
	groups, err := s.document(ctx, "/apis")
	if err != nil {
		return nil, err
	}
	paths := []string{"/api/v1"}
	for _, g := range groups.Groups {
		for _, v := range g.Versions {
			paths = append(paths, "/apis/"+v.GroupVersion)
		}
	}
	var out []resource
	for _, path := range paths {
		if strings.Contains(path, unavailable) {
			continue // the sample APIService
		}
		found, err := s.document(ctx, path)
		if err != nil {
			return nil, err
		}
		group, version, ok := strings.Cut(strings.TrimPrefix(path, "/apis/"), "/")
		if path == "/api/v1" || !ok {
			group, version = "", "v1"
		}
		of := map[string]int{}
		for _, r := range found.Resources { // before the subresources, which refer to them
			if !strings.Contains(r.Name, "/") {
				of[r.Name] = len(out)
				out = append(out, resource{Group: group, Version: version, Name: r.Name, Kind: r.Kind, Namespaced: r.Namespaced, Verbs: r.Verbs})
			}
		}
		for _, r := range found.Resources {
			if parent, name, ok := strings.Cut(r.Name, "/"); ok {
				r.Name = name
				if r.Version == "" { // the kind belongs to the same group-version
					r.Group, r.Version = group, version
				}
				out[of[parent]].Below = append(out[of[parent]].Below, r)
			}
		}
	}
	slices.SortFunc(out, func(a, b resource) int { return strings.Compare(a.String(), b.String()) })
	return out, nil
}

func (s *server) document(ctx context.Context, path string) (out list, err error) {
	a, body, err := send(ctx, s.admin, s.host, question{Name: path, Method: http.MethodGet, Path: path}, nil)
	if err != nil {
		return out, err
	}
	if a.Code != http.StatusOK {
		return out, fmt.Errorf("%s answered with %d: %s", path, a.Code, a.Message)
	}
	return out, json.Unmarshal(body.(json.RawMessage), &out)
}
