package coreapi

import (
	"encoding/json"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	networkingv1 "k8s.io/api/networking/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico.dev/internal/coreapi/kinds/cluster"
)

func TestRuntimeConfig(t *testing.T) {
	jobs := batchv1.SchemeGroupVersion.WithResource("jobs")
	cronJobs := batchv1.SchemeGroupVersion.WithResource("cronjobs")
	pods := schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	for situation, c := range map[string]struct {
		settings map[string]string
		on, off  []schema.GroupVersionResource
		refused  string
	}{
		"nothing said":                {nil, []schema.GroupVersionResource{jobs, pods}, nil, ""},
		"a group-version off":         {map[string]string{"batch/v1": "false"}, []schema.GroupVersionResource{pods}, []schema.GroupVersionResource{jobs, cronJobs}, ""},
		"one resource off":            {map[string]string{"batch/v1/jobs": "false"}, []schema.GroupVersionResource{cronJobs}, []schema.GroupVersionResource{jobs}, ""},
		"all off but what is needed":  {map[string]string{"api/all": "false"}, []schema.GroupVersionResource{pods}, []schema.GroupVersionResource{jobs}, ""},
		"all off and one on":          {map[string]string{"api/all": "false", "batch/v1": "true"}, []schema.GroupVersionResource{jobs, pods}, nil, ""},
		"all off and one resource on": {map[string]string{"api/all": "false", "batch/v1/jobs": ""}, []schema.GroupVersionResource{jobs}, []schema.GroupVersionResource{cronJobs}, ""},
		"all off and what is final on": {map[string]string{"api/all": "false", "api/ga": "true", "api/beta": "false", "api/alpha": "true"},
			[]schema.GroupVersionResource{jobs}, nil, ""},
		"the core by each of its names": {map[string]string{"v1": "true", "api/v1": "true", "/v1": "true"}, []schema.GroupVersionResource{pods}, nil, ""},
		"the core off":                  {map[string]string{"v1": "false"}, nil, nil, "v1=false: v1 cannot be turned off: everything is built on it"},
		"a resource of the core off":    {map[string]string{"api/v1/pods": "false"}, nil, nil, "api/v1/pods=false: v1 cannot be turned off"},
		"ingresses off, which nobody here needs": {map[string]string{"networking.k8s.io/v1/ingresses": "false"}, nil,
			[]schema.GroupVersionResource{networkingv1.SchemeGroupVersion.WithResource("ingresses")}, ""},
		"what Services need off": {map[string]string{"networking.k8s.io/v1/servicecidrs": "false"}, nil, nil,
			"cannot be turned off: Services get their addresses by its ServiceCIDRs and IPAddresses"},
		"authorization's roles off": {map[string]string{"rbac.authorization.k8s.io/v1": "false"}, nil, nil,
			"cannot be turned off: authorization reads its roles and bindings"},
		"a version that does not exist":  {map[string]string{"batch/v2": "true"}, nil, nil, "batch/v2: there is no group-version batch/v2 here; those that are served here are "},
		"a resource that does not exist": {map[string]string{"batch/v1/job": "false"}, nil, nil, `batch/v1/job: batch/v1 has no resource "job"; it has cronjobs, jobs`},
		"a key that is none":             {map[string]string{"batch": "false"}, nil, nil, "batch: the key is none of "},
		"a value that is none":           {map[string]string{"batch/v1": "no"}, nil, nil, "batch/v1=no: say true or false"},
	} {
		t.Run(situation, func(t *testing.T) {
			chosen, err := ParseRuntimeConfig(c.settings, cluster.All())
			if c.refused != "" {
				if err == nil || !strings.Contains(err.Error(), c.refused) {
					t.Fatalf("ParseRuntimeConfig(%v) error = %v, want an error that contains %q", c.settings, err, c.refused)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range c.on {
				if !chosen.Serves(r) || !chosen.ServesVersion(r.GroupVersion()) {
					t.Errorf("%s is off, want on", r)
				}
			}
			for _, r := range c.off {
				if chosen.Serves(r) {
					t.Errorf("%s is on, want off", r)
				}
			}
		})
	}
}

func TestDisabledResourcesAreNotServed(t *testing.T) {
	t.Parallel()
	chosen, err := ParseRuntimeConfig(map[string]string{"batch/v1": "false", "networking.k8s.io/v1/ingresses": "false", "scheduling.k8s.io/v1/priorityclasses": "false"}, cluster.All())
	if err != nil {
		t.Fatal(err)
	}
	h := start(t, func(c *Config) { c.RuntimeConfig = chosen })
	client := h.typed(t, admin)
	namespace(t, client, "ns")
	if _, err := client.BatchV1().Jobs("ns").List(within(t), metav1.ListOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("list of Jobs: error = %v, want NotFound", err)
	}
	if _, err := client.NetworkingV1().Ingresses("ns").List(within(t), metav1.ListOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("list of Ingresses: error = %v, want NotFound", err)
	}
	if _, err := client.NetworkingV1().IngressClasses().List(within(t), metav1.ListOptions{}); err != nil {
		t.Errorf("list of IngressClasses failed: %v, want no error", err)
	}
	versions := h.GroupVersions()
	if versions.Has(batchv1.SchemeGroupVersion) || !versions.Has(networkingv1.SchemeGroupVersion) || versions.Has(schedulingv1.SchemeGroupVersion) {
		t.Errorf("GroupVersions() = %v, want networking.k8s.io/v1 without batch/v1 and scheduling.k8s.io/v1", versions)
	}
	for _, group := range h.Discovery().Groups {
		if group.Name == batchv1.GroupName {
			t.Error("discovery lists the group batch, want it absent")
		}
		for _, version := range group.Versions {
			for _, r := range version.Resources {
				if group.Name == networkingv1.GroupName && r.Resource == "ingresses" {
					t.Error("discovery lists ingresses, want them absent")
				}
			}
		}
	}
	for _, d := range append(h.PreparedDocuments(), h.PreparedSwagger()) {
		body, err := d.JSON()
		if err != nil {
			t.Fatal(err)
		}
		var document struct{ Paths map[string]any }
		if err := json.Unmarshal(body, &document); err != nil {
			t.Fatal(err)
		}
		for path := range document.Paths {
			if strings.Contains(path, "/apis/batch") || strings.Contains(path, "/ingresses") {
				t.Errorf("an OpenAPI document has the path %s, want it absent", path)
			}
		}
		if d.Path == "" && document.Paths["/apis/networking.k8s.io/v1/ingressclasses"] == nil {
			t.Error("the OpenAPI v2 document lacks ingressclasses, want their path")
		}
	}
}
