package extension_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	custommetrics "k8s.io/metrics/pkg/apis/custom_metrics/v1beta2"

	"portico.dev/pkg/extension"
)

func TestSetResourcesReplacesHostedResources(t *testing.T) {
	stays, goes := extension.Of(queueDefinition(), twoQueues()), queueDefinition()
	goes.Plural, goes.Kind = "stacks", "Stack"
	s := start(t, nil, stays, extension.Of(goes, twoQueues()))
	const stacksPath = "/apis/stats.example.com/v1/stacks"
	going := s.watch(strings.Replace(streaming, "/queues", "/stacks", 1))
	staying := s.watch(streaming)
	going.sees("ADDED orders", "ADDED mails", "BOOKMARK")
	staying.sees("ADDED orders", "ADDED mails", "BOOKMARK")
	tag := s.get("/openapi/v3").Header.Get("ETag")

	comes := queueDefinition()
	comes.Plural, comes.Kind = "heaps", "Heap"
	must(t, s.host.SetResources([]extension.Resource{stays, extension.Of(comes, twoQueues())}))
	if e := going.next(); e.Type != "ERROR" || e.Object.Reason != "Expired" {
		t.Errorf("event of a watch on a removed resource = %+v, want ERROR with reason Expired", e)
	}
	if err := going.lines.Decode(&event{}); !errors.Is(err, io.EOF) {
		t.Errorf("read after the ERROR event: error = %v, want io.EOF", err)
	}
	s.get(stacksPath).wants(t, http.StatusNotFound)
	s.get("/apis/stats.example.com/v1/heaps").wants(t, http.StatusOK, "orders")
	s.get("/apis/stats.example.com/v1").wants(t, http.StatusOK, `"heaps"`, `"queues"`)
	if s.get("/openapi/v3").Header.Get("ETag") == tag {
		t.Error("ETag of /openapi/v3 is unchanged after SetResources, want a new ETag")
	}
	if err := s.host.SetResources([]extension.Resource{stays, stays}); err == nil {
		t.Error("SetResources with a duplicate resource: error = nil, want an error")
	}
	s.get("/apis/stats.example.com/v1/heaps").wants(t, http.StatusOK)
	must(t, s.host.SetResources(nil))
	if e := staying.next(); e.Type != "ERROR" {
		t.Errorf("event after SetResources(nil) = %+v, want ERROR", e)
	}
	s.get("/apis").wants(t, http.StatusOK, `"groups":[]`)
}

func customMetrics(names *atomic.Value) extension.CustomDefinition {
	return extension.CustomDefinition{
		GroupVersion: custommetrics.SchemeGroupVersion,
		Resources: func() []metav1.APIResource {
			var all []metav1.APIResource
			for _, name := range names.Load().([]string) {
				all = append(all, metav1.APIResource{Name: name, Namespaced: true, Kind: "MetricValueList", Verbs: metav1.Verbs{"get"}})
			}
			return all
		},
		Serve: func(w http.ResponseWriter, r *http.Request, info *apirequest.RequestInfo) {
			if info.Subresource == "unknown" {
				extension.WriteError(w, r, extension.ErrNotFound)
				return
			}
			list := &custommetrics.MetricValueList{Items: []custommetrics.MetricValue{{Metric: custommetrics.MetricIdentifier{Name: info.Subresource}}}}
			list.SetGroupVersionKind(custommetrics.SchemeGroupVersion.WithKind("MetricValueList"))
			extension.WriteObject(w, r, http.StatusOK, list)
		},
		OpenAPI: map[string]json.RawMessage{
			"io.k8s.metrics.MetricValueList": json.RawMessage(`{"type":"object","properties":{"items":{"type":"array","items":{"$ref":"#/definitions/io.k8s.metrics.MetricValue"}}}}`),
			"io.k8s.metrics.MetricValue":     json.RawMessage(`{"type":"object"}`),
		},
	}
}

