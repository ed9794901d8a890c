package cli

import (
	"regexp"
	"strings"

	"k8s.io/apiserver/pkg/authentication/serviceaccount"

	"portico.dev/internal/auth/rbac/explain"
	"portico.dev/internal/tools/doctor"
)

// grantCommands returns the commands that allow a request: a binding of the narrowest role that allows it, or a new role and its
// binding.
func grantCommands(p explain.Objects, q explain.Query) []string {
	scope, role, binding := []string(nil), "clusterrole", "clusterrolebinding"
	if q.Namespace != "" {
		scope, role, binding = []string{"-n", q.Namespace}, "role", "rolebinding"
	}
	var commands []string
	kind, name := explain.NarrowestRole(p, q)
	if kind == "" {
		name = objectName(q.Verb + "-" + strings.TrimLeft(grantedResource(q), "/"))
		commands = append(commands, doctor.Kubectl(append(append([]string{"create", role, name}, scope...), ruleFlags(q)...)...))
	} else {
		role = strings.ToLower(kind)
	}
	subject, who := "--user="+q.User, q.User
	if namespace, account, err := serviceaccount.SplitUsername(q.User); err == nil {
		subject, who = "--serviceaccount="+namespace+":"+account, account
	}
	bind := append([]string{"create", binding, objectName(who + "-" + name)}, scope...)
	return append(commands, doctor.Kubectl(append(bind, "--"+role+"="+name, subject)...))
}

// grantedResource returns the resource as kubectl writes it, or the path.
func grantedResource(q explain.Query) string {
	if q.Path != "" {
		return q.Path
	}
	resource := q.Resource
	if q.Group != "" {
		resource += "." + q.Group
	}
	if q.Subresource != "" {
		resource += "/" + q.Subresource
	}
	return resource
}

func ruleFlags(q explain.Query) []string {
	flags := []string{"--verb=" + q.Verb}
	if q.Path != "" {
		return append(flags, "--non-resource-url="+q.Path)
	}
	flags = append(flags, "--resource="+grantedResource(q))
	if q.Name != "" {
		flags = append(flags, "--resource-name="+q.Name)
	}
	return flags
}

// unusual matches characters that the proposed names do not have.
var unusual = regexp.MustCompile(`[^a-z0-9.]+`)

func objectName(text string) string {
	return strings.Trim(unusual.ReplaceAllString(strings.ToLower(text), "-"), "-.")
}
