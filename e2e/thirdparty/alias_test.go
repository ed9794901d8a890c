package thirdparty

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	metricsclient "k8s.io/metrics/pkg/client/clientset/versioned"

	"portico.dev/internal/routes/client"
	"portico.dev/internal/routes/v1alpha1"
)

var metricsV1 = schema.GroupVersion{Group: "metrics.k8s.io", Version: "v1"}

// The metrics-server has metrics.k8s.io/v1beta1 only. An APIRoute serves v1 from it, to every kind of client.
func TestMetricsServerInAVersionThatItDoesNotHave(t *testing.T) {
	t.Parallel()
	d := startFrontDoor(t, "front-alias")
	s := newMetricsServer(t, d)
	s.start(t)
	s.register(t)
	s.awaitAvailable(t)
	s.registerRoute(t, metricsV1, v1alpha1.APIRouteSpec{Backends: []v1alpha1.APIRouteBackend{{Name: "metrics-server", Version: "v1beta1"}}})
	d.awaitRoute(t, metricsV1)

	t.Run("discovery", func(t *testing.T) {
		aliasIsDiscovered(t, d)
		legacy, err := d.typed.Discovery().ServerResourcesForGroupVersion(metricsV1.String())
		if err != nil || len(legacy.APIResources) != 2 || legacy.GroupVersion != metricsV1.String() {
			t.Errorf("discovery document of v1beta1 = %v, %v; want two resources", legacy, err)
		}
	})
	t.Run("OpenAPI", func(t *testing.T) { aliasIsDescribed(t, d) })
	for _, media := range []string{"application/json", "application/vnd.kubernetes.protobuf"} {
		t.Run("typed client, "+media, func(t *testing.T) { aliasIsRead(t, d, media) })
	}
	t.Run("every form of a list and an object", func(t *testing.T) { aliasInEveryForm(t, d) })
	t.Run("kubectl", func(t *testing.T) { aliasByKubectl(t, d) })
	t.Run("rights", func(t *testing.T) {
		nobody := must[*rest.Config](t)(d.newUser())
		_, err := must[metricsclient.Interface](t)(metricsclient.NewForConfig(nobody)).MetricsV1().NodeMetricses().List(t.Context(), metav1.ListOptions{})
		if !apierrors.IsForbidden(err) {
			t.Errorf("somebody without rights: %v, want 403", err)
		}
	})
	t.Run("without the version that it has", func(t *testing.T) {
		s.unregister(t)
		eventually(t, "v1beta1 is gone", func() error {
			if _, err := d.kubectl("", "get", "--raw", "/apis/metrics.k8s.io/v1beta1"); err == nil || !strings.Contains(err.Error(), "NotFound") {
				return fmt.Errorf("it is not: %v", err)
			}
			return nil
		})
		expect(t, d, `(?m)^n1 +2[456]\dm +1[23]% +300Mi +7%`, "top", "node")
	})
	t.Run("while it is dead, and after it", func(t *testing.T) {
		s.stop(t)
		eventually(t, "people are told", func() error {
			_, err := d.kubectl("", "get", "nodes.v1.metrics.k8s.io")
			if err == nil || !strings.Contains(err.Error(), "backend metrics-server of APIRoute v1.metrics.k8s.io is unavailable (FailedDiscoveryCheck") {
				return fmt.Errorf("kubectl get: %v", err)
			}
			return nil
		})
		aliasIsDiscovered(t, d) // the aggregated document is made from memory
		s.start(t)
		d.awaitRoute(t, metricsV1)
		eventually(t, "it has scraped again", func() error {
			_, err := d.kubectl("", "top", "node")
			return err
		})
	})
}

// registerRoute makes an APIService for a group-version, with this server's Service, and its APIRoute.
func (s *third) registerRoute(t *testing.T, gv schema.GroupVersion, spec v1alpha1.APIRouteSpec) {
	t.Helper()
	port := int32(s.port)
	if _, err := s.frontDoor.aggregator.ApiregistrationV1().APIServices().Create(t.Context(), &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: gv.Version + "." + gv.Group},
		Spec: apiregistrationv1.APIServiceSpec{
			Group: gv.Group, Version: gv.Version, GroupPriorityMinimum: 1000, VersionPriority: 20,
			Service: &apiregistrationv1.ServiceReference{Namespace: s.name, Name: s.name, Port: &port}, CABundle: s.ca.PEM(),
		},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.frontDoor.route(t, gv, spec)
}

