package coreapi

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/registry/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico.dev/internal/coreapi/kinds"
)

// RuntimeConfig is kube-apiserver's --runtime-config: which of the group-versions and resources of the table are served.
// The zero value serves all. What is turned off keeps its objects in etcd, and shows them again when it is turned on.
type RuntimeConfig struct {
	versions  sets.Set[schema.GroupVersion]         // turned off
	resources sets.Set[schema.GroupVersionResource] // turned off, in group-versions that are not
}

// needed are group-versions that cannot be turned off, and who would wait for them, or go wrong without them.
var needed = map[schema.GroupVersion]string{
	corev1.SchemeGroupVersion:                  "everything is built on it",
	apiregistrationv1.SchemeGroupVersion:       "without it no extension server can be registered",
	apiextensionsv1.SchemeGroupVersion:         "custom resources are served by it",
	rbacv1.SchemeGroupVersion:                  "authorization reads its roles and bindings",
	admissionregistrationv1.SchemeGroupVersion: "admission reads its webhooks and policies",
	discoveryv1.SchemeGroupVersion:             "extension servers are found by their EndpointSlices",
	authenticationv1.SchemeGroupVersion:        "extension servers ask by it who a caller is",
	authorizationv1.SchemeGroupVersion:         "extension servers ask by it what a caller may do",
	networkingv1.SchemeGroupVersion:            "Services get their addresses by its ServiceCIDRs and IPAddresses; its other resources can be turned off by name",
}

// spared are the resources that can be turned off in a group-version that is needed.
var spared = sets.New(
	networkingv1.SchemeGroupVersion.WithResource("ingresses"),
	networkingv1.SchemeGroupVersion.WithResource("ingressclasses"),
	networkingv1.SchemeGroupVersion.WithResource("networkpolicies"),
)

// classes are the keys that name many group-versions at once, in the order in which they apply. Nothing of the table is
// beta or alpha; the keys are known all the same.
var classes = []struct {
	key     string
	matches func(version string) bool
}{
	{"api/all", func(string) bool { return true }},
	{"api/ga", func(v string) bool { return !strings.Contains(v, "beta") && !strings.Contains(v, "alpha") }},
	{"api/beta", func(v string) bool { return strings.Contains(v, "beta") }},
	{"api/alpha", func(v string) bool { return strings.Contains(v, "alpha") }},
}

