package extserver

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico.dev/internal/clients/apiclient"
	"portico.dev/internal/extserver/custommetrics"
	"portico.dev/internal/extserver/declared"
	"portico.dev/internal/extserver/httpclient"
	"portico.dev/internal/extserver/projects"
	"portico.dev/internal/extserver/prometheus"
	"portico.dev/internal/extserver/registration"
	"portico.dev/internal/run"
	"portico.dev/pkg/extension"
)

// PrometheusOptions configure the connection to a Prometheus server.
type PrometheusOptions struct {
	// URL is the URL of the server. Required by all parts that query one.
	URL string
	// CAFile contains the CA certificates of the server. Default: the system's trust store.
	CAFile string
	// TokenFile contains a bearer token. Headers are additional headers, as "Name: value".
	TokenFile string
	Headers   []string
}

func (p PrometheusOptions) config() (prometheus.Config, error) {
	c := prometheus.Config{URL: p.URL}
	if p.URL == "" {
		return c, errors.New("--prometheus-url is required: it says which Prometheus server is asked")
	}
	c.Access = httpclient.Config{TLS: httpclient.TLS{CAFile: p.CAFile}, BearerTokenFile: p.TokenFile, Header: http.Header{}}
	for _, h := range p.Headers {
		name, value, ok := strings.Cut(h, ":")
		if !ok {
			return c, fmt.Errorf("--prometheus-header %q: it is written as Name: value", h)
		}
		c.Access.Header.Add(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	return c, nil
}

// CustomMetricsOptions configure custom.metrics.k8s.io and external.metrics.k8s.io.
type CustomMetricsOptions struct {
	// Rules are rule files of prometheus-adapter. The first file that defines a metric provides it. Default: none, which
	// disables both groups.
	Rules []string
	// RelistInterval is the interval at which series are listed. MaxAge is the maximum age of the last sample of a series
	// that is listed as a metric. Defaults: one minute and ten minutes.
	RelistInterval, MaxAge time.Duration
}

func (o Options) customMetricsPart() (*part, error) {
	c := o.CustomMetrics
	if len(c.Rules) == 0 {
		return nil, nil
	}
	access, err := o.Prometheus.config()
	if err != nil {
		return nil, err
	}
	server, err := prometheus.New(access)
	if err != nil {
		return nil, err
	}
	client, err := apiclient.New(o.Client)
	if err != nil {
		return nil, err
	}
	known := custommetrics.NewObjects(custommetrics.ObjectsConfig{Client: client, Logger: o.Logger})
	members := []run.Member{member("described objects", known.Run)}
	sources := []extension.Source{{Name: "described-objects", LastError: known.LastError}}
	var custom []custommetrics.CustomSource
	var external []custommetrics.ExternalSource
	described := custommetrics.WellKnown().Resources()
	for _, file := range c.Rules {
		read, err := readRules(file)
		if err != nil {
			return nil, err
		}
		described = append(described, read.Described()...)
		provider, err := custommetrics.NewPrometheusProvider(custommetrics.PrometheusConfig{
			Name: "rules/" + filepath.Base(file), File: file, Client: server, Rules: read, Objects: known,
			Interval: c.RelistInterval, MaxAge: c.MaxAge, Logger: o.Logger,
		})
		if err != nil {
			return nil, err
		}
		members = append(members, member("metrics of "+file, provider.Run))
		sources = append(sources, provider.Source())
		custom, external = append(custom, provider.Custom()), append(external, provider.External())
	}
	hosted := append(custommetrics.Custom(custom...), custommetrics.External(external...))
	return &part{
		resources: fixed(hosted...),
		members:   members,
		sources:   func() []extension.Source { return sources },
		needs:     listing(described),
	}, nil
}

// listing returns the permission to list resources, with one rule for each group. Selectors are resolved with list requests.
func listing(all []schema.GroupResource) []registration.Rule {
	var rules []registration.Rule
	for _, r := range all {
		i := slices.IndexFunc(rules, func(rule registration.Rule) bool { return rule.Groups[0] == r.Group })
		if i < 0 {
			i = len(rules)
			rules = append(rules, registration.Rule{Groups: []string{r.Group}, Verbs: []string{"list"}})
		}
		if !slices.Contains(rules[i].Resources, r.Resource) {
			rules[i].Resources = append(rules[i].Resources, r.Resource)
		}
	}
	return rules
}

func readRules(file string) (*custommetrics.Rules, error) {
	info, err := os.Stat(file)
	if err == nil && info.Size() > custommetrics.MaxRulesBytes {
		err = fmt.Errorf("%s is larger than %d bytes", file, custommetrics.MaxRulesBytes)
	}
	if err != nil {
		return nil, fmt.Errorf("--custom-metrics-rules: %w", err)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("--custom-metrics-rules: %w", err)
	}
	return custommetrics.ReadRules(file, data)
}

// ProjectsOptions configure projects, which are the namespaces that each caller may see.
type ProjectsOptions struct {
	// Enabled enables projects.
	Enabled bool
	// Group, Roles, MaxPerUser and PollInterval are documented in projects.Config.
	Group        string
	Roles        []string
	MaxPerUser   int
	PollInterval time.Duration
}

func (o Options) projectsPart() (*part, error) {
	if !o.Projects.Enabled {
		return nil, nil
	}
	client, err := apiclient.New(o.Client)
	if err != nil {
		return nil, err
	}
	p, err := projects.New(projects.Config{
		Client: client, Group: o.Projects.Group, Roles: o.Projects.Roles, MaxPerUser: o.Projects.MaxPerUser, PollInterval: o.Projects.PollInterval,
	})
	if err != nil {
		return nil, err
	}
	roles := o.Projects.Roles
	if len(roles) == 0 {
		roles = []string{"admin"}
	}
	return &part{
		resources: fixed(p.Resources()...),
		members:   []run.Member{member("projects", p.Run)},
		sources:   func() []extension.Source { return []extension.Source{p.Source()} },
		needs: []registration.Rule{
			{Groups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"create", "delete", "get", "list"}},
			{Groups: []string{"rbac.authorization.k8s.io"}, Resources: []string{"rolebindings"}, Verbs: []string{"create"}},
			{Groups: []string{"rbac.authorization.k8s.io"}, Resources: []string{"clusterroles"}, Names: roles, Verbs: []string{"bind"}},
		},
	}, nil
}

// DeclaredOptions configure resources that are declared in files.
type DeclaredOptions struct {
	// Paths are files, and directories of files. Default: none.
	Paths []string
	// AllowExec allows the files to specify commands.
	AllowExec bool
}

func (o Options) declaredPart(apply func([]extension.Resource) error) (*part, error) {
	if len(o.Declared.Paths) == 0 {
		return nil, nil
	}
	set, err := declared.New(declared.Config{
		Paths: o.Declared.Paths, AllowExec: o.Declared.AllowExec, ProcPath: o.Metrics.ProcPath, Apply: apply, Logger: o.Logger,
	})
	if err != nil {
		return nil, err
	}
	return &part{resources: set.Resources, members: []run.Member{member("declared resources", set.Run)}, sources: set.Sources}, nil
}
