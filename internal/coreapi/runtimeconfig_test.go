package coreapi

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	networkingv1 "k8s.io/api/networking/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"

	"portico.dev/internal/coreapi/kinds/cluster"
	"portico.dev/internal/coreapi/openapidocs"
	"portico.dev/internal/fleet/client"
	"portico.dev/internal/fleet/v1alpha1"
)

func TestRuntimeConfig(t *testing.T) {
	jobs := batchv1.SchemeGroupVersion.WithResource("jobs")
	cronJobs := batchv1.SchemeGroupVersion.WithResource("cronjobs")
	pods := schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	clusters := v1alpha1.GroupVersion.WithResource("clusters")
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
		"a group-version that is off by default": {nil, nil, []schema.GroupVersionResource{clusters}, ""},
		"one that is off by default on":          {map[string]string{"clusters.portico.dev/v1alpha1": "true"}, []schema.GroupVersionResource{clusters, jobs}, nil, ""},
		"its resource on":                        {map[string]string{"clusters.portico.dev/v1alpha1/clusters": ""}, []schema.GroupVersionResource{clusters}, nil, ""},
		"alpha on":                               {map[string]string{"api/alpha": "true"}, []schema.GroupVersionResource{clusters, jobs}, nil, ""},
		"all on":                                 {map[string]string{"api/all": "true"}, []schema.GroupVersionResource{clusters, jobs}, nil, ""},
		"all on but alpha":                       {map[string]string{"api/all": "true", "api/alpha": "false"}, []schema.GroupVersionResource{jobs}, []schema.GroupVersionResource{clusters}, ""},
		"a version that does not exist":          {map[string]string{"batch/v2": "true"}, nil, nil, "batch/v2: there is no group-version batch/v2 here; those that are served here are "},
		"a resource that does not exist":         {map[string]string{"batch/v1/job": "false"}, nil, nil, `batch/v1/job: batch/v1 has no resource "job"; it has cronjobs, jobs`},
		"a key that is none":                     {map[string]string{"batch": "false"}, nil, nil, "batch: the key is none of "},
		"a value that is none":                   {map[string]string{"batch/v1": "no"}, nil, nil, "batch/v1=no: say true or false"},
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

// everything returns a configuration that serves all groups.
func everything(t *testing.T) RuntimeConfig {
	t.Helper()
	chosen, err := ParseRuntimeConfig(map[string]string{"api/all": "true"}, cluster.All())
	if err != nil {
		t.Fatal(err)
	}
	return chosen
}

func clustersOf(t *testing.T, h *testServer) *client.Clusters {
	t.Helper()
	clusters, err := client.New(h.ClientConfig(admin))
	if err != nil {
		t.Fatal(err)
	}
	return clusters
}

// A server has neither the kinds nor the documents of a group that is off by default, and its other documents are the prepared ones.
func TestOptInGroupsAreNotServedByDefault(t *testing.T) {
	t.Parallel()
	h := start(t)
	if _, err := clustersOf(t, h).List(within(t), metav1.ListOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("list of Clusters: error = %v, want NotFound", err)
	}
	if h.GroupVersions().Has(v1alpha1.GroupVersion) || h.codec.scheme.IsVersionRegistered(v1alpha1.GroupVersion) {
		t.Errorf("%s is served or its kinds are registered, want neither", v1alpha1.GroupVersion)
	}
	if got, want := len(h.PreparedDocuments()), len(openapidocs.Documents()); got != want {
		t.Errorf("PreparedDocuments() has %d documents, want %d", got, want)
	}
	if got, want := h.PreparedSwagger(), openapidocs.Swagger(); &got.Packed[0] != &want.Packed[0] {
		t.Error("PreparedSwagger() was rewritten, want the prepared document")
	}
	if got := h.AddedSwagger(); len(got) != 0 {
		t.Errorf("AddedSwagger() has %d documents, want none", len(got))
	}
}

func TestOptInGroupsAreServedOnRequest(t *testing.T) {
	t.Parallel()
	h := start(t, func(c *Config) { c.RuntimeConfig = everything(t) })
	namespace(t, h.typed(t, admin), "ns")
	clusters := clustersOf(t, h)
	create := func(name, host string) (warnings []string) {
		config := h.ClientConfig(admin)
		config.WarningHandlerWithContext = warningList{&warnings}
		c, err := client.New(config)
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Create(within(t), &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.ClusterSpec{
			Hosts: []string{host}, Server: v1alpha1.ClusterServer{Endpoints: []string{"192.0.2.1:6443"}, ServerName: "api.example.com"},
			Credentials: v1alpha1.ClusterCredentials{Secret: &v1alpha1.SecretReference{Namespace: "ns", Name: "s"}},
		}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return warnings
	}
	const noSecret = "spec.credentials.secret: Secret ns/s does not exist: requests to the cluster fail until it does"
	if got := create("berlin", "b.example.com"); !slices.Equal(got, []string{noSecret}) {
		t.Errorf("warnings = %q, want %q", got, noSecret)
	}
	// The list for the warning may come from a cache that does not have the first Cluster yet.
	if w, err := clusters.Watch(within(t), metav1.ListOptions{ResourceVersion: "0"}); err != nil {
		t.Fatal(err)
	} else {
		defer w.Stop()
		next(t, w)
	}
	if got := create("bonn", "b.example.com"); len(got) != 2 || !strings.HasPrefix(got[1], "spec.hosts: Cluster berlin has the host name b.example.com too") {
		t.Errorf("warnings = %q, want one for the Secret and one for the host name", got)
	}

	got, err := clusters.Get(within(t), "berlin", metav1.GetOptions{})
	if err != nil || got.Spec.Identity.Mode != v1alpha1.Impersonate || got.Generation != 1 {
		t.Fatalf("GET of a Cluster = %+v, %v, want the default mode and generation 1", got, err)
	}
	got.Status.Version, got.Spec.Hosts = "v1.37.1", nil
	if got, err = clusters.UpdateStatus(within(t), got, metav1.UpdateOptions{}); err != nil || got.Status.Version != "v1.37.1" || len(got.Spec.Hosts) != 1 {
		t.Errorf("update of the status = %+v, %v, want the new status and the old spec", got, err)
	}

	if v2 := h.AddedSwagger(); len(v2) != 1 || v2[0].Hash != openapidocs.OptIn()[0].Swagger.Hash {
		t.Errorf("AddedSwagger() has %d documents, want the one of %s", len(v2), v1alpha1.GroupVersion)
	}
	if docs := h.PreparedDocuments(); docs[len(docs)-1].Path != "apis/"+v1alpha1.GroupVersion.String() {
		t.Errorf("the last document is of %s, want %s", docs[len(docs)-1].Path, v1alpha1.GroupVersion)
	}
}

// The endpoints of a Cluster receive the content of its Secret.
func TestAuthorsOfClustersMustBeAllowedToReadTheSecret(t *testing.T) {
	t.Parallel()
	h := start(t, func(c *Config) { c.RuntimeConfig = everything(t) })
	as := func(u user.Info) *client.Clusters {
		c, err := client.New(h.ClientConfig(u))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	jane, viewer := as(&user.DefaultInfo{Name: "jane"}), as(&user.DefaultInfo{Name: "viewer"})
	c := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "berlin"}, Spec: v1alpha1.ClusterSpec{
		Server:      v1alpha1.ClusterServer{Endpoints: []string{"192.0.2.1:6443"}},
		Credentials: v1alpha1.ClusterCredentials{Secret: &v1alpha1.SecretReference{Namespace: "ns", Name: "s"}},
	}}
	expectRefused := func(action string, err error) {
		t.Helper()
		if want := "spec.credentials.secret: Forbidden: you need the right to get Secret ns/s"; !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error = %v, want Invalid with %q", action, err, want)
		}
	}
	_, err := jane.Create(within(t), c, metav1.CreateOptions{})
	expectRefused("create by a user without the right", err)
	if c, err = viewer.Create(within(t), c, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.Labels = map[string]string{"a": "b"}
	if c, err = jane.Update(within(t), c, metav1.UpdateOptions{}); err != nil {
		t.Errorf("update of a label: %v, want no error", err)
	}
	c.Spec.Server.Endpoints = []string{"192.0.2.2:6443"}
	_, err = jane.Update(within(t), c, metav1.UpdateOptions{})
	expectRefused("update of the endpoints", err)
}

type warningList struct{ texts *[]string }

func (w warningList) HandleWarningHeaderWithContext(_ context.Context, _ int, _, text string) {
	*w.texts = append(*w.texts, text)
}
