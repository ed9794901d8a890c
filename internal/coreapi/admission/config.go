package admission

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/apis/apiserver"
	apiserverv1 "k8s.io/apiserver/pkg/apis/apiserver/v1"

	"portico.dev/internal/pki"
)

// maxConfigBytes limits the size of a configuration file.
const maxConfigBytes = 1 << 20

// Config selects the admission plugins.
type Config struct {
	// Plugins is the table of plugins. If it is empty, only NamespaceLifecycle runs.
	Plugins []Plugin
	// Enable names plugins that run in addition to the default ones.
	Enable []string
	// Disable names plugins that do not run. Danger: without NamespaceLifecycle, objects can be created in namespaces that are
	// being deleted.
	Disable []string
	// File is the path of an AdmissionConfiguration of apiserver.config.k8s.io/v1 with the configuration of single plugins.
	// Default none.
	File string
}

// unsupported are upstream's plugins that this server does not have. They can be disabled but not enabled.
var unsupported = sets.New(
	"AlwaysAdmit", "AlwaysDeny", "AlwaysPullImages", "EventRateLimit",
	"ExtendedResourceToleration", "ImagePolicyWebhook", "LimitPodHardAntiAffinityTopology", "NamespaceAutoProvision",
	"NamespaceExists", "NodeDeclaredFeatureValidator", "PodGroupProtection",
	"PodNodeSelector", "PodTolerationRestriction",
)

// Names returns the enabled plugins, in the order of the table.
func (c Config) Names() []string {
	var names []string
	for _, p := range c.Plugins {
		if (p.Default && !slices.Contains(c.Disable, p.Name)) || slices.Contains(c.Enable, p.Name) {
			names = append(names, p.Name)
		}
	}
	return names
}

// pluginNames returns the names of the table.
func (c Config) pluginNames() sets.Set[string] {
	names := sets.New[string]()
	for _, p := range c.Plugins {
		names.Insert(p.Name)
	}
	return names
}

// Lacks reports whether name is a plugin of kube-apiserver that this server does not have. It cannot be enabled.
func (c Config) Lacks(name string) bool { return unsupported.Has(name) && !c.pluginNames().Has(name) }

// Validate calls bad for unknown plugins, an unreadable file, and invalid or unused configurations of plugins.
func (c Config) Validate(bad func(flag, format string, args ...any)) {
	known := c.pluginNames()
	list := strings.Join(sets.List(known), ", ")
	for _, name := range c.Enable {
		switch {
		case known.Has(name):
		case unsupported.Has(name):
			bad("enable-admission-plugins", "%s is a plugin of kube-apiserver that this server does not have; it has %s", name, list)
		default:
			bad("enable-admission-plugins", "there is no plugin %q; choose from %s", name, list)
		}
		if slices.Contains(c.Disable, name) {
			bad("disable-admission-plugins", "%s is also in --enable-admission-plugins; take it out of one of the two", name)
		}
	}
	for _, name := range c.Disable {
		if !known.Has(name) && !unsupported.Has(name) {
			bad("disable-admission-plugins", "there is no plugin %q; choose from %s", name, list)
		}
	}
	if _, err := c.read(); err != nil {
		bad("admission-control-config-file", "%v", err)
	}
}

// configurations are the configurations of plugins, by plugin name.
type configurations map[string][]byte

// ConfigFor implements k8s.io/apiserver's admission.ConfigProvider.
func (c configurations) ConfigFor(plugin string) (io.Reader, error) {
	data, ok := c[plugin]
	if !ok {
		return nil, nil
	}
	return bytes.NewBuffer(data), nil
}

// read replaces k8s.io/apiserver's ReadAdmissionConfiguration, which exits the process if the path does not exist.
func (c Config) read() (configurations, error) {
	if c.File == "" {
		return configurations{}, nil
	}
	data, err := readFile(c.File)
	if err != nil {
		return nil, err
	}
	config, err := decode(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.File, err)
	}
	all := configurations{}
	for _, p := range config.Plugins {
		at := slices.IndexFunc(c.Plugins, func(known Plugin) bool { return known.Name == p.Name })
		configured := p.Configuration != nil || p.Path != ""
		_, twice := all[p.Name]
		switch list := strings.Join(sets.List(c.pluginNames()), ", "); {
		case at < 0 && !unsupported.Has(p.Name):
			return nil, fmt.Errorf("%s: there is no plugin %q; choose from %s", c.File, p.Name, list)
		case !configured:
			continue
		case at < 0:
			return nil, fmt.Errorf("%s: %s is a plugin of kube-apiserver that this server does not have; remove its configuration", c.File, p.Name)
		case c.Plugins[at].Check == nil:
			return nil, fmt.Errorf("%s: %s takes no configuration; remove it", c.File, p.Name)
		case twice:
			return nil, fmt.Errorf("%s: %s is configured twice; remove one", c.File, p.Name)
		}
		from := c.File
		if p.Configuration != nil {
			all[p.Name] = p.Configuration.Raw
		} else {
			if from = p.Path; !filepath.IsAbs(from) {
				from = filepath.Join(filepath.Dir(c.File), from)
			}
			if all[p.Name], err = readFile(from); err != nil {
				return nil, fmt.Errorf("configuration of %s: %w", p.Name, err)
			}
		}
		if err := c.Plugins[at].Check(bytes.NewReader(all[p.Name])); err != nil {
			return nil, fmt.Errorf("configuration of %s in %s: %w", p.Name, from, err)
		}
	}
	return all, nil
}

func decode(data []byte) (*apiserver.AdmissionConfiguration, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(apiserver.AddToScheme(scheme), apiserverv1.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("types of configuration: %w", err)
	}
	obj, err := runtime.Decode(serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDecoder(), data)
	if err != nil {
		return nil, err
	}
	config, ok := obj.(*apiserver.AdmissionConfiguration)
	if !ok {
		return nil, fmt.Errorf("it holds a %T; kind AdmissionConfiguration of apiserver.config.k8s.io/v1 is needed", obj)
	}
	return config, nil
}

func readFile(name string) ([]byte, error) {
	return pki.ReadFile(name, maxConfigBytes, fmt.Errorf("%s has more than %d bytes", name, maxConfigBytes))
}
