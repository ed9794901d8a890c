package extserver

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	metricsv1 "k8s.io/metrics/pkg/apis/metrics/v1"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"portico.dev/internal/pki"
	"portico.dev/pkg/extension"
)

var update = flag.Bool("update", false, "rewrite the golden files")

const nodesV1Path = "/apis/metrics.k8s.io/v1/nodes"

const asAlice = "X-Remote-User: alice"

// awaitMetrics waits for the first window to close.
func (s *running) awaitMetrics(c *http.Client) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if code, _ := s.get(c, "/readyz"); code == http.StatusOK {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			s.t.Fatal("server has no metrics after a minute, want GET /readyz = 200")
		}
	}
}

func TestNodeMetrics(t *testing.T) {
	t.Parallel()
	f := newFrontDoor(t)
	var s *running
	var proxy *http.Client
	for try := 1; ; try++ {
		began := time.Now()
		s = f.start(nil)
		proxy = s.client(f.frontProxies, frontProxyLeaf)
		code, body := s.get(proxy, nodesV1Path, asAlice)
		if code == http.StatusOK && strings.Contains(body, `"items":[]`) {
			break
		}
		// On a busy machine the first window of one second may be over by now.
		if time.Since(began) < time.Second || code != http.StatusOK || try == 5 {
			t.Errorf("GET before the first window = %d %s, want 200 with an empty list", code, body)
			break
		}
		must(t, s.stop())
	}
	s.awaitMetrics(proxy)

	var list metricsv1.NodeMetricsList
	_, body := s.get(proxy, nodesV1Path, asAlice)
	must(t, json.Unmarshal([]byte(body), &list))
	if list.Kind != "NodeMetricsList" || list.APIVersion != "metrics.k8s.io/v1" || len(list.Items) != 1 {
		t.Fatalf("list = %s, want a NodeMetricsList of metrics.k8s.io/v1 with 1 item", body)
	}
	m := list.Items[0]
	if m.Name != "this-node" || m.Labels["zone"] != "attic" || m.Usage.Memory().Value() == 0 || m.Window.Duration <= 0 || time.Since(m.Timestamp.Time) > time.Minute {
		t.Errorf("metrics = %s, want recent usage of this-node with its labels", body)
	}
	if !regexp.MustCompile(`"cpu":"\d+[num]?"`).MatchString(body) || !regexp.MustCompile(`"memory":"\d+[KM]i"`).MatchString(body) {
		t.Errorf("quantities = %s, want the units of metrics-server", body)
	}

	for query, want := range map[string]int{
		"labelSelector=zone%3Dattic": 1, "labelSelector=zone%3Dcellar": 0,
		"fieldSelector=metadata.name%3Dthis-node": 1, "fieldSelector=metadata.name%3Dother": 0,
	} {
		var list metricsv1.NodeMetricsList
		_, body := s.get(proxy, nodesV1Path+"?"+query, asAlice)
		must(t, json.Unmarshal([]byte(body), &list))
		if len(list.Items) != want {
			t.Errorf("list with %s has %d items, want %d", query, len(list.Items), want)
		}
	}
	if code, _ := s.get(proxy, nodesV1Path+"?fieldSelector=status.phase%3DRunning", asAlice); code != http.StatusBadRequest {
		t.Errorf("GET with an unknown field selector = %d, want 400", code)
	}
	if code, body := s.get(proxy, nodesV1Path+"?watch=true", asAlice); code != http.StatusMethodNotAllowed {
		t.Errorf("GET with watch=true = %d %s, want 405", code, body)
	}
	if code, body := s.get(proxy, nodesV1Path+"/other", asAlice); code != http.StatusNotFound {
		t.Errorf("GET of an unknown node = %d %s, want 404", code, body)
	}
}

