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

// The namespaces that questions are about: the one in which personas have rights, and another.
const (
	own     = "own"
	foreign = "foreign"
)

// persona is a user who asks.
type persona struct {
	Name string `json:"name"`
	// User is its user name. Default: Name with hyphens. "-" is nobody: it shows no credential.
	User   string   `json:"user"`
	UID    string   `json:"uid"`
	Groups []string `json:"groups"`
	Rights []grant  `json:"rights"`
	// Impersonate is whom it impersonates in every request of the grid: header by header, without "Impersonate-".
	Impersonate map[string][]string `json:"impersonate"`
	// Few says that one kind of patch stands for all, and one name: what it is asked about has been asked of others.
	Few bool `json:"few"`
	// Untried says that it only plays in scenarios.
	Untried bool `json:"untried"`
}

// grant is a right: a role, of rules or by name, and its binding.
type grant struct {
	// In is the namespace of the binding. Default: all.
	In string `json:"in"`
	// Role is the name of a ClusterRole that is bound. Default: one of Rules is made, a Role if In is a namespace.
	Role  string `json:"role"`
	Rules []rule `json:"rules"`
	// Labels are those of a ClusterRole of Rules, which is then bound to nobody.
	Labels map[string]string `json:"labels"`
	// Aggregate are labels of ClusterRoles whose rules a new ClusterRole has.
	Aggregate map[string]string `json:"aggregate"`
}

type rule struct {
	APIGroups       []string `json:"apiGroups,omitempty"`
	Resources       []string `json:"resources,omitempty"`
	ResourceNames   []string `json:"resourceNames,omitempty"`
	NonResourceURLs []string `json:"nonResourceURLs,omitempty"`
	Verbs           []string `json:"verbs"`
}

// personas are all of them, in the order of the file, with the controllers of kube-controller-manager at the end.
func personas() ([]persona, error) {
	var file struct {
		Personas []persona `json:"personas"`
		// Controllers are names of service accounts in kube-system.
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

// bound reports whether it has rights in one namespace only, so that another one is worth asking about.
func (p persona) bound() bool {
	return slices.ContainsFunc(p.Rights, func(g grant) bool { return g.In == own })
}

func (p persona) anonymous() bool { return p.User == "-" }

// token is what the persona shows.
func (p persona) token() string { return "token-of-" + p.slug() }

// introduce puts into a request who asks.
func (p persona) introduce(h http.Header) {
	if !p.anonymous() {
		h.Set("Authorization", "Bearer "+p.token())
	}
}

// writeTokenFile writes the personas as --token-auth-file has them.
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

// manifest is an object and the collection that it belongs to.
type manifest struct {
	At     string         `json:"at"`
	Object map[string]any `json:"object"`
}

const rbac = "/apis/rbac.authorization.k8s.io/v1"

// manifests are the roles and bindings that give a user a right. number makes their names unique.
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

// copyOf is an object that shares nothing with it.
func copyOf(object map[string]any) map[string]any {
	text, err := json.Marshal(object)
	if err != nil {
		panic(err) // it came out of YAML
	}
	var out map[string]any
	if err := json.Unmarshal(text, &out); err != nil {
		panic(err)
	}
	return out
}
