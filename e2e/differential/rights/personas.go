package rights

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

//go:embed testdata/personas.yaml
var personasFile []byte

// The namespaces of the requests: the one in which personas have permissions, and another one.
const (
	own     = "own"
	foreign = "foreign"
)

// persona is a user who sends requests.
type persona struct {
	Name string `json:"name"`
	// User is the user name. Default: Name with hyphens. "-" means that the persona sends no credentials.
	User   string   `json:"user"`
	UID    string   `json:"uid"`
	Groups []string `json:"groups"`
	Rights []grant  `json:"rights"`
	// Impersonate contains the impersonation headers of every request of the grid, without the prefix "Impersonate-".
	Impersonate map[string][]string `json:"impersonate"`
	// Few reduces the requests to one patch type and one name, because other personas cover the rest.
	Few bool `json:"few"`
	// Untried is true if the persona appears in scenarios only.
	Untried bool `json:"untried"`
}

// grant is a permission: a role, given by rules or by name, and its binding.
type grant struct {
	// In is the namespace of the binding. Default: all namespaces.
	In string `json:"in"`
	// Role is the name of the ClusterRole to bind. Default: a new role with Rules, which is a Role if In is set.
	Role  string `json:"role"`
	Rules []rule `json:"rules"`
	// Labels are the labels of a ClusterRole with Rules. It is then not bound.
	Labels map[string]string `json:"labels"`
	// Aggregate contains labels of ClusterRoles that a new ClusterRole aggregates.
	Aggregate map[string]string `json:"aggregate"`
}

type rule struct {
	APIGroups       []string `json:"apiGroups,omitempty"`
	Resources       []string `json:"resources,omitempty"`
	ResourceNames   []string `json:"resourceNames,omitempty"`
	NonResourceURLs []string `json:"nonResourceURLs,omitempty"`
	Verbs           []string `json:"verbs"`
}

// personas returns all personas in the order of the file, followed by the controllers of kube-controller-manager.
func personas() ([]persona, error) {
	var file struct {
		Personas []persona `json:"personas"`
		// Controllers contains names of service accounts in kube-system.
		Controllers []string `json:"controllers"`
	}
	if err := yaml.UnmarshalStrict(personasFile, &file); err != nil {
		return nil, fmt.Errorf("personas.yaml: %w", err)
	}
	all := file.Personas
	for _, name := range file.Controllers {
		all = append(all, persona{
			Name: "controller " + name, User: "system:serviceaccount:kube-system:" + name, Few: true,
			Groups: []string{"system:serviceaccounts", "system:serviceaccounts:kube-system"},
		})
	}
	seen := map[string]bool{}
	for i := range all {
		p := &all[i]
		if p.Name == "" || seen[p.Name] || strings.ContainsAny(p.Name, `",:`) {
			return nil, fmt.Errorf("personas.yaml: the name %q is empty, there twice or no good for a token file", p.Name)
		}
		seen[p.Name] = true
		if p.User == "" {
			p.User = p.slug()
		}
		if p.UID == "" {
			p.UID = "uid-of-" + p.slug()
		}
	}
	return all, nil
}

func (p persona) slug() string { return strings.ReplaceAll(p.Name, " ", "-") }

// bound reports whether the persona has permissions in one namespace only, so that requests in the other one are
// useful.
func (p persona) bound() bool {
	return slices.ContainsFunc(p.Rights, func(g grant) bool { return g.In == own })
}

func (p persona) anonymous() bool { return p.User == "-" }

// token returns the bearer token of the persona.
func (p persona) token() string { return "token-of-" + p.slug() }

// introduce adds the credentials to a request.
func (p persona) introduce(h http.Header) {
	if !p.anonymous() {
		h.Set("Authorization", "Bearer "+p.token())
	}
}

// writeTokenFile writes the personas in the format of --token-auth-file.
func writeTokenFile(file string, all []persona) error {
	var out strings.Builder
	for _, p := range all {
		if !p.anonymous() {
			fmt.Fprintf(&out, "%s,%q,%q", p.token(), p.User, p.UID)
			if len(p.Groups) > 0 {
				fmt.Fprintf(&out, ",%q", strings.Join(p.Groups, ","))
			}
			fmt.Fprintln(&out)
		}
	}
	return os.WriteFile(file, []byte(out.String()), 0o600)
}

// manifest is an object and the path of its collection.
type manifest struct {
	At     string         `json:"at"`
	Object map[string]any `json:"object"`
}

const rbac = "/apis/rbac.authorization.k8s.io/v1"

// manifests returns the roles and bindings that grant a permission to a user. number makes their names unique.
func (g grant) manifests(user string, number int) []manifest {
	name := fmt.Sprintf("right-%d", number)
	in, kind := "", "ClusterRole"
	if g.In != "" {
		in = "/namespaces/" + g.In
	}
	metadata := func() map[string]any { return map[string]any{"name": name} }
	var out []manifest
	role := g.Role
	if role == "" {
		role = name
		object := map[string]any{"metadata": metadata(), "rules": g.Rules}
		at := rbac + "/clusterroles"
		if g.Labels != nil {
			object["metadata"].(map[string]any)["labels"] = g.Labels
		}
		if g.Aggregate != nil {
			object["aggregationRule"] = map[string]any{"clusterRoleSelectors": []any{map[string]any{"matchLabels": g.Aggregate}}}
		}
		if in != "" && g.Aggregate == nil {
			at, kind = rbac+in+"/roles", "Role"
		}
		out = append(out, manifest{at, object})
	}
	if g.Labels != nil {
		return out
	}
	at := rbac + "/clusterrolebindings"
	if in != "" {
		at = rbac + in + "/rolebindings"
	}
	return append(out, manifest{at, map[string]any{
		"metadata": metadata(),
		"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
		"subjects": []any{map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}},
	}})
}

// copyOf returns a deep copy.
func copyOf(object map[string]any) map[string]any {
	text, err := json.Marshal(object)
	if err != nil {
		panic(err) // unreachable: the object was decoded from YAML
	}
	var out map[string]any
	if err := json.Unmarshal(text, &out); err != nil {
		panic(err)
	}
	return out
}
