package chart

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	helmchart "helm.sh/helm/v4/pkg/chart"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/loader"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/engine"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

const directory = "../../deploy/chart"

type values = map[string]any

// alone returns the values that install only one program.
func alone(program string, more values) values {
	all := values{"aggregator": values{"enabled": false}}
	own := values{"enabled": true}
	maps.Copy(own, more)
	all[program] = own
	return all
}

// The default objects of the chart are those of the kustomize directories, field by field. Only labels and annotations are
// added: Helm's, and the policy for objects that an uninstallation keeps.
func TestTheChartMakesWhatKustomizeMakes(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		values values
		dir    string
		kept   []string
	}{
		"no values":        {nil, "aggregator/overlays/embedded", []string{"Namespace//portico"}},
		"front door":       {alone("aggregator", nil), "aggregator/overlays/embedded", []string{"Namespace//portico"}},
		"replicas":         {alone("aggregator", values{"mode": "replicas"}), "aggregator/overlays/replicas", []string{"Namespace//portico"}},
		"clusters":         {alone("aggregator", values{"clusters": values{"enabled": true}}), "front", []string{"Namespace//portico"}},
		"gateway":          {alone("gateway", nil), "gateway", []string{"CustomResourceDefinition//apiroutes.routing.portico.dev"}},
		"extension server": {alone("extserver", nil), "extserver/base", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rendered, _, err := render(tt.values, "default")
			if err != nil {
				t.Fatal(err)
			}
			built := kustomized(t, tt.dir)
			if got, want := slices.Sorted(maps.Keys(rendered)), slices.Sorted(maps.Keys(built)); !slices.Equal(got, want) {
				t.Fatalf("objects of the chart = %q\nwant kustomize's %q", got, want)
			}
			var kept []string
			for id, want := range built {
				got := rendered[id]
				if got.GetAnnotations()["helm.sh/resource-policy"] == "keep" {
					kept = append(kept, id)
				}
				if labels := got.GetLabels(); labels["app.kubernetes.io/managed-by"] != "Helm" || labels["app.kubernetes.io/instance"] != "test" || labels["helm.sh/chart"] == "" {
					t.Errorf("labels of %s = %v, want Helm's", id, labels)
				}
				withoutHelms(got, want)
				setTag(want, appVersion(t))
				if !reflect.DeepEqual(got.Object, want.Object) {
					t.Errorf("%s of the chart = %s\nwant kustomize's %s", id, text(t, got), text(t, want))
				}
			}
			if slices.Sort(kept); !slices.Equal(kept, tt.kept) {
				t.Errorf("an uninstallation leaves %q, want %q", kept, tt.kept)
			}
		})
	}
}

// withoutHelms removes Helm's additions from the metadata of an object, unless they are expected.
func withoutHelms(got, want *unstructured.Unstructured) {
	labels, annotations := got.GetLabels(), got.GetAnnotations()
	for _, key := range []string{"app.kubernetes.io/name", "app.kubernetes.io/instance", "app.kubernetes.io/version", "app.kubernetes.io/managed-by", "app.kubernetes.io/part-of", "helm.sh/chart"} {
		if _, ok := want.GetLabels()[key]; !ok {
			delete(labels, key)
		}
	}
	delete(annotations, "helm.sh/resource-policy")
	for field, left := range map[string]map[string]string{"labels": labels, "annotations": annotations} {
		if len(left) == 0 {
			unstructured.RemoveNestedField(got.Object, "metadata", field)
		} else {
			_ = unstructured.SetNestedStringMap(got.Object, left, "metadata", field) // metadata is a map: labels were read of it
		}
	}
}

// setTag sets the tag of the images of an object, which the kustomize directories leave to an overlay.
func setTag(o *unstructured.Unstructured, tag string) {
	path := []string{"spec", "template", "spec", "containers"}
	containers, _, _ := unstructured.NestedSlice(o.Object, path...)
	for _, c := range containers {
		container := c.(map[string]any)
		container["image"] = container["image"].(string) + ":" + tag
	}
	if len(containers) > 0 {
		_ = unstructured.SetNestedSlice(o.Object, containers, path...) // the path exists
	}
}

// appVersion returns the version of the chart's programs.
func appVersion(t *testing.T) string {
	t.Helper()
	var about struct{ AppVersion string }
	if err := yaml.Unmarshal(read(t, directory+"/Chart.yaml"), &about); err != nil {
		t.Fatal(err)
	}
	return about.AppVersion
}

