package registration

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

// Registration describes the address and the resources of a server.
type Registration struct {
	// Namespace and Service identify the Service. The namespace must exist.
	Namespace, Service string
	// ExternalName is the DNS name for the Service if Addresses and Selector are empty. Default: localhost.
	ExternalName string
	// Addresses select a Service with an EndpointSlice instead. They must be IP addresses of one family and must not be
	// loopback addresses, which the API rejects.
	Addresses []string
	// Selector selects a Service with a pod selector instead. Kubernetes' controllers then manage its EndpointSlices, and
	// this server needs no permission to write them.
	Selector map[string]string
	// Port is the port of the server's listener.
	Port int
	// CABundle contains the CA certificates of the server's certificate. If nil, front doors use their system trust store.
	CABundle []byte
	// GroupVersions are the served group-versions, with the preferred version of each group first. Duplicates are ignored,
	// because a group-version may have several resources.
	GroupVersions []schema.GroupVersion
	// Readable lists the resources for the role of readers in RBAC.
	Readable []Resources
	// Needs lists the permissions that the server needs in addition to registering itself.
	Needs []Rule
	// MayCreate adds roles that allow the server to create and delete the objects of its registration. Without them, an
	// administrator applies the objects once, and the server only updates them.
	MayCreate bool
}

// Rule is a permission.
type Rule struct {
	Groups, Resources, Names, Verbs []string
}

func (r Rule) manifest() map[string]any {
	m := map[string]any{"apiGroups": r.Groups, "resources": r.Resources, "verbs": r.Verbs}
	if len(r.Names) > 0 {
		m["resourceNames"] = r.Names
	}
	return m
}

// Manifest is one object for server-side apply, with only the fields that this server owns.
type Manifest map[string]any

// servicePort is the port of a Service with endpoints. The server's port is in the EndpointSlice.
const servicePort = 443

// Validate returns an error for a registration that a front door would reject or could not use.
func (r Registration) Validate() error {
	switch {
	case r.Namespace == "" || r.Service == "":
		return errors.New("registration: a service namespace and a service name are required")
	case r.Port < 1 || r.Port > 65535:
		return fmt.Errorf("registration: port %d: must be between 1 and 65535", r.Port)
	case len(r.GroupVersions) == 0:
		return errors.New("registration: no group-versions to register")
	}
	if len(r.Addresses) > 0 && len(r.Selector) > 0 {
		return errors.New("registration: a Service has either a selector or addresses of its own")
	}
	for _, a := range r.Addresses {
		ip := net.ParseIP(a)
		if ip == nil || ip.IsLoopback() || ip.IsUnspecified() {
			return fmt.Errorf("registration: address %q: must be an IP address that the front door can reach, and no loopback one", a)
		}
	}
	return nil
}

// Objects returns the Service, the EndpointSlice if there are addresses, and the APIServices, in the order in which they must
// be applied.
func (r Registration) Objects() []Manifest {
	objects := []Manifest{r.service()}
	if len(r.Addresses) > 0 {
		objects = append(objects, r.endpoints())
	}
	return append(objects, r.apiServices()...)
}

// All returns all objects that an administrator applies: RBAC and Objects.
func (r Registration) All() []Manifest { return append(r.RBAC(), r.Objects()...) }

func (r Registration) apiServices() []Manifest {
	var objects []Manifest
	place := map[string]int32{}
	for i, gv := range r.GroupVersions {
		if slices.Contains(r.GroupVersions[:i], gv) {
			continue
		}
		// The API requires a priority of at least one, even for the tenth version of a group.
		objects = append(objects, r.apiService(gv, max(100-10*place[gv.Group], 1)))
		place[gv.Group]++
	}
	return objects
}

func (r Registration) metadata() map[string]any {
	return map[string]any{"name": r.Service, "namespace": r.Namespace}
}

// hasEndpoints reports whether the Service has endpoints instead of a DNS name.
func (r Registration) hasEndpoints() bool { return len(r.Addresses) > 0 || len(r.Selector) > 0 }

func (r Registration) service() Manifest {
	spec := map[string]any{"type": "ExternalName", "externalName": r.ExternalName}
	if r.ExternalName == "" {
		spec["externalName"] = "localhost"
	}
	if r.hasEndpoints() {
		spec = map[string]any{"type": "ClusterIP", "ports": []any{map[string]any{
			"name": "https", "port": servicePort, "targetPort": r.Port, "protocol": "TCP"}}}
	}
	if len(r.Selector) > 0 {
		spec["selector"] = r.Selector
	}
	return Manifest{"apiVersion": "v1", "kind": "Service", "metadata": r.metadata(), "spec": spec}
}

func (r Registration) endpoints() Manifest {
	family := "IPv4"
	if net.ParseIP(r.Addresses[0]).To4() == nil {
		family = "IPv6"
	}
	metadata := r.metadata()
	metadata["labels"] = map[string]any{
		"kubernetes.io/service-name":             r.Service,
		"endpointslice.kubernetes.io/managed-by": fieldManager,
	}
	return Manifest{
		"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": metadata, "addressType": family,
		"ports":     []any{map[string]any{"name": "https", "port": r.Port, "protocol": "TCP"}},
		"endpoints": []any{map[string]any{"addresses": r.Addresses, "conditions": map[string]any{"ready": true}}},
	}
}

