package custommetrics_test

import (
	"errors"
	"flag"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico.dev/internal/extserver/custommetrics"
)

var update = flag.Bool("update", false, "rewrite the golden file")

func read(t *testing.T, text string) *custommetrics.Rules {
	t.Helper()
	config, err := custommetrics.ReadRules("rules.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return config
}

func adapterRules(t *testing.T) *custommetrics.Rules {
	t.Helper()
	data, err := os.ReadFile("testdata/adapter.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return read(t, string(data))
}

// catalogue returns the built-in catalogue, without discovery.
func catalogue() *custommetrics.Catalogue {
	return custommetrics.NewObjects(custommetrics.ObjectsConfig{}).Catalogue()
}

func TestPrometheusAdapterFileIsReadCompletely(t *testing.T) {
	c := adapterRules(t)
	if len(c.Rules) != 3 || len(c.ExternalRules) != 2 || c.Resource == nil {
		t.Fatalf("file has %d rules, %d external rules, resource rules %v, want 3, 2 and resource rules", len(c.Rules), len(c.ExternalRules), c.Resource)
	}
	if c.Rules[1].Line != 13 {
		t.Errorf("line of the second rule = %d, want 13", c.Rules[1].Line)
	}
	if got := c.Rules[1].Window; got != 90*time.Minute {
		t.Errorf("window of the second rule = %s, want 1h30m0s", got)
	}
	if c.ExternalRules[0].Window != 0 || !c.ExternalRules[0].Namespaced || c.ExternalRules[1].Namespaced {
		t.Errorf("external rules = %+v and %+v, want no window on the first and only the first namespaced", c.ExternalRules[0], c.ExternalRules[1])
	}
	if c.Resource.Window != 3*time.Minute || !strings.Contains(c.Resource.Memory.NodeQuery, "node_memory") {
		t.Errorf("resource rules = %+v, want a window of 3m0s and a node query of node_memory", c.Resource)
	}
}

func TestSeriesFiltersAndNamesGiveMetricNames(t *testing.T) {
	c := adapterRules(t)
	for _, s := range []struct {
		situation    string
		rule         *custommetrics.Rule
		series, want string
	}{
		{"one group and no name", c.Rules[0], "container_cpu_usage_seconds_total", "cpu_usage"},
		{"name.matches filters too", c.Rules[0], "container_memory_bytes", ""},
		{"a name of a group and letters", c.Rules[1], "http_requests_total", "http_requests_per_second"},
		{"filtered by isNot", c.Rules[1], "http_busy_seconds_total", ""},
		{"filtered by is", c.Rules[1], "grpc_requests_total", ""},
		{"a constant name", c.Rules[2], "cheese_total", "cheesy_goodness"},
		{"no name at all", c.ExternalRules[0], "queue_depth", "queue_depth"},
	} {
		t.Run(s.situation, func(t *testing.T) {
			got, ok := s.rule.MetricName(s.series)
			if ok != (s.want != "") || ok && got != s.want {
				t.Errorf("MetricName(%q) = %q, %t, want %q (empty: none)", s.series, got, ok, s.want)
			}
		})
	}
}

func TestLabelsNameResources(t *testing.T) {
	c := adapterRules(t)
	for _, s := range []struct {
		situation string
		rule      *custommetrics.Rule
		labels    string
		want      string
	}{
		{"overrides", c.Rules[0], "namespace pod node", "namespaces pods"},
		{"a template", c.Rules[1], "namespace pod node deployment verb", "deployments.apps namespaces nodes pods"},
		{"a template with groups, and overrides", c.Rules[2], "ns node_name kube_apps_deployment kube_networking_k8s_io_ingress shop",
			"deployments.apps ingresses.networking.k8s.io namespaces nodes"},
	} {
		t.Run(s.situation, func(t *testing.T) {
			var got []string
			for _, r := range s.rule.Labels(catalogue()).Described(strings.Fields(s.labels)) {
				got = append(got, r.GroupResource().String())
			}
			slices.Sort(got)
			if strings.Join(got, " ") != s.want {
				t.Errorf("labels describe %v, want %s", got, s.want)
			}
		})
	}
	t.Run("a resource that nobody serves", func(t *testing.T) {
		if unknown := c.Rules[2].Labels(catalogue()).Unknown; len(unknown) != 1 || unknown[0].String() != "shop.cheese.io" {
			t.Errorf("unknown resources = %v, want shop.cheese.io", unknown)
		}
	})
	t.Run("an override wins over the template", func(t *testing.T) {
		label, _ := c.Rules[2].Labels(catalogue()).Lookup(schema.GroupResource{Resource: "namespaces"})
		if label != "ns" {
			t.Errorf("label of namespaces = %q, want the override \"ns\"", label)
		}
	})
}

func parse(t *testing.T, selector string) labels.Selector {
	t.Helper()
	s, err := labels.Parse(selector)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestQueries(t *testing.T) {
	c := adapterRules(t)
	pods := func(selector string, names ...string) custommetrics.Target {
		return custommetrics.Target{Series: "s", Label: "pod", Names: names, NamespaceLabel: "namespace", Namespace: "shop", Selector: parse(t, selector)}
	}
	for _, s := range []struct {
		situation string
		rule      *custommetrics.Rule
		target    custommetrics.Target
		want      string
	}{
		{"one object", c.Rules[0], pods("", "web-1"),
			`sum(rate(s{namespace="shop",pod="web-1",container!="POD"}[5m])) by (pod)`},
		{"several, whose dots are dots", c.Rules[0], pods("", "web.1", "web.2"),
			`sum(rate(s{namespace="shop",pod=~"web\\.1|web\\.2",container!="POD"}[5m])) by (pod)`},
		{"a selector of every kind", c.ExternalRules[1],
			custommetrics.Target{Series: "t", Selector: parse(t, "a=1,b!=2,c in (x,y),d notin (x,y),e,!f,g in (z)")},
			`t{a="1",b!="2",c=~"x|y",d!~"x|y",e!="",f="",g="z"}`},
		{"nothing to match", c.ExternalRules[1], custommetrics.Target{Series: "t", Selector: parse(t, "")}, `t{}`},
		{"an external metric of a namespace", c.ExternalRules[0],
			custommetrics.Target{Series: "q", NamespaceLabel: "k8s_namespace", Namespace: "shop", Selector: parse(t, "name=a")},
			`max(q{name="a",k8s_namespace="shop"}) by (name)`},
		{"a selector cannot widen the namespace", c.Rules[0], pods("namespace=other", "web"),
			`sum(rate(s{namespace="other",namespace="shop",pod="web",container!="POD"}[5m])) by (pod)`},
		{"nor can it in raw values", c.Rules[2], pods("namespace=other,pod=x", "web"),
			`sum(s{namespace=~"shop",pod=~"web",}) by (pod)`},
	} {
		t.Run(s.situation, func(t *testing.T) {
			got, err := s.rule.Query(s.target)
			if err != nil {
				t.Fatal(err)
			}
			if strings.TrimSpace(got) != s.want {
				t.Errorf("got  %s\nwant %s", got, s.want)
			}
		})
	}
}

// Names come from the path of a request and may contain any character. Some templates insert them into a query unchanged.
func TestQueryInjectionIsRejected(t *testing.T) {
	c := adapterRules(t)
	for _, name := range []string{`x"} or vector(1) or s{y="`, "x\ny", `x\`, "a|b", ".*", "x,y", "ä", "x y", "$(x)"} {
		for i, r := range []*custommetrics.Rule{c.Rules[0], c.Rules[2]} {
			target := custommetrics.Target{Series: "s", Label: "pod", Names: []string{name}, NamespaceLabel: "namespace", Namespace: "shop", Selector: labels.Everything()}
			if q, err := r.Query(target); !errors.Is(err, custommetrics.ErrName) {
				t.Errorf("Query of rule %d with the name %q = %q, error %v, want ErrName", i, name, q, err)
			}
			target.Names, target.Namespace = []string{"x"}, name
			if q, err := r.Query(target); !errors.Is(err, custommetrics.ErrName) {
				t.Errorf("Query of rule %d with the namespace %q = %q, error %v, want ErrName", i, name, q, err)
			}
		}
	}
	for _, selector := range []string{"app.kubernetes.io/name=web", "a-b", "x>3"} {
		var refused *custommetrics.SelectorError
		if _, err := c.Rules[0].Query(custommetrics.Target{Series: "s", Selector: parse(t, selector)}); !errors.As(err, &refused) {
			t.Errorf("Query with the selector %q: error = %v, want a SelectorError", selector, err)
		}
	}
}

func TestRulesAreReadFromConfigMap(t *testing.T) {
	text := `apiVersion: v1
kind: Namespace
metadata: {name: monitoring}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: adapter-config
data:
  config.yaml: |
    rules:
    - seriesQuery: up
      resources: {template: <<.Resource>>}
      metricsQuery: <<.Series>>{<<.LabelMatchers>>}
`
	if c := read(t, text); len(c.Rules) != 1 || c.Rules[0].Line != 12 {
		t.Errorf("first rule of the ConfigMap = %+v, want one rule on line 12", c.Rules[0])
	}
	_, err := custommetrics.ReadRules("map.yaml", []byte(strings.Replace(text, "<<.Series>>", "<<.Serie>>", 1)))
	if err == nil || !strings.HasPrefix(err.Error(), "map.yaml:14: rules[0].metricsQuery: want a template of .Series") {
		t.Errorf("ReadRules with an unknown template field: error = %v, want it at map.yaml:14", err)
	}
	_, err = custommetrics.ReadRules("map.yaml", []byte(strings.Replace(text, "    - seriesQuery: up", "    - seriesQuery: {up", 1)))
	if err == nil || !strings.HasPrefix(err.Error(), "map.yaml:1") || !strings.Contains(err.Error(), "not YAML") {
		t.Errorf("ReadRules with invalid YAML: error = %v, want a position and \"not YAML\"", err)
	}
}

func TestRuleErrorNamesLineFieldAndExpectedType(t *testing.T) {
	good := "rules:\n- seriesQuery: up\n  resources: {template: <<.Resource>>}\n  metricsQuery: <<.Series>>\n"
	for _, s := range []struct{ situation, text, want string }{
		{"a field that is not there", good + "  metricQuery: x\n", "r:5: rules[0].metricQuery: is not a field here; want one of metricsQuery, name"},
		{"a field at the top", "rule: []\n", "r:1: rule: is not a field here; want one of externalRules, resourceRules, rules"},
		{"a list that is a mapping", "rules: {a: b}\n", "r:1: rules: want a list, found a mapping"},
		{"a rule that is a string", "rules:\n- up\n", `r:2: rules[0]: want fields metricsQuery, name, resources, seriesFilters, seriesQuery, found "up"`},
		{"no series", "rules:\n- metricsQuery: x\n  resources: {template: <<.Resource>>}\n", "r:2: rules[0].seriesQuery: is required: want a series selector"},
		{"no query", "rules:\n- seriesQuery: up\n  resources: {template: <<.Resource>>}\n", "r:2: rules[0].metricsQuery: is required"},
		{"no resources", "rules:\n- seriesQuery: up\n  metricsQuery: up\n", "r:2: rules[0].resources: is required: want overrides or a template"},
		{"a query that is no template", strings.Replace(good, "<<.Series>>\n", "<<.Series\n", 1), "r:4: rules[0].metricsQuery: want a Go template with the delimiters << and >>"},
		{"a regular expression that is none", good + "  name: {matches: '('}\n", "r:5: rules[0].name.matches: want a regular expression"},
		{"two groups and no name", good + "  name:\n    matches: (a)(b)\n", "r:6: rules[0].name.as: is required, because matches has 2 groups"},
		{"a group that is not there", good + "  name:\n    matches: ^(.*)_total$\n    as: $1_per_second\n",
			`r:7: rules[0].name.as: refers to group "1_per_second", which matches does not have; write ${1} before`},
		{"both is and isNot", good + "  seriesFilters:\n  - {is: a, isNot: b}\n", "r:6: rules[0].seriesFilters[0]: want one of is and isNot"},
		{"a label that is none", strings.Replace(good, "{template: <<.Resource>>}", "{overrides: {a-b: {resource: pod}}}", 1), "r:3: rules[0].resources.overrides.a-b: want the name of a Prometheus label"},
		{"an override without resource", strings.Replace(good, "{template: <<.Resource>>}", "{overrides: {a: {group: apps}}}", 1), "r:3: rules[0].resources.overrides.a: want {resource: NAME}"},
		{"a template that is always the same", strings.Replace(good, "<<.Resource>>", "<<.Group>>", 1), "r:3: rules[0].resources.template: want a template that makes a label of each .Resource"},
		{"a flag that is none", "externalRules:\n- seriesQuery: up\n  metricsQuery: up\n  resources: {namespaced: maybe}\n", `r:4: externalRules[0].resources.namespaced: want true or false, found "maybe"`},
		{"a window that is none", "resourceRules:\n  window: long\n", `r:2: resourceRules.window: want a duration such as 5m, found "long"`},
		{"a field given twice", good + "  metricsQuery: x\n", "r:5: rules[0].metricsQuery: is given twice"},
		{"no YAML", "rules:\n- a: b: c\n", "r:2: not YAML: mapping values are not allowed"},
		{"nothing", "# empty\n", "r: no rules in it: want rules, externalRules or resourceRules"},
	} {
		t.Run(s.situation, func(t *testing.T) {
			_, err := custommetrics.ReadRules("r", []byte(s.text))
			if err == nil || !strings.HasPrefix(err.Error(), s.want) {
				t.Errorf("got  %v\nwant %s", err, s.want)
			}
		})
	}
	t.Run("several mistakes are told together", func(t *testing.T) {
		_, err := custommetrics.ReadRules("r", []byte("rules:\n- seriesQuery: up\n  metricsQuery: up\n- seriesQuery: up\n  a: b\n"))
		var problems custommetrics.RuleProblems
		if !errors.As(err, &problems) || len(problems) < 3 {
			t.Errorf("ReadRules with several mistakes: error = %v, want at least 3 RuleProblems", err)
		}
	})
}

func FuzzRead(f *testing.F) {
	data, err := os.ReadFile("testdata/adapter.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte("rules: &a [*a]"))
	f.Add([]byte("kind: ConfigMap\ndata: {config.yaml: 'rules: []'}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := custommetrics.ReadRules("f", data)
		if err != nil {
			return
		}
		for _, r := range append(c.Rules, c.ExternalRules...) {
			r.MetricName("http_requests_total")
			r.Labels(catalogue())
		}
	})
}

func TestConvertExtractsAndExplainsRules(t *testing.T) {
	data, err := os.ReadFile("testdata/adapter.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var inside strings.Builder
	inside.WriteString("kind: ConfigMap\napiVersion: v1\ndata:\n  config.yaml: |\n")
	for line := range strings.Lines(string(data)) {
		inside.WriteString("    " + line)
	}
	for situation, text := range map[string]string{"the file itself": string(data), "a ConfigMap": inside.String()} {
		t.Run(situation, func(t *testing.T) {
			out, err := custommetrics.ConvertRules("adapter.yaml", []byte(text))
			if err != nil {
				t.Fatal(err)
			}
			if *update {
				if err := os.WriteFile("testdata/converted.yaml", out, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile("testdata/converted.yaml")
			if err != nil {
				t.Fatal(err)
			}
			if string(out) != string(want) {
				t.Errorf("converted rules differ (run with -update to rewrite); got\n%s\nwant\n%s", out, want)
			}
			again, err := custommetrics.ReadRules("converted.yaml", out)
			if err != nil || len(again.Rules) != 3 || len(again.ExternalRules) != 2 {
				t.Errorf("ReadRules of the converted file: error = %v, want 3 rules and 2 external rules", err)
			}
		})
	}
}

func TestResourceRulesBecomePlainQueries(t *testing.T) {
	c := adapterRules(t)
	plain, err := c.Resource.CPU.Plain(catalogue())
	want := custommetrics.PlainQueries{
		Container: `sum(rate(container_cpu_usage_seconds_total{pod!=""}[3m])) by (pod,namespace,container)`,
		Node:      `sum(rate(node_cpu_usage_seconds_total{node!=""}[3m])) by (node)`, NodeLabel: "node",
	}
	if err != nil || plain != want {
		t.Errorf("queries of the resource rules = %+v, error %v, want %+v", plain, err, want)
	}
	old := "resourceRules:\n  cpu:\n    containerQuery: c{<<.LabelMatchers>>}\n    nodeQuery: n{<<.LabelMatchers>>}\n    containerLabel: container_name\n" +
		"    resources: {overrides: {instance: {resource: node}, namespace: {resource: namespace}, pod_name: {resource: pod}}}\n"
	plain, err = read(t, old).Resource.CPU.Plain(catalogue())
	want = custommetrics.PlainQueries{
		Container: `label_replace(label_replace(c{pod_name!=""}, "pod", "$1", "pod_name", "(.*)"), "container", "$1", "container_name", "(.*)")`,
		Node:      `n{instance!=""}`, NodeLabel: "instance",
	}
	if err != nil || plain != want {
		t.Errorf("queries of the resource rules with other labels = %+v, error %v, want %+v", plain, err, want)
	}
	_, err = custommetrics.ReadRules("r", []byte(strings.Replace(old, "pod_name", "a", 1)+"  memory: {containerQuery: x}\n"))
	if err == nil || !strings.HasPrefix(err.Error(), "r:7: resourceRules.memory: want resources that map a label to each of nodes") {
		t.Errorf("ReadRules without a node label: error = %v, want it at r:7 for resourceRules.memory", err)
	}
}