// The chart names no registry, so a program without an image is refused, with the flags that set one.
func TestProgramWithoutImageIsRefused(t *testing.T) {
	t.Parallel()
	for program, image := range map[string]string{"aggregator": "portico-aggregator", "gateway": "portico-aggregator", "extserver": "portico-extserver"} {
		want := "--set " + program + ".image.repository=REGISTRY/" + image + " --set " + program + ".image.tag=" + appVersion(t)
		if _, _, err := renderExactly(alone(program, nil), "default"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("rendering %s without an image: error = %v, want %q", program, err, want)
		}
		// A chart or values file that has an image needs no flag.
		if _, _, err := renderExactly(alone(program, values{"image": values{"repository": "registry.example/" + image}}), "default"); err != nil {
			t.Errorf("rendering %s with an image: error = %v, want none", program, err)
		}
	}
}

// One release may have all three programs.
func TestEverythingAtOnce(t *testing.T) {
	t.Parallel()
	rendered, notes, err := render(values{"gateway": values{"enabled": true}, "extserver": values{"enabled": true}}, "default")
	if err != nil {
		t.Fatal(err)
	}
	want := 0
	for _, dir := range []string{"aggregator/overlays/embedded", "gateway", "extserver/base"} {
		want += len(kustomized(t, dir))
	}
	if len(rendered) != want {
		t.Errorf("%d objects, want %d", len(rendered), want)
	}
	for _, want := range []string{"exec portico-aggregator-0 -- /aggregator kubeconfig", "aggregator adopt v1beta1.metrics.k8s.io\n", "aggregator doctor apiservice v1.metrics.k8s.io",
		"rollout status statefulset/portico-aggregator", "rollout status deployment/portico-gateway", "rollout status deployment/portico-extserver"} {
		if !strings.Contains(notes, want) {
			t.Errorf("the notes have no %q, want it:\n%s", want, notes)
		}
	}
	const enroll = "aggregator enroll NAME"
	if strings.Contains(notes, enroll) {
		t.Errorf("the notes have %q without clusters.enabled, want it only with it:\n%s", enroll, notes)
	}
	if _, notes, err := render(alone("aggregator", values{"clusters": values{"enabled": true}}), "default"); err != nil || !strings.Contains(notes, enroll) {
		t.Errorf("notes with clusters = %v, %q; want %q", err, notes, enroll)
	}
	if _, notes, err := render(values{"aggregator": values{"enabled": false}}, "default"); err != nil || !strings.Contains(notes, "Nothing is installed") {
		t.Errorf("notes without a component = %v, %q; want \"Nothing is installed\"", err, notes)
	}
}

