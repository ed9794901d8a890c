package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"
	"golang.org/x/net/http2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"

	"portico.dev/internal/clients"
	"portico.dev/internal/gateway/adopter"
	"portico.dev/internal/gateway/adoption"
	"portico.dev/internal/run/freeport"
	"portico.dev/internal/tools/doctor"
	"portico.dev/pkg/apitest"
)

// cluster is an API server, here a front door in the place of a kube-apiserver, with a gateway.
type cluster struct {
	*apitest.Env
	t          *testing.T
	client     *clients.Client
	aggregator *aggregatorclient.Clientset
	gateway    adoption.Service
	adopter    *adopter.Adopter
}

const testTimeout = time.Minute

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{Env: apitest.Start(t), t: t}
	var err error
	if c.client, err = clients.New(c.Config); err != nil {
		t.Fatal(err)
	}
	if c.aggregator, err = aggregatorclient.NewForConfig(c.Config); err != nil {
		t.Fatal(err)
	}
	_, err = c.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "portico-gateway"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// running is one replica of a gateway.
type running struct {
	*Gateway
	stop func()
}

// start starts a replica. The first one makes the Service, by which the API server reaches whichever listens on its port.
func (c *cluster) start(change ...func(*Config)) *running {
	c.t.Helper()
	config := Default()
	config.Kubeconfig, config.Namespace, config.BindAddress, config.SecurePort, config.ShutdownDelay = c.WriteKubeconfig(), "portico-gateway", "127.0.0.1", 0, 0
	config.MetricsBindAddress = "127.0.0.1:0"
	if c.gateway.Port == 0 {
		c.gateway = adoption.Service{Namespace: "portico-gateway", Name: "portico-gateway", Port: freePort(c.t)}
		_, err := c.client.CoreV1().Services(c.gateway.Namespace).Create(c.t.Context(), &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: c.gateway.Name},
			Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
		}, metav1.CreateOptions{})
		if err != nil {
			c.t.Fatal(err)
		}
		if c.adopter, err = adopter.New(c.Config, c.gateway, 30*time.Second); err != nil {
			c.t.Fatal(err)
		}
	}
	config.ServicePort, config.SecurePort = c.gateway.Port, int(c.gateway.Port)
	for _, f := range change {
		f(&config)
	}
	g, err := New(config, zaptest.NewLogger(c.t, zaptest.Level(zap.WarnLevel)))
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- g.Run(ctx) }()
	r := &running{Gateway: g}
	stopped := false
	r.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			c.t.Errorf("Run of the gateway = %v, want no error", err)
		}
	}
	c.t.Cleanup(r.stop)
	select {
	case <-g.Ready():
	case err := <-done:
		done <- nil
		c.t.Fatalf("Run of the gateway = %v before it was ready, want ready", err)
	case <-time.After(testTimeout):
		c.t.Fatal("the gateway was not ready in time, want ready")
	}
	eventually(c.t, "the gateway leads and has published its authorities", func() error {
		_, err := c.adopter.PublishedCA(c.t.Context())
		return err
	})
	return r
}

var ports freeport.Ports

// freePort returns a port that all replicas of a gateway are configured with.
func freePort(t *testing.T) int32 {
	t.Helper()
	port, err := ports.Free()
	if err != nil {
		t.Fatal(err)
	}
	return int32(port)
}