// TestGeneratedTypesDecodeProtobuf reads both versions with the generated code of the real types, as kubectl top does.
func TestGeneratedTypesDecodeProtobuf(t *testing.T) {
	t.Parallel()
	f := newFrontDoor(t)
	s := f.start(nil)
	proxy := s.client(f.frontProxies, frontProxyLeaf)
	s.awaitMetrics(proxy)
	scheme := runtime.NewScheme()
	must(t, metricsv1.AddToScheme(scheme))
	must(t, metricsv1beta1.AddToScheme(scheme))
	decoder := protobuf.NewSerializer(scheme, scheme)
	const accept = "Accept: application/vnd.kubernetes.protobuf, */*"
	decode := func(path string) runtime.Object {
		_, body := s.get(proxy, path, asAlice, accept)
		o, _, err := decoder.Decode([]byte(body), nil, nil)
		must(t, err)
		return o
	}
	if l, ok := decode(nodesV1Path).(*metricsv1.NodeMetricsList); !ok || len(l.Items) != 1 || l.Items[0].Name != "this-node" || l.Items[0].Usage.Cpu().IsZero() {
		t.Errorf("v1 list = %+v, want usage of this-node", l)
	}
	if l, ok := decode("/apis/metrics.k8s.io/v1beta1/nodes").(*metricsv1beta1.NodeMetricsList); !ok || len(l.Items) != 1 || l.Items[0].Usage.Memory().IsZero() {
		t.Errorf("v1beta1 list = %+v, want 1 item with memory", l)
	}
	if m, ok := decode("/apis/metrics.k8s.io/v1beta1/nodes/this-node").(*metricsv1beta1.NodeMetrics); !ok || m.Labels["zone"] != "attic" {
		t.Errorf("v1beta1 object = %+v, want the label zone=attic", m)
	}
}

func TestTableMatchesMetricsServer(t *testing.T) {
	t.Parallel()
	f := newFrontDoor(t)
	s := f.start(nil)
	proxy := s.client(f.frontProxies, frontProxyLeaf)
	s.awaitMetrics(proxy)
	_, body := s.get(proxy, nodesV1Path, asAlice, "Accept: application/json;as=Table;v=v1;g=meta.k8s.io")
	var table metav1.Table
	must(t, json.Unmarshal([]byte(body), &table))
	var columns []string
	for _, c := range table.ColumnDefinitions {
		columns = append(columns, c.Name+":"+c.Type+":"+c.Format)
	}
	if got := strings.Join(columns, " "); got != "Name:string:name cpu:string:quantity memory:string:quantity Window:string:duration" {
		t.Errorf("columns = %s, want the columns of metrics-server", got)
	}
	if len(table.Rows) != 1 || table.Rows[0].Cells[0] != "this-node" {
		t.Fatalf("rows = %s, want one row for this-node", body)
	}
	// CPU is in nanocores. resource.Quantity prints a larger unit where the value allows it.
	cpu, err := resource.ParseQuantity(table.Rows[0].Cells[1].(string))
	if err != nil || cpu.Format != resource.DecimalSI || cpu.Sign() <= 0 {
		t.Errorf("ParseQuantity of the CPU cell: error = %v, want a positive decimal quantity in %s", err, body)
	}
}