// Values reach the objects.
func TestValues(t *testing.T) {
	t.Parallel()
	digest := "sha256:" + strings.Repeat("ab", 32)
	volume := values{"name": "policy", "configMap": values{"name": "audit-policy"}}
	rendered, notes, err := render(values{
		"imagePullSecrets": []any{"registry", values{"name": "mirror"}},
		"aggregator": values{
			"mode": "replicas", "namespace": "front", "replicas": 5, "keysSecretName": "my-keys", "clusters": values{"enabled": true},
			"image":       values{"repository": "registry.example/aggregator", "tag": "v1.2.3", "pullPolicy": "IfNotPresent"},
			"etcd":        values{"servers": []any{"https://a:2379", "https://b:2379"}, "secretName": "my-etcd"},
			"extraArgs":   []any{"--audit-policy-file=/policy/audit.yaml"},
			"resources":   values{"limits": values{"memory": "4Gi", "cpu": 2}},
			"podLabels":   values{"team": "platform"},
			"service":     values{"type": "LoadBalancer", "annotations": values{"example.com/internal": "true"}},
			"tolerations": []any{values{"operator": "Exists"}}, "nodeSelector": values{"disk": "ssd"},
			"extraEnv": []any{values{"name": "GOMEMLIMIT", "value": "1GiB"}}, "affinity": values{"nodeAffinity": values{"a": "b"}},
			"topologySpreadConstraints": []any{values{"topologyKey": "rack"}}, "serviceAccount": values{"annotations": values{"role": "front"}},
			"extraVolumes": []any{volume}, "extraVolumeMounts": []any{values{"name": "policy", "mountPath": "/policy"}},
			"networkPolicy": values{"from": []any{values{"ipBlock": values{"cidr": "10.0.0.0/8"}}}},
		},
		"gateway":   values{"enabled": true, "namespace": "gates", "hostNetwork": true, "image": values{"digest": digest}, "networkPolicy": values{"enabled": false}},
		"extserver": values{"enabled": true, "networkPolicy": values{"enabled": true}, "extraVolumes": []any{volume}},
	}, "front")
	if err != nil {
		t.Fatal(err)
	}
	for _, absent := range []string{"Namespace//front", "NetworkPolicy/gates/portico-gateway"} {
		if rendered[absent] != nil {
			t.Errorf("the chart has a %s, want none", absent)
		}
	}
	for id, wants := range map[string][]string{
		"StatefulSet/front/portico-aggregator": {`"replicas":5`, `"image":"registry.example/aggregator:v1.2.3"`, `"imagePullPolicy":"IfNotPresent"`, `"secretName":"my-keys"`,
			`"--etcd-servers=https://a:2379,https://b:2379"`, `"secretName":"my-etcd"`, `"--runtime-config=clusters.portico.dev/v1alpha1=true","--audit-policy-file=/policy/audit.yaml"`, `"memory":"4Gi"`, `"memory":"256Mi"`, `"team":"platform"`,
			`"tolerations":[{"operator":"Exists"}]`, `"nodeSelector":{"disk":"ssd"}`, `{"configMap":{"name":"audit-policy"},"name":"policy"}`, `{"mountPath":"/policy","name":"policy"}`,
			`"imagePullSecrets":[{"name":"registry"},{"name":"mirror"}]`, `portico-aggregator.front.svc`,
			`{"name":"GOMEMLIMIT","value":"1GiB"}`, `"affinity":{"nodeAffinity":{"a":"b"}}`, `"topologySpreadConstraints":[{"topologyKey":"rack"}]`},
		"ServiceAccount/front/portico-aggregator":            {`"annotations":{"role":"front"}`},
		"Service/front/portico-aggregator":                   {`"type":"LoadBalancer"`, `"example.com/internal":"true"`},
		"NetworkPolicy/front/portico-aggregator":             {`"from":[{"ipBlock":{"cidr":"10.0.0.0/8"}}]`},
		"Namespace//gates":                                   {`"pod-security.kubernetes.io/enforce":"restricted"`},
		"Deployment/gates/portico-gateway":                   {`"image":"portico-aggregator@` + digest + `"`, `"hostNetwork":true`, `"dnsPolicy":"ClusterFirstWithHostNet"`},
		"ClusterRoleBinding//portico-gateway":                {`"namespace":"gates"`},
		"Role/gates/portico-gateway":                         {`"portico-gateway-keys"`},
		"RoleBinding/kube-system/portico-gateway":            {`"namespace":"gates"`},
		"NetworkPolicy/kube-system/portico-extserver":        {`"port":"https"`},
		"Deployment/kube-system/portico-extserver":           {`"audit-policy"`, `"portico-extserver-kubeconfig"`},
		"ConfigMap/kube-system/portico-extserver-kubeconfig": {`tokenFile`},
	} {
		o := rendered[id]
		if o == nil {
			t.Errorf("the chart has no %s, want one", id)
			continue
		}
		for _, want := range wants {
			if got := text(t, o); !strings.Contains(got, want) {
				t.Errorf("%s has no %s, want it: %s", id, want, got)
			}
		}
	}
	if want := "aggregator adopt v1beta1.metrics.k8s.io --gateway gates/portico-gateway"; !strings.Contains(notes, want) {
		t.Errorf("the notes have no %q, want it:\n%s", want, notes)
	}
}