func (c *cluster) apiService(name string) *apiregistrationv1.APIService {
	c.t.Helper()
	o, err := c.aggregator.ApiregistrationV1().APIServices().Get(c.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	return o
}

func (c *cluster) trust() map[string]string {
	c.t.Helper()
	cm, err := c.client.CoreV1().ConfigMaps(adoption.TrustNamespace).Get(c.t.Context(), adoption.TrustConfigMap, metav1.GetOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	return cm.Data
}

func (c *cluster) objects(gv schema.GroupVersion, resource string) dynamic.NamespaceableResourceInterface {
	c.t.Helper()
	client, err := dynamic.NewForConfig(c.Config)
	if err != nil {
		c.t.Fatal(err)
	}
	return client.Resource(gv.WithResource(resource))
}

// eventually calls try until it returns no error.
func eventually(t *testing.T, what string, try func() error) {
	t.Helper()
	deadline := time.Now().Add(testTimeout)
	for {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("condition not met in time: %s: %v, want no error", what, err)
		}
		<-time.After(50 * time.Millisecond)
	}
}

func (c *cluster) condition(name string, t apiregistrationv1.APIServiceConditionType, want apiregistrationv1.ConditionStatus) error {
	got, _ := adoption.Condition(c.apiService(name), t)
	if got.Status != want {
		return fmt.Errorf("%s is %s (%s: %s), want %s", t, got.Status, got.Reason, got.Message, want)
	}
	return nil
}

func (c *cluster) adopt(name string) {
	c.t.Helper()
	if changed, err := c.adopter.Adopt(c.t.Context(), name); err != nil || !changed {
		c.t.Fatalf("Adopt(%s) = %t, %v; want a change", name, changed, err)
	}
}

func widget(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": name}}}
}

// The test covers the steps from the installation to the release, with a failed server in between, as the API server and its
// clients see them.
func TestAdoptedServerIsServedUntilReleased(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	backend := c.Backend("adopted.example.com")
	before, trustBefore := c.apiService(backend.APIService), c.trust()
	gateway := c.start()
	namespace := c.Namespace()
	widgets := c.objects(backend.GroupVersion, "widgets").Namespace(namespace)

	c.adopt(backend.APIService)
	if o := c.apiService(backend.APIService); !c.gateway.Fronts(o) || o.Spec.InsecureSkipTLSVerify || len(o.Spec.CABundle) == 0 {
		t.Fatalf("spec after Adopt = %+v, want one with the gateway and its CA", o.Spec)
	}
	roles, role := c.client.RbacV1().ClusterRoles(), c.gateway.AdoptedRole()
	if err := roles.Delete(t.Context(), role, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if changed, err := c.adopter.Adopt(t.Context(), backend.APIService); err != nil || changed {
		t.Errorf("second Adopt = %t, %v; want no change", changed, err)
	}
	if got, err := roles.Get(t.Context(), role, metav1.GetOptions{}); err != nil || len(got.Rules) != 2 || got.Rules[0].ResourceNames[0] != backend.APIService {
		t.Errorf("ClusterRole after it was deleted and the APIService adopted again = %+v, %v, want two rules for %s", got, err, backend.APIService)
	}
	if trust := c.trust(); !strings.Contains(trust["requestheader-allowed-names"], c.gateway.FrontProxyName()) || trust["requestheader-client-ca-file"] == trustBefore["requestheader-client-ca-file"] {
		t.Errorf("trust of extension servers = %q, want the gateway's name and a further CA", trust)
	}
	if _, err := widgets.Create(t.Context(), widget("a"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if backend.Stored(namespace) != 1 {
		t.Errorf("%d objects at the extension server, want 1", backend.Stored(namespace))
	}
	eventually(t, "metrics say that it is adopted, and that its server believes the gateway", func() error {
		text := gateway.scrape(t)
		for _, want := range []string{`portico_gateway_apiservices{state="adopted"} 1`, `portico_gateway_front_proxy_trusted{name="` + backend.APIService + `"} 1`} {
			if !strings.Contains(text, want) {
				return fmt.Errorf("there is no %s", want)
			}
		}
		return nil
	})

	backend.Refuse()
	eventually(t, "the gateway says that the server is dead", func() error {
		return c.condition(backend.APIService, adoption.BackendAvailable, apiregistrationv1.ConditionFalse)
	})
	_, err := widgets.List(t.Context(), metav1.ListOptions{})
	if !apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), "APIService "+backend.APIService+" is unavailable") {
		t.Errorf("List while the server is dead = %v, want ServiceUnavailable with the APIService", err)
	}
	if err := c.condition(backend.APIService, apiregistrationv1.Available, apiregistrationv1.ConditionTrue); err != nil {
		t.Error(err)
	}
	c.reported(gateway, backend.APIService)
	if hop := c.diagnose(backend.APIService); hop != doctor.HopTCP {
		t.Errorf("the doctor blames %q, want the way to the server", hop)
	}
	list, err := c.client.Discovery().ServerResourcesForGroupVersion(backend.GroupVersion.String())
	if err != nil || len(list.APIResources) == 0 || list.APIResources[0].Name != "widgets" {
		t.Errorf("discovery while the server is dead = %+v, %v; want widgets", list, err)
	}
	backend.Heal()
	eventually(t, "the server is back", func() error {
		_, err := widgets.List(t.Context(), metav1.ListOptions{})
		return err
	})
	if err := widgets.Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}

	released, err := c.adopter.Release(t.Context(), backend.APIService)
	if err != nil || !released {
		t.Fatalf("Release = %t, %v; want a change", released, err)
	}
	c.released(before)
	if got := c.trust(); !equality.Semantic.DeepEqual(got, trustBefore) {
		t.Errorf("trust of extension servers after Release = %q, want %q", got, trustBefore)
	}
	eventually(t, "the server is listed directly", func() error { // after the front door has polled it
		_, err := widgets.List(t.Context(), metav1.ListOptions{})
		return err
	})
}

// diagnose returns the hop that the doctor reports as broken, or "".
func (c *cluster) diagnose(name string) string {
	c.t.Helper()
	d, err := doctor.New(doctor.Config{Client: c.Config})
	if err != nil {
		c.t.Fatal(err)
	}
	defer d.Close()
	report, err := d.Examine(c.t.Context(), name)
	if err != nil {
		c.t.Fatal(err)
	}
	if report.Gateway == nil || report.Gateway.Service != c.gateway.String() {
		c.t.Errorf("report of the doctor = %+v, want the gateway", report)
	}
	if report.Broken == nil {
		return ""
	}
	return report.Broken.Hop
}

// released fails unless an APIService is as it was.
func (c *cluster) released(before *apiregistrationv1.APIService) {
	c.t.Helper()
	after := c.apiService(before.Name)
	if !equality.Semantic.DeepEqual(after.Spec, before.Spec) || !equality.Semantic.DeepEqual(after.Annotations, before.Annotations) {
		c.t.Errorf("APIService after Release = %+v %v, want %+v %v", after.Spec, after.Annotations, before.Spec, before.Annotations)
	}
	eventually(c.t, "the gateway's conditions are gone", func() error {
		if after := c.apiService(before.Name); adoption.RemoveConditions(after) {
			return fmt.Errorf("%+v", after.Status.Conditions)
		}
		return nil
	})
}

// reported waits until the gateway reports a dead server as kube-apiserver does without a gateway: by the metrics of the same names
// and labels, which alerts read, and in addition by an Event.
func (c *cluster) reported(gateway *running, name string) {
	c.t.Helper()
	eventually(c.t, "metrics and an Event of the dead server", func() error {
		text := gateway.scrape(c.t)
		for _, want := range []string{`aggregator_unavailable_apiservice{name="` + name + `"} 1`, `aggregator_unavailable_apiservice_total{name="` + name + `",reason="FailedDiscoveryCheck"} `} {
			if !strings.Contains(text, want) {
				return fmt.Errorf("the metrics have no %s", want)
			}
		}
		events, err := c.client.CoreV1().Events(metav1.NamespaceDefault).List(c.t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.kind=APIService,involvedObject.name=" + name + ",reason=BackendUnavailable"})
		if err != nil {
			return err
		}
		for _, e := range events.Items {
			if e.Type == corev1.EventTypeWarning && strings.Contains(e.Message, "FailedDiscoveryCheck") {
				return nil
			}
		}
		return fmt.Errorf("warnings with the reason BackendUnavailable: %+v", events.Items)
	})
}

func (r *running) scrape(t *testing.T) string {
	t.Helper()
	response, err := http.Get("http://" + r.MetricsAddress() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	data, err := io.ReadAll(io.LimitReader(response.Body, 4<<20))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// A server that the gateway does not reach stays as it is.
func TestAdoptRejectsUnreachableServer(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	backend := c.Backend("refused.example.com")
	c.start()
	before := c.apiService(backend.APIService)
	backend.Refuse()
	backend.WaitUnavailable()
	var err error
	if c.adopter, err = adopter.New(c.Config, c.gateway, 10*time.Second); err != nil { // enough for the gateway's verdict on a busy machine
		t.Fatal(err)
	}
	changed, err := c.adopter.Adopt(t.Context(), backend.APIService)
	if err == nil || changed || !strings.Contains(err.Error(), "the gateway says BackendAvailable=False") {
		t.Fatalf("Adopt of a dead server = %t, %v; want no change and BackendAvailable=False", changed, err)
	}
	c.released(before)
}

// A restarted gateway serves the resources of a dead server, and a release needs no gateway.
func TestRestartedGatewayServesDiscoveryOfDeadServer(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	backend := c.Backend("restarted.example.com")
	before := c.apiService(backend.APIService)
	first := c.start()
	c.adopt(backend.APIService)
	backend.Refuse()
	eventually(t, "the gateway notices", func() error {
		return c.condition(backend.APIService, adoption.BackendAvailable, apiregistrationv1.ConditionFalse)
	})
	first.stop()
	second := c.start()
	if known, ok := lookup(second.Discovery.Current(), backend.GroupVersion); !ok || known.Resources[0].Resource != "widgets" {
		t.Errorf("discovery after a restart = %+v, want widgets", known)
	}
	widgets := c.objects(backend.GroupVersion, "widgets").Namespace("default")
	eventually(t, "503 with the cause", func() error {
		_, err := widgets.List(t.Context(), metav1.ListOptions{})
		if !apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), "APIService "+backend.APIService+" is unavailable") {
			return fmt.Errorf("got %w", err)
		}
		return nil
	})
	second.stop()
	backend.Heal()
	eventually(t, "the doctor blames the way to the gateway", func() error { // once the API server has noticed
		if hop := c.diagnose(backend.APIService); hop != "gateway "+doctor.HopTCP {
			return fmt.Errorf("it blames %q", hop)
		}
		return nil
	})
	if released, err := c.adopter.Release(t.Context(), backend.APIService); err != nil || !released {
		t.Fatalf("Release without a gateway = %t, %v; want a change", released, err)
	}
	c.released(before)
	eventually(t, "the server is served directly", func() error {
		_, err := widgets.List(t.Context(), metav1.ListOptions{})
		return err
	})
}

// A hand-written APIService gets the caBundle, and one without a valid server gets a condition with the reason.
func TestDeclaredAdoptionGetsCABundleOrCondition(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	backend := c.Backend("declared.example.com")
	before := c.apiService(backend.APIService)
	c.start()
	client := c.aggregator.ApiregistrationV1().APIServices()
	// The gateway and the API server write conditions at any moment.
	write := func(change func(*apiregistrationv1.APIService) error) {
		t.Helper()
		if err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			o := c.apiService(backend.APIService)
			if err := change(o); err != nil {
				return err
			}
			_, err := client.Update(t.Context(), o, metav1.UpdateOptions{})
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	write(func(o *apiregistrationv1.APIService) error {
		err := c.gateway.Prepare(o)
		o.Spec.Service, o.Spec.CABundle = c.gateway.Reference(), nil
		return err
	})
	eventually(t, "the gateway writes its caBundle, and serves", func() error {
		if len(c.apiService(backend.APIService).Spec.CABundle) == 0 {
			return errors.New("no caBundle")
		}
		_, err := c.objects(backend.GroupVersion, "widgets").Namespace("default").List(t.Context(), metav1.ListOptions{})
		return err
	})

	write(func(o *apiregistrationv1.APIService) error {
		o.Annotations[adoption.OriginalServiceAnnotation] = c.gateway.String()
		return nil
	})
	eventually(t, "an APIService that leads to the gateway itself", func() error {
		got, _ := adoption.Condition(c.apiService(backend.APIService), adoption.BackendAvailable)
		if got.Reason != reasonInvalidOriginal {
			return fmt.Errorf("%+v", got)
		}
		return nil
	})
	write(func(o *apiregistrationv1.APIService) error {
		o.Annotations, o.Spec = before.Annotations, before.Spec
		return nil
	})
	c.released(before)
}

// An API server with 250 requests at once needs one connection: each further one would be a handshake.
func TestOneConnectionCarries250Requests(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start()
	conn, err := tls.Dial("tcp", "127.0.0.1:"+strconv.Itoa(int(c.gateway.Port)), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(testTimeout)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	framer := http2.NewFramer(conn, conn)
	if err := framer.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	f, err := framer.ReadFrame()
	if err != nil {
		t.Fatal(err)
	}
	settings, ok := f.(*http2.SettingsFrame)
	if !ok {
		t.Fatalf("first frame = %v, want SETTINGS", f)
	}
	if streams, _ := settings.Value(http2.SettingMaxConcurrentStreams); streams != maxConcurrentStreams {
		t.Errorf("a connection may have %d streams, want %d", streams, maxConcurrentStreams)
	}
}

// A client that reaches the gateway without the API server gets only health.
func TestG1OnlyTheAPIServerIsServed(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	backend := c.Backend("guarded.example.com")
	c.start()
	c.adopt(backend.APIService)
	defer func() {
		if _, err := c.adopter.Release(t.Context(), backend.APIService); err != nil {
			t.Error(err)
		}
	}()
	direct := *c.Config
	direct.Host = "https://127.0.0.1:" + strconv.Itoa(int(c.gateway.Port))
	direct.TLSClientConfig.CAData, direct.TLSClientConfig.CAFile, direct.TLSClientConfig.Insecure = nil, "", true
	client, err := clients.New(&direct)
	if err != nil {
		t.Fatal(err)
	}
	get := func(path string, headers ...string) (int, error) {
		r := client.Discovery().RESTClient().Get().AbsPath(path)
		for i := 0; i < len(headers); i += 2 {
			r = r.SetHeader(headers[i], headers[i+1])
		}
		code := 0
		err := r.Do(t.Context()).StatusCode(&code).Error()
		return code, err
	}
	list := "/apis/guarded.example.com/v1/namespaces/default/widgets"
	for name, tt := range map[string]struct {
		path    string
		headers []string
		want    int
	}{
		"an administrator's certificate":     {path: list, want: http.StatusUnauthorized},
		"a certificate and identity headers": {list, []string{"X-Remote-User", "root", "X-Remote-Group", "system:masters"}, http.StatusUnauthorized},
		"discovery":                          {path: "/apis", want: http.StatusUnauthorized},
		"the metrics of the gateway":         {path: "/metrics", want: http.StatusUnauthorized},
		"the version":                        {path: "/version", want: http.StatusUnauthorized},
		"health":                             {path: "/readyz", want: http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			if code, err := get(tt.path, tt.headers...); code != tt.want {
				t.Errorf("status of the request = %d, %v; want %d", code, err, tt.want)
			}
		})
	}
	t.Run("an ambiguous path", func(t *testing.T) {
		transport, err := rest.TransportFor(&direct)
		if err != nil {
			t.Fatal(err)
		}
		response, err := transport.RoundTrip(&http.Request{Method: http.MethodGet, Header: http.Header{}, URL: &url.URL{
			Scheme: "https", Host: strings.TrimPrefix(direct.Host, "https://"), Opaque: "/apis/guarded.example.com/v1/%2e%2e/widgets",
		}})
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusBadRequest {
			t.Errorf("status of the request = %s, want 400", response.Status)
		}
	})
}
