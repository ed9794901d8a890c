package coreapi

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/registry/rest"

	"portico.dev/internal/coreapi/registry"
)

// RuntimeConfig is kube-apiserver's --runtime-config: it selects the built-in group-versions and resources to serve. The zero
// value serves all but OptIn group-versions. Objects of disabled resources remain in etcd and are served again after the resource
// is enabled.
type RuntimeConfig struct {
	table     []builtInVersion
	versions  sets.Set[schema.GroupVersion]         // disabled
	resources sets.Set[schema.GroupVersionResource] // disabled resources of enabled group-versions
}

// builtInVersion is a built-in group-version with the resources that a setting can name.
type builtInVersion struct {
	version   schema.GroupVersion
	required  string // reason why it cannot be disabled; empty if it can
	optIn     bool   // disabled by default
	resources sets.Set[string]
	optional  sets.Set[string] // resources that can be disabled in a required group-version
}

// builtInVersions returns the group-versions of groups, in order of preference, and the one of custom resource definitions. It
// excludes reviews, which are not stored.
func builtInVersions(groups []registry.Group) []builtInVersion {
	var table []builtInVersion
	for _, g := range groups {
		v := builtInVersion{version: g.Version, required: g.Required, optIn: g.OptIn, resources: sets.New[string](), optional: sets.New[string]()}
		for _, r := range g.Resources {
			v.resources.Insert(r.Name)
			if r.Optional {
				v.optional.Insert(r.Name)
			}
		}
		for _, r := range g.Virtual {
			if r.Named {
				v.resources.Insert(r.Name)
			}
		}
		table = append(table, v)
	}
	for _, g := range groups {
		for _, r := range g.Resources {
			for _, other := range r.AlsoServedIn {
				table[slices.IndexFunc(table, func(v builtInVersion) bool { return v.version == other })].resources.Insert(r.Name)
			}
		}
	}
	return append(table, builtInVersion{
		version: apiextensionsv1.SchemeGroupVersion, required: "custom resources are served by it",
		resources: sets.New("customresourcedefinitions"),
	})
}

func (c RuntimeConfig) find(version schema.GroupVersion) (builtInVersion, bool) {
	for _, v := range c.table {
		if v.version == version {
			return v, true
		}
	}
	return builtInVersion{}, false
}

// classes are the keys for several group-versions, in the order in which they apply. No built-in group-version is beta, but the key
// is accepted.
var classes = []struct {
	key     string
	matches func(version string) bool
}{
	{"api/all", func(string) bool { return true }},
	{"api/ga", func(v string) bool { return !strings.Contains(v, "beta") && !strings.Contains(v, "alpha") }},
	{"api/beta", func(v string) bool { return strings.Contains(v, "beta") }},
	{"api/alpha", func(v string) bool { return strings.Contains(v, "alpha") }},
}

// ParseRuntimeConfig parses settings such as batch/v1=false, apps/v1/daemonsets=false and api/all=false. A group-version
// overrides a class, and a resource overrides its group-version. A class does not disable required group-versions; a setting
// that disables one by name is an error.
func ParseRuntimeConfig(settings map[string]string, groups []registry.Group) (RuntimeConfig, error) {
	c := RuntimeConfig{
		table: builtInVersions(groups), versions: sets.New[schema.GroupVersion](), resources: sets.New[schema.GroupVersionResource](),
	}
	for _, v := range c.table {
		if v.optIn {
			c.turn(v.version, false)
		}
	}
	for _, class := range classes {
		value, set := settings[class.key]
		if !set {
			continue
		}
		on, err := switchOf(class.key, value)
		if err != nil {
			return c, err
		}
		for _, v := range c.table {
			if class.matches(v.version.Version) && v.required == "" {
				c.turn(v.version, on)
			}
		}
	}
	// Shorter keys first, because a resource overrides its group-version.
	keys := slices.SortedFunc(maps.Keys(settings), func(a, b string) int { return strings.Count(a, "/") - strings.Count(b, "/") })
	for _, key := range keys {
		if isClass(key) {
			continue
		}
		if err := c.apply(key, settings[key]); err != nil {
			return c, err
		}
	}
	return c, nil
}

func isClass(key string) bool {
	for _, class := range classes {
		if class.key == key {
			return true
		}
	}
	return false
}