// All objects are renamed, except objects with fixed names in the code of the gateway and of adopt. The programs get the new names,
// labels select the pods, and the jobs of the rules stay.
func TestNamesAreOverridden(t *testing.T) {
	t.Parallel()
	secrets := values{"enabled": true, "tokenSecret": values{"name": "token"}, "caSecret": values{"name": "ca"}}
	for _, c := range []struct {
		name  string
		v     values
		label string // the value of app.kubernetes.io/name, without the program
	}{
		{"nameOverride", values{"nameOverride": "mine"}, "mine"},
		{"fullnameOverride", values{"fullnameOverride": "mine"}, "portico"},
		{"both", values{"nameOverride": "other", "fullnameOverride": "mine"}, "other"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			v := values{
				"aggregator": values{"serviceMonitor": secrets},
				"gateway":    values{"enabled": true, "podMonitor": values{"enabled": true}},
				"extserver":  values{"enabled": true, "serviceMonitor": secrets},
			}
			maps.Copy(v, c.v)
			rendered, notes, err := render(v, "default")
			if err != nil {
				t.Fatal(err)
			}
			var others []string
			for id, o := range rendered {
				if name := o.GetName(); strings.Contains(name, "portico-") && o.GetKind() != "Namespace" {
					others = append(others, id)
				}
			}
			slices.Sort(others)
			if want := []string{"ClusterRole//portico-gateway-adopted", "ClusterRoleBinding//portico-gateway-adopted", "Secret/portico-gateway/portico-gateway-keys"}; !slices.Equal(others, want) {
				t.Errorf("objects that are not renamed = %q, want %q", others, want)
			}
			for id, wants := range map[string][]string{
				"StatefulSet/portico/mine-aggregator":             {"--advertise-name=mine-aggregator,", `"matchLabels":{"app.kubernetes.io/name":"` + c.label + `-aggregator"}`},
				"Service/portico/mine-aggregator":                 {`"selector":{"app.kubernetes.io/name":"` + c.label + `-aggregator"}`},
				"ServiceMonitor/portico/mine-aggregator":          {`"replacement":"portico-aggregator"`, `"serverName":"mine-aggregator.portico.svc"`},
				"Deployment/portico-gateway/mine-gateway":         {`"--service=mine-gateway"`, `"serviceAccountName":"mine-gateway"`},
				"PodMonitor/portico-gateway/mine-gateway":         {`"replacement":"portico-gateway"`},
				"ClusterRoleBinding//mine-gateway":                {`"name":"mine-gateway","namespace":"portico-gateway"`},
				"Deployment/kube-system/mine-extserver":           {`"--service-name=mine-extserver"`, `"--service-selector=app.kubernetes.io/name=` + c.label + `-extserver"`, `"mine-extserver-kubeconfig"`},
				"Service/kube-system/mine-extserver":              {`"app.kubernetes.io/name":"` + c.label + `-extserver"`},
				"APIService//v1.metrics.k8s.io":                   {`"name":"mine-extserver"`},
				"Role/kube-system/mine-extserver":                 {`"resourceNames":["mine-extserver"]`},
				"ServiceMonitor/kube-system/mine-extserver":       {`"replacement":"portico-extserver"`},
				"ConfigMap/kube-system/mine-extserver-kubeconfig": {`tokenFile`},
			} {
				o := rendered[id]
				if o == nil {
					t.Errorf("the chart has no %s, want one", id)
					continue
				}
				for _, want := range wants {
					if got := text(t, o); !strings.Contains(got, want) {
						t.Errorf("%s has no %s, want it: %s", id, want, got)
					}
				}
			}
			if want := "--gateway portico-gateway/mine-gateway"; !strings.Contains(notes, want) {
				t.Errorf("the notes have no %q, want it:\n%s", want, notes)
			}
		})
	}
}

// helm lint reports nothing, neither without values nor with everything enabled.
func TestHelmLintReportsNothing(t *testing.T) {
	t.Parallel()
	secrets := values{"enabled": true, "tokenSecret": values{"name": "token"}, "caSecret": values{"name": "ca"}}
	for name, v := range map[string]values{
		"no values": nil,
		"everything": withImages(values{
			"aggregator": values{"mode": "replicas", "serviceMonitor": secrets},
			"gateway":    values{"enabled": true, "podMonitor": values{"enabled": true}},
			"extserver":  values{"enabled": true, "serviceMonitor": secrets, "networkPolicy": values{"enabled": true}},
			"monitoring": values{"prometheusRule": values{"enabled": true}, "dashboard": values{"enabled": true}},
		}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			linter := lint.RunAll(directory, v, "default")
			for _, m := range linter.Messages {
				t.Errorf("helm lint = %v, want no message", m)
			}
		})
	}
}