func (r Registration) apiService(gv schema.GroupVersion, versionPriority int32) Manifest {
	// A front door resolves an ExternalName to name:port directly, so the port must be the server's.
	port := r.Port
	if r.hasEndpoints() {
		port = servicePort
	}
	spec := map[string]any{
		"group": gv.Group, "version": gv.Version, "groupPriorityMinimum": 100, "versionPriority": versionPriority,
		"service": map[string]any{"namespace": r.Namespace, "name": r.Service, "port": port},
	}
	if len(r.CABundle) > 0 {
		spec["caBundle"] = base64.StdEncoding.EncodeToString(r.CABundle)
	}
	return Manifest{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
		"metadata": map[string]any{"name": gv.Version + "." + gv.Group}, "spec": spec,
	}
}

// Resources are resources of a group that readers may read.
type Resources struct {
	Group string
	Names []string
}

// RBAC returns the objects that grant permissions: an identity for the server, permission to send TokenReviews and
// SubjectAccessReviews to the front door, permission to read the trust ConfigMap, a role for readers of the served resources,
// and the permissions to maintain the registration. The latter are get and patch for the server's APIServices and
// EndpointSlice, by name, and get for its Service. They do not include create and delete, unless MayCreate is set.
func (r Registration) RBAC() []Manifest {
	var readable, needs []any
	for _, g := range r.Readable {
		readable = append(readable, Rule{Groups: []string{g.Group}, Resources: g.Names, Verbs: []string{"get", "list", "watch"}}.manifest())
	}
	for _, n := range r.Needs {
		needs = append(needs, n.manifest())
	}
	objects := []Manifest{
		{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": r.metadata()},
		binding("ClusterRoleBinding", "", r.Service+":system:auth-delegator", "ClusterRole", "system:auth-delegator", r.account()),
		binding("RoleBinding", "kube-system", r.Service+"-auth-reader", "Role", "extension-apiserver-authentication-reader", r.account()),
		{
			"apiVersion": rbacVersion, "kind": "ClusterRole",
			"metadata": map[string]any{
				"name":   "system:" + r.Service + "-reader",
				"labels": map[string]any{"rbac.authorization.k8s.io/aggregate-to-view": "true"},
			},
			"rules": readable,
		},
	}
	objects = append(objects, r.role("ClusterRole", "system:"+r.Service, append(needs, r.onAPIServices("get", "patch")))...)
	objects = append(objects, r.role("Role", r.Service, r.onServices([]string{"get"}, []string{"get", "patch"}))...)
	if !r.MayCreate {
		return objects
	}
	// Separate roles, so that they can be removed after the objects have been created.
	creator := r.Service + "-creator"
	objects = append(objects, r.role("ClusterRole", "system:"+creator, []any{r.onAPIServices("create", "delete")})...)
	return append(objects, r.role("Role", creator, r.onServices([]string{"create", "patch"}, []string{"create"}))...)
}

const rbacVersion = "rbac.authorization.k8s.io/v1"

func (r Registration) account() map[string]any {
	return map[string]any{"kind": "ServiceAccount", "name": r.Service, "namespace": r.Namespace}
}

// onAPIServices returns a permission for the server's APIServices. The names also restrict create, because an apply request
// contains the name in its path. A POST, which has the name in its body, is not allowed.
func (r Registration) onAPIServices(verbs ...string) map[string]any {
	var names []string
	for _, o := range r.apiServices() {
		names = append(names, o.meta("name"))
	}
	return Rule{Groups: []string{"apiregistration.k8s.io"}, Resources: []string{"apiservices"}, Names: names, Verbs: verbs}.manifest()
}

// onServices returns permissions for the server's Service and, if it writes one, its EndpointSlice.
func (r Registration) onServices(service, slice []string) []any {
	names := []string{r.Service}
	rules := []any{Rule{Groups: []string{""}, Resources: []string{"services"}, Names: names, Verbs: service}.manifest()}
	if len(r.Addresses) > 0 {
		rules = append(rules, Rule{Groups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, Names: names, Verbs: slice}.manifest())
	}
	return rules
}

// role returns a role for the server and its binding. A Role is in the namespace of the Service.
func (r Registration) role(kind, name string, rules []any) []Manifest {
	metadata, namespace := map[string]any{"name": name}, ""
	if kind == "Role" {
		namespace = r.Namespace
		metadata["namespace"] = namespace
	}
	return []Manifest{
		{"apiVersion": rbacVersion, "kind": kind, "metadata": metadata, "rules": rules},
		binding(kind+"Binding", namespace, name, kind, name, r.account()),
	}
}

func binding(kind, namespace, name, roleKind, role string, subject map[string]any) Manifest {
	metadata := map[string]any{"name": name}
	if namespace != "" {
		metadata["namespace"] = namespace
	}
	return Manifest{
		"apiVersion": rbacVersion, "kind": kind, "metadata": metadata,
		"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": roleKind, "name": role},
		"subjects": []any{subject},
	}
}

// YAML returns objects as a multi-document YAML file.
func YAML(objects []Manifest) ([]byte, error) {
	var out bytes.Buffer
	for i, o := range objects {
		if i > 0 {
			out.WriteString("---\n")
		}
		doc, err := yaml.Marshal(o)
		if err != nil {
			return nil, fmt.Errorf("print %s: %w", o, err)
		}
		out.Write(doc)
	}
	return out.Bytes(), nil
}

// String returns kind/namespace/name.
func (o Manifest) String() string {
	parts := []string{o.text("kind")}
	if ns := o.meta("namespace"); ns != "" {
		parts = append(parts, ns)
	}
	return strings.Join(append(parts, o.meta("name")), "/")
}

func (o Manifest) text(field string) string {
	s, _ := o[field].(string)
	return s
}

func (o Manifest) meta(field string) string {
	m, _ := o["metadata"].(map[string]any)
	s, _ := m[field].(string)
	return s
}