func TestGoldenDocuments(t *testing.T) {
	f := newFrontDoor(t)
	s := f.start(nil)
	proxy := s.client(f.frontProxies, frontProxyLeaf)
	for file, path := range map[string]string{
		"discovery-groups.json":    "/apis",
		"discovery-resources.json": "/apis/metrics.k8s.io/v1beta1",
		"openapi-v3.json":          "/openapi/v3/apis/metrics.k8s.io/v1",
		"openapi-v2.json":          "/openapi/v2",
	} {
		code, body := s.get(proxy, path, asAlice)
		if code != http.StatusOK {
			t.Errorf("GET %s = %d, want 200", path, code)
		}
		golden(t, file, body)
	}
	_, body := s.get(proxy, "/apis", asAlice, "Accept: application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
	golden(t, "discovery-aggregated.json", body)
}

func golden(t *testing.T, name, body string) {
	t.Helper()
	var v any
	must(t, json.Unmarshal([]byte(body), &v))
	got, err := json.MarshalIndent(v, "", "  ")
	must(t, err)
	file := filepath.Join("testdata", name)
	if *update {
		must(t, os.MkdirAll("testdata", 0o755))
		must(t, os.WriteFile(file, append(got, '\n'), 0o644))
		return
	}
	want, err := os.ReadFile(file)
	must(t, err)
	if string(want) != string(got)+"\n" {
		t.Errorf("%s differs (run with -update to rewrite); got:\n%s\nwant:\n%s", file, got, want)
	}
}

func TestTrustedFrontProxies(t *testing.T) {
	f := newFrontDoor(t)
	s := f.start(nil)
	other, err := pki.NewAuthority("stranger")
	must(t, err)
	for _, c := range []struct {
		situation string
		client    *http.Client
		headers   []string
		want      int
	}{
		{"front proxy", s.client(f.frontProxies, frontProxyLeaf), []string{asAlice}, 200},
		{"headers without a certificate", s.client(nil, pki.Leaf{}), []string{asAlice}, 401},
		{"headers of system:masters without a certificate", s.client(nil, pki.Leaf{}), []string{"X-Remote-User: root", "X-Remote-Group: system:masters"}, 401},
		{"headers with the certificate of another authority", s.client(other, frontProxyLeaf), []string{asAlice}, 401},
		{"headers with a front-proxy certificate of another name", s.client(f.frontProxies, pki.Leaf{CommonName: "mallory", Client: true}), []string{asAlice}, 401},
		{"headers with a front-proxy certificate for servers", s.client(f.frontProxies, pki.Leaf{CommonName: "front-proxy-client", Server: true}), []string{asAlice}, 401},
		{"front proxy without a user", s.client(f.frontProxies, frontProxyLeaf), []string{"X-Remote-Group: system:masters"}, 401},
		{"client certificate", s.client(f.clients, pki.Leaf{CommonName: "carol", Client: true}), nil, 200},
		{"nothing at all", s.client(nil, pki.Leaf{}), nil, 401},
		{"good token", s.client(nil, pki.Leaf{}), []string{"Authorization: Bearer token-of-dave"}, 200},
		{"bad token", s.client(nil, pki.Leaf{}), []string{"Authorization: Bearer stolen"}, 401},
	} {
		t.Run(c.situation, func(t *testing.T) {
			if code, body := s.get(c.client, nodesV1Path, c.headers...); code != c.want {
				t.Errorf("answered %d, want %d: %s", code, c.want, body)
			}
		})
	}
	// The server ignores identity headers of a client certificate. The request is carol's.
	asked := make(chan string, 10)
	f.set(func() {
		f.allow = func(s authorizationv1.SubjectAccessReviewSpec) bool { asked <- s.User; return true }
	})
	carol := s.client(f.clients, pki.Leaf{CommonName: "carol", Client: true})
	if code, body := s.get(carol, "/version", "X-Remote-User: root", "X-Remote-Group: system:masters"); code != http.StatusOK {
		t.Fatalf("GET /version of carol = %d, want 200: %s", code, body)
	}
	if who := <-asked; who != "carol" {
		t.Errorf("user of the request = %q, want carol", who)
	}
}

func TestRequestsNeedAccessReview(t *testing.T) {
	f := newFrontDoor(t)
	var specs []string
	f.allow = func(s authorizationv1.SubjectAccessReviewSpec) bool { specs = append(specs, describe(s)); return false }
	s := f.start(nil)
	proxy := s.client(f.frontProxies, frontProxyLeaf)
	code, body := s.get(proxy, nodesV1Path+"/this-node", asAlice, "X-Remote-Group: dev")
	if code != http.StatusForbidden || !strings.Contains(body, `"reason":"Forbidden"`) ||
		!strings.Contains(body, `nodes.metrics.k8s.io \"this-node\" is forbidden: User \"alice\" cannot get resource \"nodes\" in API group \"metrics.k8s.io\" at the cluster scope`) {
		t.Errorf("GET without rights = %d %s, want 403 with the message of kube-apiserver", code, body)
	}
	for range 3 { // The result is cached for ten seconds.
		s.get(proxy, "/openapi/v3", "X-Remote-User: system:aggregator")
	}
	// A front door's probe causes no access review.
	if code, _ := s.get(proxy, "/apis/metrics.k8s.io/v1", "X-Remote-User: system:kube-aggregator", "X-Remote-Group: system:masters"); code != http.StatusOK {
		t.Errorf("GET as the front door's probe = %d, want 200", code)
	}
	want := []string{"alice get nodes.metrics.k8s.io/v1 this-node", "system:aggregator get /openapi/v3"}
	f.set(func() {
		if strings.Join(specs, "\n") != strings.Join(want, "\n") {
			t.Errorf("access reviews = %q, want %q", specs, want)
		}
	})
}

func TestRegistration(t *testing.T) {
	f := newFrontDoor(t)
	s := f.start(nil)
	service := f.appliedAt("/api/v1/namespaces/kube-system/services/portico-extserver")
	if spec, _ := service["spec"].(map[string]any); spec["type"] != "ExternalName" || spec["externalName"] != "localhost" {
		t.Errorf("Service = %v, want an ExternalName of localhost", service)
	}
	for version, priority := range map[string]float64{"v1": 100, "v1beta1": 90} {
		o := f.appliedAt("/apis/apiregistration.k8s.io/v1/apiservices/" + version + ".metrics.k8s.io")
		spec, _ := o["spec"].(map[string]any)
		ref, _ := spec["service"].(map[string]any)
		bundle, err := base64.StdEncoding.DecodeString(spec["caBundle"].(string))
		must(t, err)
		if spec["versionPriority"] != priority || spec["groupPriorityMinimum"] != 100.0 || ref["name"] != "portico-extserver" {
			t.Errorf("APIService of %s = %v, want priority %v and the Service portico-extserver", version, o, priority)
		}
		if string(bundle) != string(s.server.CABundle()) || !strings.HasSuffix(s.server.Address(), fmt.Sprintf(":%v", ref["port"])) {
			t.Errorf("APIService of %s: port = %v, want the port of %s and the server's caBundle", version, ref["port"], s.server.Address())
		}
	}
}

func TestFailedStartReportsTheCause(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes seconds")
	}
	for _, c := range []struct {
		situation string
		prepare   func(*frontDoor, *Options)
		want      string
	}{
		{"may not read the trust ConfigMap", func(f *frontDoor, _ *Options) { f.refuse["configmaps"] = http.StatusForbidden },
			"extension-apiserver-authentication-reader"},
		{"may not register", func(f *frontDoor, _ *Options) { f.refuse["apiservices"] = http.StatusForbidden }, "extserver manifests"},
		{"namespace that is not there", func(f *frontDoor, _ *Options) { f.refuse["namespaces/kube-system/services"] = http.StatusNotFound }, "404"},
		{"node name that is none", func(_ *frontDoor, o *Options) { o.NodeName = "Not A Name" }, "--node-name"},
		{"port in use", func(f *frontDoor, o *Options) { o.Port = f.server.Listener.Addr().(*net.TCPAddr).Port }, "--secure-port"},
		{"certificate without key", func(_ *frontDoor, o *Options) { o.CertFile = "x" }, "--tls-private-key-file"},
		{"no procfs", func(_ *frontDoor, o *Options) { o.Metrics.ProcPath = "/nowhere" }, "procfs"},
		{"loopback address to advertise", func(_ *frontDoor, o *Options) { o.AdvertiseAddresses = []string{"127.0.0.1"} }, "loopback"},
	} {
		t.Run(c.situation, func(t *testing.T) {
			t.Parallel()
			f := newFrontDoor(t)
			client, err := LoadClient(f.kubeconfig())
			must(t, err)
			o := Options{Options: extension.Options{Client: client, BindAddress: "127.0.0.1", Register: true}, NodeName: "this-node"}
			c.prepare(f, &o)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			server, err := New(o)
			if err == nil {
				err = server.Run(ctx)
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want it to say %q", err, c.want)
			}
		})
	}
}