// README.md lists every value with its default.
func TestREADMEListsEveryValue(t *testing.T) {
	t.Parallel()
	var schema map[string]any
	if err := json.Unmarshal(read(t, directory+"/values.schema.json"), &schema); err != nil {
		t.Fatal(err)
	}
	var defaults values
	if err := yaml.Unmarshal(read(t, directory+"/values.yaml"), &defaults); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	var walk func(path string, of map[string]any, value any)
	walk = func(path string, of map[string]any, value any) {
		if name, ok := of["$ref"].(string); ok {
			of = schema["definitions"].(map[string]any)[strings.TrimPrefix(name, "#/definitions/")].(map[string]any)
		}
		fields, ok := of["properties"].(map[string]any)
		if !ok {
			data, err := json.Marshal(value)
			if err != nil {
				t.Fatal(err)
			}
			want[strings.TrimPrefix(path, ".")] = string(data)
			return
		}
		for name, v := range value.(map[string]any) {
			walk(path+"."+name, fields[name].(map[string]any), v)
		}
	}
	walk("", schema, defaults)
	got := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\| `([^`]+)` \\| \\S").FindAllStringSubmatch(string(read(t, directory+"/README.md")), -1) {
		got[row[1]] = row[2]
	}
	for name, value := range want {
		if got[name] != value {
			t.Errorf("default of %s in README.md = %q, want %q", name, got[name], value)
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("README.md has the value %s, want only those of values.yaml", name)
		}
	}
}

// The icon equals the console's.
func TestIconIsTheConsoles(t *testing.T) {
	t.Parallel()
	var about struct{ Icon string }
	if err := yaml.Unmarshal(read(t, directory+"/Chart.yaml"), &about); err != nil {
		t.Fatal(err)
	}
	want := "data:image/svg+xml;base64," + base64.StdEncoding.EncodeToString(read(t, "../../internal/tools/console/page/icon.svg"))
	if about.Icon != want {
		t.Errorf("icon = %s, want %s", about.Icon, want)
	}
}

// Unknown values and values of another type are refused with their name.
func TestWrongValuesAreRefused(t *testing.T) {
	t.Parallel()
	for what, v := range map[string]values{
		"'agregator' not allowed":           {"agregator": values{}},
		"'replica' not allowed":             {"gateway": values{"replica": 3}},
		"/aggregator/enabled":               {"aggregator": values{"enabled": "yes"}},
		"/aggregator/mode":                  {"aggregator": values{"mode": "cluster"}},
		"/aggregator/replicas":              {"aggregator": values{"replicas": 0}},
		"/aggregator/namespace":             {"aggregator": values{"namespace": "Portico"}},
		"/aggregator/image/digest":          {"aggregator": values{"image": values{"digest": "latest"}}},
		"/aggregator/etcd/servers":          {"aggregator": values{"etcd": values{"servers": []any{}}}},
		"/aggregator/clusters/enabled":      {"aggregator": values{"clusters": values{"enabled": "yes"}}},
		"'cluster' not allowed":             {"aggregator": values{"cluster": values{"enabled": true}}},
		"/gateway/extraArgs/0":              {"gateway": values{"extraArgs": []any{"zone=a"}}},
		"/gateway/podLabels/n":              {"gateway": values{"podLabels": values{"n": 1}}},
		"/nameOverride":                     {"nameOverride": "My_Name"},
		"/imagePullSecrets/0":               {"imagePullSecrets": []any{values{"secret": "registry"}}},
		"/gateway/extraEnv/0":               {"gateway": values{"extraEnv": []any{values{"value": "1"}}}},
		"/extserver/tolerations/0":          {"extserver": values{"tolerations": []any{"Exists"}}},
		"/monitoring/prometheusRule":        {"monitoring": values{"prometheusRule": values{"runbookBaseURL": "docs"}}},
		"serviceMonitor.tokenSecret.name":   {"aggregator": values{"serviceMonitor": values{"enabled": true}}},
		"extserver.serviceMonitor.caSecret": {"extserver": values{"enabled": true, "serviceMonitor": values{"enabled": true, "tokenSecret": values{"name": "token"}}}},
	} {
		if _, _, err := render(v, "default"); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("rendering %v: error = %v, want %q", v, err, what)
		}
	}
}

// Every default is in the schema, so that the test finds a value that was added to only one of them.
func TestEveryDefaultIsInTheSchema(t *testing.T) {
	t.Parallel()
	var schema map[string]any
	if err := json.Unmarshal(read(t, directory+"/values.schema.json"), &schema); err != nil {
		t.Fatal(err)
	}
	var defaults values
	if err := yaml.Unmarshal(read(t, directory+"/values.yaml"), &defaults); err != nil {
		t.Fatal(err)
	}
	var walk func(path string, schema map[string]any, value any)
	walk = func(path string, of map[string]any, value any) {
		if name, ok := of["$ref"].(string); ok {
			of = schema["definitions"].(map[string]any)[strings.TrimPrefix(name, "#/definitions/")].(map[string]any)
		}
		fields, ok := of["properties"].(map[string]any)
		if !ok {
			return
		}
		if of["additionalProperties"] != false {
			t.Errorf("%s: the schema accepts every name, want additionalProperties: false", path)
		}
		have := value.(map[string]any)
		for name := range have {
			if fields[name] == nil {
				t.Errorf("%s.%s is not in the schema, want it there", path, name)
			}
		}
		for name, field := range fields {
			if v, ok := have[name]; ok {
				walk(path+"."+name, field.(map[string]any), v)
			} else if name != "global" && name != "claims" {
				t.Errorf("%s.%s has no default, want one", path, name)
			}
		}
	}
	walk("", schema, defaults)
}

// The objects for the Prometheus operator have no unknown fields.
func TestMonitoring(t *testing.T) {
	t.Parallel()
	secrets := values{"enabled": true, "labels": values{"prometheus": "main"}, "tokenSecret": values{"name": "token"}, "caSecret": values{"name": "ca"}}
	rendered, _, err := render(values{
		"aggregator": values{"serviceMonitor": secrets},
		"gateway":    values{"enabled": true, "podMonitor": values{"enabled": true}},
		"extserver":  values{"enabled": true, "serviceMonitor": secrets},
		"monitoring": values{"prometheusRule": values{"enabled": true, "runbookBaseURL": "https://example.com/portico/", "labels": values{"release": "prometheus"}}, "dashboard": values{"enabled": true}},
	}, "monitoring")
	if err != nil {
		t.Fatal(err)
	}
	strict := func(id string, into any) {
		t.Helper()
		o := rendered[id]
		if o == nil {
			t.Fatalf("the chart has no %s, want one", id)
		}
		d := json.NewDecoder(strings.NewReader(text(t, o)))
		d.DisallowUnknownFields()
		if err := d.Decode(into); err != nil {
			t.Errorf("decoding %s: %v, want only known fields", id, err)
		}
	}
	var front, extension monitoringv1.ServiceMonitor
	strict("ServiceMonitor/portico/portico-aggregator", &front)
	strict("ServiceMonitor/kube-system/portico-extserver", &extension)
	for want, m := range map[string]*monitoringv1.ServiceMonitor{"portico-aggregator.portico.svc": &front, "portico-extserver.kube-system.svc": &extension} {
		e := m.Spec.Endpoints[0]
		if e.Authorization.Credentials.Name != "token" || e.TLSConfig.CA.Secret.Name != "ca" || *e.TLSConfig.ServerName != want || m.Labels["prometheus"] != "main" {
			t.Errorf("endpoint of the ServiceMonitor %s = %+v, want the token, the CA and the server name", m.Name, e)
		}
		service := rendered["Service/"+m.Namespace+"/"+m.Name]
		if service == nil || service.GetLabels()["app.kubernetes.io/name"] != m.Spec.Selector.MatchLabels["app.kubernetes.io/name"] {
			t.Errorf("ServiceMonitor %s selects no Service, want one", m.Name)
		}
	}
	var gateway monitoringv1.PodMonitor
	strict("PodMonitor/portico-gateway/portico-gateway", &gateway)
	if *gateway.Spec.PodMetricsEndpoints[0].Port != "metrics" {
		t.Errorf("PodMonitor of the gateway = %+v, want the port metrics", gateway.Spec)
	}
	for want, relabelings := range map[string][]monitoringv1.RelabelConfig{
		"portico-aggregator": front.Spec.Endpoints[0].RelabelConfigs,
		"portico-gateway":    gateway.Spec.PodMetricsEndpoints[0].RelabelConfigs,
		"portico-extserver":  extension.Spec.Endpoints[0].RelabelConfigs,
	} {
		if len(relabelings) != 1 || relabelings[0].TargetLabel != "job" || *relabelings[0].Replacement != want {
			t.Errorf("relabelings = %+v, want the job %s of the rules", relabelings, want)
		}
	}

	var rule monitoringv1.PrometheusRule
	strict("PrometheusRule/monitoring/portico", &rule)
	var file struct {
		Groups []monitoringv1.RuleGroup `json:"groups"`
	}
	if err := yaml.UnmarshalStrict(read(t, "../../deploy/monitoring/alerts.yaml"), &file); err != nil {
		t.Fatal(err)
	}
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			r.Annotations["runbook_url"] = "https://example.com/portico/" + r.Annotations["runbook"]
		}
	}
	if !reflect.DeepEqual(rule.Spec.Groups, file.Groups) || rule.Labels["release"] != "prometheus" {
		t.Errorf("rules = %+v\nwant %+v", rule.Spec.Groups, file.Groups)
	}
	dashboard := rendered["ConfigMap/monitoring/portico-dashboard"]
	shown, _, _ := unstructured.NestedString(dashboard.Object, "data", "portico.json")
	if strings.TrimSpace(shown) != strings.TrimSpace(string(read(t, "../../deploy/monitoring/dashboard.json"))) || dashboard.GetLabels()["grafana_dashboard"] != "1" {
		t.Error("dashboard of the chart differs from deploy/monitoring/dashboard.json or has no label, want the same")
	}

	// Rules for components that are not installed would fire permanently.
	rendered, _, err = render(values{"monitoring": values{"prometheusRule": values{"enabled": true}}}, "monitoring")
	if err != nil {
		t.Fatal(err)
	}
	rule = monitoringv1.PrometheusRule{}
	strict("PrometheusRule/monitoring/portico", &rule)
	if len(rule.Spec.Groups) != 1 || rule.Spec.Groups[0].Name != "portico-aggregator" || strings.Contains(text(t, rendered["PrometheusRule/monitoring/portico"]), "runbook_url") {
		t.Errorf("rules of the front door alone = %+v, want only portico-aggregator and no runbook_url", rule.Spec.Groups)
	}
}

// render returns the objects of a release called test, by kind, namespace and name, and its notes. Programs whose values have no
// image get the names of the kustomize directories.
func render(v values, namespace string) (map[string]*unstructured.Unstructured, string, error) {
	return renderExactly(withImages(v), namespace)
}

func withImages(v values) values {
	all := values{}
	maps.Copy(all, v)
	for program, repository := range map[string]string{"aggregator": "portico-aggregator", "gateway": "portico-aggregator", "extserver": "portico-extserver"} {
		own, image := values{}, values{"repository": repository}
		if given, ok := all[program].(values); ok {
			maps.Copy(own, given)
		}
		if given, ok := own["image"].(values); ok {
			maps.Copy(image, given)
		}
		own["image"], all[program] = image, own
	}
	return all
}

// renderExactly is render with only the given values.
func renderExactly(v values, namespace string) (map[string]*unstructured.Unstructured, string, error) {
	var chart helmchart.Charter
	chart, err := loader.Load(directory)
	if err != nil {
		return nil, "", err
	}
	all, err := util.ToRenderValues(chart, v, common.ReleaseOptions{Name: "test", Namespace: namespace, Revision: 1, IsInstall: true}, nil)
	if err != nil {
		return nil, "", err
	}
	files, err := engine.Engine{Strict: true}.Render(chart, all)
	if err != nil {
		return nil, "", err
	}
	objects := map[string]*unstructured.Unstructured{}
	var notes string
	for name, content := range files {
		if strings.HasSuffix(name, "NOTES.txt") {
			notes = content
		} else if err := decode(objects, []byte(content)); err != nil {
			return nil, "", errors.Join(err, errors.New(name+":\n"+content))
		}
	}
	return objects, notes, nil
}

func kustomized(t *testing.T, dir string) map[string]*unstructured.Unstructured {
	t.Helper()
	made, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), "../../deploy/"+dir)
	if err != nil {
		t.Fatal(err)
	}
	content, err := made.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	objects := map[string]*unstructured.Unstructured{}
	if err := decode(objects, content); err != nil {
		t.Fatal(err)
	}
	return objects
}

// decode adds the documents of YAML to objects.
func decode(objects map[string]*unstructured.Unstructured, content []byte) error {
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(content)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		o := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict(document, &o.Object); err != nil {
			return err
		}
		if len(o.Object) == 0 {
			continue
		}
		id := o.GetKind() + "/" + o.GetNamespace() + "/" + o.GetName()
		if objects[id] != nil {
			return errors.New("there are two of " + id)
		}
		objects[id] = o
	}
}

func text(t *testing.T, o *unstructured.Unstructured) string {
	t.Helper()
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(o.Object); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