// ParseRuntimeConfig reads settings such as batch/v1=false, apps/v1/daemonsets=false and api/all=false. A group-version
// weighs more than a class, and a resource more than its group-version. What is needed stays on under a class that turns
// it off, and is an error when it is named.
func ParseRuntimeConfig(settings map[string]string) (RuntimeConfig, error) {
	c := RuntimeConfig{versions: sets.New[schema.GroupVersion](), resources: sets.New[schema.GroupVersionResource]()}
	known := tableResources()
	for _, class := range classes {
		value, set := settings[class.key]
		if !set {
			continue
		}
		on, err := switchOf(class.key, value)
		if err != nil {
			return c, err
		}
		for version := range known {
			if _, keep := needed[version]; class.matches(version.Version) && !keep {
				c.turn(version, on)
			}
		}
	}
	// Shorter keys first: a resource weighs more than the group-version that it is in.
	keys := slices.SortedFunc(maps.Keys(settings), func(a, b string) int { return strings.Count(a, "/") - strings.Count(b, "/") })
	for _, key := range keys {
		if isClass(key) {
			continue
		}
		if err := c.apply(key, settings[key], known); err != nil {
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

// apply follows one key that names a group-version, or a resource in one.
func (c RuntimeConfig) apply(key, value string, known map[schema.GroupVersion]sets.Set[string]) error {
	on, err := switchOf(key, value)
	if err != nil {
		return err
	}
	version, resource, err := readKey(key, known)
	if err != nil {
		return err
	}
	if why, keep := needed[version]; keep && !on && !spared.Has(version.WithResource(resource)) {
		return fmt.Errorf("%s=false: %s cannot be turned off: %s", key, version, why)
	}
	if resource == "" {
		c.turn(version, on)
		return nil
	}
	if !known[version].Has(resource) {
		return fmt.Errorf("%s: %s has no resource %q; it has %s", key, version, resource, strings.Join(sets.List(known[version]), ", "))
	}
	at := version.WithResource(resource)
	switch {
	case !on:
		c.resources.Insert(at)
	case c.versions.Has(version):
		// The one resource of a group-version that is off otherwise.
		c.versions.Delete(version)
		for other := range known[version] {
			c.resources.Insert(version.WithResource(other))
		}
		c.resources.Delete(at)
	default:
		c.resources.Delete(at)
	}
	return nil
}

// readKey understands group/version and group/version/resource; the core group is "v1", "/v1" or "api/v1".
func readKey(key string, known map[schema.GroupVersion]sets.Set[string]) (schema.GroupVersion, string, error) {
	parts := strings.Split(key, "/")
	if parts[0] == "v1" {
		parts = append([]string{""}, parts...)
	} else if parts[0] == "api" {
		parts[0] = ""
	}
	if len(parts) < 2 || len(parts) > 3 {
		return schema.GroupVersion{}, "", fmt.Errorf("%s: the key is none of api/all, api/ga, api/beta, group/version and group/version/resource", key)
	}
	version := schema.GroupVersion{Group: parts[0], Version: parts[1]}
	if _, ok := known[version]; !ok {
		var names []string
		for other := range known {
			names = append(names, other.String())
		}
		slices.Sort(names)
		return version, "", fmt.Errorf("%s: there is no group-version %s here; those that are served here are %s", key, version, strings.Join(names, ", "))
	}
	if len(parts) == 2 {
		return version, "", nil
	}
	return version, parts[2], nil
}

// tableResources are the resources of each group-version that is built in. Reviews, which are not stored, are not named.
func tableResources() map[schema.GroupVersion]sets.Set[string] {
	known := map[schema.GroupVersion]sets.Set[string]{
		apiextensionsv1.SchemeGroupVersion: sets.New("customresourcedefinitions"),
	}
	for _, g := range kinds.All() {
		names := sets.New[string]()
		for _, r := range g.Resources {
			names.Insert(r.Name)
		}
		known[g.Version] = names
	}
	known[corev1.SchemeGroupVersion].Insert("componentstatuses")
	// Other names of what another entry of the table stores.
	known[eventsv1.SchemeGroupVersion].Insert("events")
	known[autoscalingv1.SchemeGroupVersion].Insert("horizontalpodautoscalers")
	return known
}

// AllOn reports whether nothing is turned off.
func (c RuntimeConfig) AllOn() bool { return len(c.versions) == 0 && len(c.resources) == 0 }

// Serves reports whether a resource of a group-version of the table is served.
func (c RuntimeConfig) Serves(at schema.GroupVersionResource) bool {
	return !c.versions.Has(at.GroupVersion()) && !c.resources.Has(at)
}

// ServesVersion reports whether any resource of a group-version of the table is served.
func (c RuntimeConfig) ServesVersion(version schema.GroupVersion) bool {
	if c.versions.Has(version) {
		return false
	}
	off := 0
	for at := range c.resources {
		if at.GroupVersion() == version {
			off++
		}
	}
	return off == 0 || off < len(tableResources()[version])
}

// FairnessServed reports whether the objects are served that requests take turns by.
func (c RuntimeConfig) FairnessServed() bool {
	v := flowcontrolv1.SchemeGroupVersion
	return c.Serves(v.WithResource("flowschemas")) && c.Serves(v.WithResource("prioritylevelconfigurations"))
}

// builtIn are the group-versions that are served as long as the server runs: core first, then as clients should prefer
// them, and that of definitions.
func (c RuntimeConfig) builtIn() []schema.GroupVersion {
	return slices.DeleteFunc(builtInGroupVersions(), func(v schema.GroupVersion) bool { return !c.ServesVersion(v) })
}

// keep leaves the doors that are open. The storage behind the others stays, for what is done with it inside: addresses
// are allocated whether or not anybody can list them.
func (c RuntimeConfig) keep(all []servedGroup) []servedGroup {
	var kept []servedGroup
	for _, g := range all {
		if !c.ServesVersion(g.version) {
			continue
		}
		open := map[string]rest.Storage{}
		for name, storage := range g.storage {
			resource, _, _ := strings.Cut(name, "/")
			if c.Serves(g.version.WithResource(resource)) {
				open[name] = storage
			}
		}
		kept = append(kept, servedGroup{version: g.version, storage: open})
	}
	return kept
}