func switchOf(key, value string) (bool, error) {
	switch value {
	case "", "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, fmt.Errorf("%s=%s: say true or false", key, value)
}

func (c RuntimeConfig) turn(version schema.GroupVersion, on bool) {
	if on {
		c.versions.Delete(version)
	} else {
		c.versions.Insert(version)
	}
}

// apply applies one setting of a group-version or resource.
func (c RuntimeConfig) apply(key, value string) error {
	on, err := switchOf(key, value)
	if err != nil {
		return err
	}
	v, resource, err := c.readKey(key)
	if err != nil {
		return err
	}
	version := v.version
	if v.required != "" && !on && !v.optional.Has(resource) {
		return fmt.Errorf("%s=false: %s cannot be turned off: %s", key, version, v.required)
	}
	if resource == "" {
		c.turn(version, on)
		return nil
	}
	if !v.resources.Has(resource) {
		return fmt.Errorf("%s: %s has no resource %q; it has %s", key, version, resource, strings.Join(sets.List(v.resources), ", "))
	}
	at := version.WithResource(resource)
	switch {
	case !on:
		c.resources.Insert(at)
	case c.versions.Has(version):
		// The only enabled resource of a disabled group-version.
		c.versions.Delete(version)
		for other := range v.resources {
			c.resources.Insert(version.WithResource(other))
		}
		c.resources.Delete(at)
	default:
		c.resources.Delete(at)
	}
	return nil
}

// readKey parses group/version and group/version/resource. The core group is "v1", "/v1" or "api/v1".
func (c RuntimeConfig) readKey(key string) (builtInVersion, string, error) {
	parts := strings.Split(key, "/")
	if parts[0] == "v1" {
		parts = append([]string{""}, parts...)
	} else if parts[0] == "api" {
		parts[0] = ""
	}
	if len(parts) < 2 || len(parts) > 3 {
		return builtInVersion{}, "", fmt.Errorf("%s: the key is none of api/all, api/ga, api/beta, api/alpha, group/version and group/version/resource", key)
	}
	version := schema.GroupVersion{Group: parts[0], Version: parts[1]}
	v, ok := c.find(version)
	if !ok {
		var names []string
		for _, other := range c.table {
			names = append(names, other.version.String())
		}
		slices.Sort(names)
		return v, "", fmt.Errorf("%s: there is no group-version %s here; those that are served here are %s", key, version, strings.Join(names, ", "))
	}
	if len(parts) == 2 {
		return v, "", nil
	}
	return v, parts[2], nil
}

// of returns the configuration of a server with groups, and the groups without the OptIn ones that are off. The server then has
// neither storage nor kinds of them.
func (c RuntimeConfig) of(groups []registry.Group) (RuntimeConfig, []registry.Group) {
	if c.table == nil {
		c, _ = ParseRuntimeConfig(nil, groups) // without settings there are no errors
	}
	c.versions = c.versions.Clone()
	var kept []registry.Group
	for _, g := range groups {
		if g.OptIn && !c.ServesVersion(g.Version) {
			c.versions.Delete(g.Version)
			continue
		}
		kept = append(kept, g)
	}
	c.table = builtInVersions(kept)
	return c, kept
}

// AllOn reports whether everything is enabled that the server has.
func (c RuntimeConfig) AllOn() bool { return len(c.versions) == 0 && len(c.resources) == 0 }

// Serves reports whether a resource of a group-version is built in and served.
func (c RuntimeConfig) Serves(at schema.GroupVersionResource) bool {
	return c.isBuiltIn(at.GroupVersion()) && !c.versions.Has(at.GroupVersion()) && !c.resources.Has(at)
}

// ServesVersion reports whether any resource of a group-version is built in and served.
func (c RuntimeConfig) ServesVersion(version schema.GroupVersion) bool {
	if !c.isBuiltIn(version) || c.versions.Has(version) {
		return false
	}
	off := 0
	for at := range c.resources {
		if at.GroupVersion() == version {
			off++
		}
	}
	v, _ := c.find(version)
	return off == 0 || off < len(v.resources)
}

// isBuiltIn reports whether a group-version is built in. The zero value, which has no table, returns true.
func (c RuntimeConfig) isBuiltIn(version schema.GroupVersion) bool {
	_, known := c.find(version)
	return known || c.table == nil
}

// FairnessServed reports whether the resources of API priority and fairness are served.
func (c RuntimeConfig) FairnessServed() bool {
	v := flowcontrolv1.SchemeGroupVersion
	return c.Serves(v.WithResource("flowschemas")) && c.Serves(v.WithResource("prioritylevelconfigurations"))
}

// builtIn returns the group-versions that are served as long as the server runs: core first, then in order of preference, and
// custom resource definitions last.
func (c RuntimeConfig) builtIn() []schema.GroupVersion {
	var all []schema.GroupVersion
	for _, v := range c.table {
		if c.ServesVersion(v.version) {
			all = append(all, v.version)
		}
	}
	return all
}

// keep returns all without disabled resources.
func (c RuntimeConfig) keep(all []servedGroup) []servedGroup {
	var kept []servedGroup
	for _, g := range all {
		if !c.ServesVersion(g.version) {
			continue
		}
		maps.DeleteFunc(g.storage, func(path string, _ rest.Storage) bool {
			return !c.Serves(g.version.WithResource(resourceOf(path)))
		})
		kept = append(kept, g)
	}
	return kept
}

// resourceOf returns the resource of a path such as pods/status.
func resourceOf(path string) string {
	resource, _, _ := strings.Cut(path, "/")
	return resource
}