func TestGivenCertificateIsServedAndRegistered(t *testing.T) {
	f := newFrontDoor(t)
	dir := t.TempDir()
	certPEM, keyPEM, err := f.serving.Issue(pki.Leaf{CommonName: "given", DNSNames: []string{"portico-extserver.kube-system.svc"}, Server: true})
	must(t, err)
	write := func(name string, data []byte) string {
		file := filepath.Join(dir, name)
		must(t, os.WriteFile(file, data, 0o600))
		return file
	}
	s := f.start(func(o *Options) {
		o.CertFile, o.KeyFile, o.CAFile = write("tls.crt", certPEM), write("tls.key", keyPEM), write("ca.crt", f.serving.PEM())
	})
	if code, body := s.get(s.client(f.frontProxies, frontProxyLeaf), "/apis", asAlice); code != http.StatusOK {
		t.Errorf("GET /apis with a given certificate = %d %s, want 200", code, body)
	}
	o := f.appliedAt("/apis/apiregistration.k8s.io/v1/apiservices/v1.metrics.k8s.io")
	if got := o["spec"].(map[string]any)["caBundle"]; got != base64.StdEncoding.EncodeToString(f.serving.PEM()) {
		t.Errorf("caBundle = %v, want the given CA", got)
	}
}

func TestSeparateKubeconfigs(t *testing.T) {
	f, reviewer := newFrontDoor(t), newFrontDoor(t)
	reviewer.allow = asGroup("dev")
	other, err := LoadClient(reviewer.kubeconfig())
	must(t, err)
	s := f.start(func(o *Options) { o.AuthorizationClient = other })
	proxy := s.client(f.frontProxies, frontProxyLeaf)
	if code, _ := s.get(proxy, "/apis", asAlice); code != http.StatusForbidden {
		t.Errorf("GET /apis without the group = %d, want 403", code)
	}
	if code, _ := s.get(proxy, "/apis", asAlice, "X-Remote-Group: dev"); code != http.StatusOK {
		t.Errorf("GET /apis with the group dev = %d, want 200", code)
	}
}