// route makes the APIRoute of a group-version.
func (d *frontDoor) route(t *testing.T, gv schema.GroupVersion, spec v1alpha1.APIRouteSpec) {
	t.Helper()
	routes := must[*client.APIRoutes](t)(client.New(d.config))
	if _, err := routes.Create(t.Context(), &v1alpha1.APIRoute{
		ObjectMeta: metav1.ObjectMeta{Name: gv.Version + "." + gv.Group}, Spec: spec,
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// awaitRoute waits until all backends of an APIRoute are available.
func (d *frontDoor) awaitRoute(t *testing.T, gv schema.GroupVersion) {
	t.Helper()
	d.awaitRouteIs(t, gv, metav1.ConditionTrue)
}

func (d *frontDoor) awaitRouteIs(t *testing.T, gv schema.GroupVersion, want metav1.ConditionStatus) {
	t.Helper()
	routes := must[*client.APIRoutes](t)(client.New(d.config))
	eventually(t, fmt.Sprintf("Available of APIRoute %s is %s", gv, want), func() error {
		route, err := routes.Get(t.Context(), gv.Version+"."+gv.Group, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range route.Status.Conditions {
			if c.Type == "Available" && c.Status == want {
				return nil
			}
		}
		return fmt.Errorf("conditions %v", route.Status.Conditions)
	})
}

func aliasIsDiscovered(t *testing.T, d *frontDoor) {
	found := discovery.NewDiscoveryClient(d.typed.Discovery().RESTClient())
	eventually(t, "it is discovered", func() error {
		groups, resources, failed, err := found.GroupsAndMaybeResources()
		if err != nil {
			return err
		}
		for _, g := range groups.Groups {
			if g.Name == metricsV1.Group && g.PreferredVersion.Version != metricsV1.Version {
				return fmt.Errorf("the group is %v", g)
			}
		}
		list := resources[metricsV1]
		if list == nil || failed[metricsV1] != nil || list.GroupVersion != metricsV1.String() {
			return fmt.Errorf("it has %v, %w", list, failed[metricsV1])
		}
		kinds := map[string]string{}
		for _, r := range list.APIResources {
			kinds[r.Name] = r.Kind
			if r.Version != "" && r.Version != metricsV1.Version {
				return fmt.Errorf("%s is of version %q", r.Name, r.Version)
			}
		}
		if kinds["nodes"] != "NodeMetrics" || kinds["pods"] != "PodMetrics" || len(kinds) != 2 {
			return fmt.Errorf("the resources are %v", kinds)
		}
		return nil
	})
}

func aliasIsDescribed(t *testing.T, d *frontDoor) {
	type operation struct {
		GVK struct{ Group, Version, Kind string } `json:"x-kubernetes-group-version-kind"`
	}
	type document struct {
		Paths map[string]map[string]json.RawMessage
	}
	checked := func(raw []byte) error {
		var doc document
		if err := json.Unmarshal(raw, &doc); err != nil {
			return err
		}
		path := doc.Paths["/apis/metrics.k8s.io/v1/nodes"]
		if path == nil {
			return errors.New("no /apis/metrics.k8s.io/v1/nodes")
		}
		var get operation
		if err := json.Unmarshal(path["get"], &get); err != nil {
			return err
		}
		if get.GVK.Version != "v1" || get.GVK.Kind != "NodeMetrics" {
			return fmt.Errorf("the operation is of %v", get.GVK)
		}
		return nil
	}
	for what, path := range map[string]string{"v3": "/openapi/v3/apis/metrics.k8s.io/v1", "v2": "/openapi/v2"} {
		eventually(t, what, func() error {
			raw, err := d.typed.Discovery().RESTClient().Get().AbsPath(path).SetHeader("Accept", "application/json").Do(t.Context()).Raw()
			if err != nil {
				return err
			}
			return checked(raw)
		})
	}
	eventually(t, "v2 as protobuf", func() error {
		merged, err := d.typed.Discovery().OpenAPISchema()
		if err != nil {
			return err
		}
		for _, path := range merged.GetPaths().GetPath() {
			if path.GetName() == "/apis/metrics.k8s.io/v1/nodes" {
				return nil
			}
		}
		return errors.New("no /apis/metrics.k8s.io/v1/nodes")
	})
	expect(t, d, `(?s)GROUP: +metrics.k8s.io\s+KIND: +NodeMetrics\s+VERSION: +v1\s.*usage\s+<map`, "explain", "nodes", "--api-version=metrics.k8s.io/v1")
}

// aliasIsRead reads with the generated client of v1. It decodes objects by their apiVersion and kind.
func aliasIsRead(t *testing.T, d *frontDoor, media string) {
	config := rest.CopyConfig(d.config)
	config.ContentType, config.AcceptContentTypes = media, media
	c := must[metricsclient.Interface](t)(metricsclient.NewForConfig(config)).MetricsV1()
	nodes, err := c.NodeMetricses().List(t.Context(), metav1.ListOptions{LabelSelector: "zone=attic"})
	if err != nil || len(nodes.Items) != 1 || nodes.Items[0].Usage.Memory().Value() != 300<<20 {
		t.Fatalf("List of nodes with the label = %v, %v; want one with 300 MiB", nodes, err)
	}
	if none, err := c.NodeMetricses().List(t.Context(), metav1.ListOptions{LabelSelector: "zone=cellar"}); err != nil || len(none.Items) != 0 {
		t.Errorf("List of nodes with another label = %v, %v; want none", none, err)
	}
	node, err := c.NodeMetricses().Get(t.Context(), "n1", metav1.GetOptions{})
	if err != nil || node.Usage.Cpu().MilliValue() < 200 {
		t.Errorf("Get of a node = %v, %v; want at least 200m CPU", node, err)
	}
	pod, err := c.PodMetricses("shop").Get(t.Context(), "web-1", metav1.GetOptions{})
	if err != nil || len(pod.Containers) != 1 || pod.Containers[0].Usage.Memory().Value() != 64<<20 || pod.Window.Duration <= 0 {
		t.Errorf("Get of a pod = %v, %v; want one container with 64 MiB and a window", pod, err)
	}
	if _, err := c.NodeMetricses().Get(t.Context(), "n2", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("Get of a node that does not exist = %v, want NotFound", err)
	}
	if _, err := c.NodeMetricses().List(t.Context(), metav1.ListOptions{FieldSelector: "spec.x=y"}); !apierrors.IsBadRequest(err) {
		t.Errorf("a field that it does not know: %v, want its 400", err)
	}
	if _, err := c.NodeMetricses().Watch(t.Context(), metav1.ListOptions{}); !apierrors.IsMethodNotSupported(err) {
		t.Errorf("a watch: %v, want its 405", err)
	}
}

// aliasInEveryForm checks the bytes: no form contains v1beta1, and the rest equals v1beta1's response.
func aliasInEveryForm(t *testing.T, d *frontDoor) {
	web := must[*http.Client](t)(rest.HTTPClientFor(d.config))
	get := func(path, accept string) (string, string) {
		t.Helper()
		r := must[*http.Request](t)(http.NewRequestWithContext(t.Context(), http.MethodGet, d.config.Host+"/apis/metrics.k8s.io/"+path, nil))
		r.Header.Set("Accept", accept)
		resp := must[*http.Response](t)(web.Do(r))
		defer resp.Body.Close()
		body := must[[]byte](t)(io.ReadAll(io.LimitReader(resp.Body, 1<<20)))
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("GET %s as %s = %s %s, want 200", path, accept, resp.Status, body)
		}
		return string(body), resp.Header.Get("Content-Type")
	}
	const table, protobuf = "application/json;as=Table;v=v1;g=meta.k8s.io", "application/vnd.kubernetes.protobuf"
	for _, path := range []string{"nodes", "nodes/n1", "pods", "namespaces/shop/pods", "namespaces/shop/pods/web-1"} {
		for _, accept := range []string{"application/json", table, protobuf, "application/yaml;q=0.5, application/json"} {
			got, media := get("v1/"+path, accept)
			of, ofMedia := get("v1beta1/"+path, accept)
			if media != ofMedia {
				t.Errorf("GET %s as %s: Content-Type = %s, want v1beta1's %s", path, accept, media, ofMedia)
			}
			// The objects in its Tables are metadata, which have no version of the group.
			if accept != table && (!strings.Contains(of, "metrics.k8s.io/v1beta1") || !strings.Contains(got, "metrics.k8s.io/v1")) || strings.Contains(got, "v1beta1") {
				t.Errorf("GET %s as %s = %q, want v1 instead of v1beta1 in %q", path, accept, got, of)
			}
			// Between two scrapes the two are the same but for the version. Lengths in protobuf differ with it.
			if accept != protobuf {
				eventually(t, "the rest of "+path+" is the same", func() error {
					got, _ := get("v1/"+path, accept)
					of, _ := get("v1beta1/"+path, accept)
					if strings.ReplaceAll(of, "metrics.k8s.io/v1beta1", "metrics.k8s.io/v1") != got {
						return fmt.Errorf("%s, and v1beta1 is %s", got, of)
					}
					return nil
				})
			}
		}
	}
}

func aliasByKubectl(t *testing.T, d *frontDoor) {
	expect(t, d, `(?s)/apis/metrics.k8s.io/v1/nodes.*\nn1 +2[456]\dm +1[23]% +300Mi +7%`, "top", "node", "-v=6")
	expect(t, d, `(?m)^web-1 +(9\d|1[01]\d)m +64Mi`, "top", "pod", "-n", "shop", "-l", "app=web")
	expect(t, d, `(?m)^shop +web-1 +main +(9\d|1[01]\d)m +64Mi`, "top", "pod", "-A", "--containers")
	expect(t, d, `(?m)^NAME +CPU +MEMORY +WINDOW\s+n1 +\d+n +\S+ +\d+(\.\d+)?s`, "get", "nodes.v1.metrics.k8s.io")
	expect(t, d, `(?m)^apiVersion: metrics.k8s.io/v1$`, "get", "pods.v1.metrics.k8s.io", "-n", "shop", "web-1", "-o", "yaml")
	expect(t, d, `"apiVersion": "metrics.k8s.io/v1"`, "get", "nodes.v1.metrics.k8s.io", "-o", "json")
	if _, err := d.kubectl("", "delete", "nodes.v1.metrics.k8s.io", "n1"); err == nil || !strings.Contains(err.Error(), "does not allow this method") && !strings.Contains(err.Error(), "v1beta1") {
		t.Errorf("kubectl delete = %v, want an error without v1beta1", err)
	}
}