func TestCustomGroupVersionIsServed(t *testing.T) {
	var names atomic.Value
	names.Store([]string{"pods/requests"})
	s := start(t, nil, extension.Of(queueDefinition(), twoQueues()), extension.Custom(customMetrics(&names)))
	const base = "/apis/custom.metrics.k8s.io/v1beta2"
	s.get(base+"/namespaces/team/pods/*/requests").wants(t, 200, `"kind":"MetricValueList"`, `"name":"requests"`)
	s.get(base+"/namespaces/team/pods/*/requests", "Accept: application/yaml").wants(t, 200, "kind: MetricValueList")
	s.get(base+"/namespaces/team/pods/*/requests", "Accept: application/vnd.kubernetes.protobuf").wants(t, 200, "k8s\x00")
	s.get(base+"/namespaces/team/pods/*/requests", "Accept: application/json;as=Table;g=meta.k8s.io;v=v1").wants(t, 406)
	s.get(base+"/namespaces/team/pods/*/unknown").wants(t, 404, `"kind":"Status"`)
	s.get(base).wants(t, 200, `"pods/requests"`)
	const aggregated = "Accept: application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	before := s.get("/apis", aggregated)
	before.wants(t, 200, `"resource":"pods"`, `"subresource":"requests"`, `"resource":"queues"`)
	names.Store([]string{"pods/requests", "namespaces/errors"})
	after := s.get("/apis", aggregated)
	after.wants(t, 200, `"subresource":"errors"`)
	if before.Header.Get("ETag") == after.Header.Get("ETag") {
		t.Error("ETag of /apis is unchanged after the list of metrics changed, want a new ETag")
	}
	s.get("/openapi/v3"+base).wants(t, 200, `"$ref":"#/components/schemas/io.k8s.metrics.MetricValue"`)
	s.get("/openapi/v2").wants(t, 200, `"$ref":"#/definitions/io.k8s.metrics.MetricValue"`)
	s.get("/metrics").wants(t, 200, `group="custom.metrics.k8s.io",resource=""`)
}

func TestInvalidCatalogsAreRejected(t *testing.T) {
	var names atomic.Value
	names.Store([]string{})
	good := customMetrics(&names)
	clashing := good
	clashing.GroupVersion = schema.GroupVersion{Group: "stats.example.com", Version: "v1"}
	dangling := good
	dangling.OpenAPI = map[string]json.RawMessage{"a": json.RawMessage(`{"$ref":"#/definitions/b"}`)}
	connected := queueDefinition()
	connected.Connects = []string{"log"}
	schemaless := queueDefinition()
	schemaless.Schema = json.RawMessage(`{"properties":{"a":{"$ref":"#/definitions/nowhere"}}}`)
	for _, c := range []struct {
		situation string
		resources []extension.Resource
		want      string
	}{
		{"a group-version twice", []extension.Resource{extension.Custom(good), extension.Custom(good)}, "twice"},
		{"a group-version and a resource in it", []extension.Resource{extension.Custom(clashing), extension.Of(queueDefinition(), twoQueues())}, "as a whole"},
		{"a schema that points into the void", []extension.Resource{extension.Custom(dangling)}, `refers to "b"`},
		{"a resource's schema that does", []extension.Resource{extension.Of(schemaless, twoQueues())}, `"nowhere"`},
		{"nothing that serves", []extension.Resource{extension.Custom(extension.CustomDefinition{GroupVersion: good.GroupVersion})}, "Serve"},
		{"a connection without a provider", []extension.Resource{extension.Of(connected, twoQueues())}, "Connect"},
	} {
		s := start(t, nil, extension.Of(queueDefinition(), twoQueues()))
		if err := s.host.SetResources(c.resources); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: SetResources error = %v, want an error that contains %q", c.situation, err, c.want)
		}
		s.get(queuesPath).wants(t, http.StatusOK)
	}
}

// TestKindsOfOneTypeHaveSeparateSchemas: resources declared in YAML share one Go type and have different schemas.
func TestKindsOfOneTypeHaveSeparateSchemas(t *testing.T) {
	one, two := queueDefinition(), queueDefinition()
	one.Schema = json.RawMessage(`{"properties":{"first":{"type":"string"}}}`)
	two.Plural, two.Kind, two.Schema = "stacks", "Stack", json.RawMessage(`{"properties":{"second":{"type":"string"}}}`)
	s := start(t, nil, extension.Of(one, twoQueues()), extension.Of(two, twoQueues()))
	s.get("/openapi/v3/apis/stats.example.com/v1").wants(t, 200,
		`"com.example.stats.v1.Queue":`, `"com.example.stats.v1.Stack":`, `"first":`, `"second":`, `"metadata":`)
}
