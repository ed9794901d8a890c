package aggregator

import (
	"slices"

	"github.com/spf13/pflag"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	cliflag "k8s.io/component-base/cli/flag"

	"portico.dev/internal/coreapi"
	"portico.dev/internal/coreapi/kinds/cluster"
	"portico.dev/internal/coreapi/registry"
)

// builtInGroups returns the built-in groups. kinds.Base would omit the groups that only clusters with nodes need.
func builtInGroups() []registry.Group { return cluster.All() }

// localGroups returns the built-in groups and the groups of an embedding program.
func (c *Config) localGroups() []registry.Group {
	return slices.Concat(builtInGroups(), c.Embedded.Groups)
}

func (c *Config) addRuntimeConfigFlags(fs *pflag.FlagSet) {
	if c.RuntimeConfig == nil {
		c.RuntimeConfig = cliflag.ConfigurationMap{}
	}
	fs.Var(&c.RuntimeConfig, "runtime-config", "built-in APIs to turn on or off: group/version=false, "+
		"group/version/resource=false, api/all, api/ga, api/beta, api/alpha; APIs that the front door itself needs stay on")
}

func (c *Config) validateRuntimeConfig(bad func(flag, format string, args ...any)) {
	chosen, err := coreapi.ParseRuntimeConfig(c.RuntimeConfig, c.localGroups())
	if err != nil {
		bad("runtime-config", "%v", err)
	} else if c.EnablePriorityAndFairness && !chosen.FairnessServed() {
		bad("runtime-config", "flowcontrol.apiserver.k8s.io/v1 cannot be turned off while requests take turns by it; set --enable-priority-and-fairness=false too")
	}
}

// runtimeConfig returns the setting, which Validate has checked.
func (c *Config) runtimeConfig() coreapi.RuntimeConfig {
	chosen, err := coreapi.ParseRuntimeConfig(c.RuntimeConfig, c.localGroups())
	if err != nil {
		return coreapi.RuntimeConfig{}
	}
	return chosen
}

// BuiltInGroups returns the names of the built-in groups that are on by default, core ("") first.
func BuiltInGroups() []string {
	names := []string{apiextensionsv1.GroupName}
	for _, g := range builtInGroups() {
		if !g.OptIn {
			names = append(names, g.Version.Group)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
