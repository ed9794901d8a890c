package metricsapi_test

import (
	"context"
	"net"
	"net/http"
	"testing"
	"time"

	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/rest"
	metrics "k8s.io/metrics/pkg/client/clientset/versioned"

	"portico.dev/internal/extserver/metricsapi"
	"portico.dev/internal/pki"
	"portico.dev/pkg/extension"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// everybody authenticates all requests as alice and allows them.
type everybody struct{}

func (everybody) AuthenticateRequest(*http.Request) (user.Info, error) {
	return &user.DefaultInfo{Name: "alice"}, nil
}

func (everybody) Authorize(context.Context, user.Info, *apirequest.RequestInfo) (bool, string, error) {
	return true, "", nil
}

// serve hosts the resources of source and returns a client configuration.
func serve(t *testing.T, source metricsapi.Source) *rest.Config {
	t.Helper()
	ca, err := pki.NewAuthority("test")
	must(t, err)
	cert, key, err := ca.Issue(pki.Leaf{CommonName: "server", Server: true, IPs: []net.IP{net.IPv4(127, 0, 0, 1)}})
	must(t, err)
	pair, err := pki.StaticKeyPair(cert, key)
	must(t, err)
	host, err := extension.New(extension.Config{
		Resources: metricsapi.Resources(source), Authenticator: everybody{}, Authorizer: everybody{},
		BindAddress: "127.0.0.1", GetCertificate: pair.GetCertificate,
	})
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- host.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		must(t, <-done)
	})
	select {
	case <-host.Ready():
	case err := <-done:
		done <- nil
		t.Fatal(err)
	case <-time.After(time.Minute):
		t.Fatal("host is not ready after a minute, want a ready host")
	}
	return &rest.Config{Host: "https://" + host.Address(), TLSClientConfig: rest.TLSClientConfig{CAData: ca.PEM()}}
}

// The clients are the clients of the HorizontalPodAutoscaler and of kubectl top. They prefer protobuf.
func TestMetricsClientsReadBothVersions(t *testing.T) {
	cache := &metricsapi.Cache{}
	span := metricsapi.Span{Timestamp: time.Now(), Window: 15 * time.Second}
	pod := func(name, app string, cores float64) metricsapi.PodUsage {
		return metricsapi.PodUsage{Namespace: "shop", Name: name, Labels: map[string]string{"app": app}, Span: span,
			Containers: []metricsapi.ContainerUsage{{Name: "main", Usage: metricsapi.Usage{Cores: cores, WorkingSet: 64 << 20}}}}
	}
	cache.Publish(metricsapi.Measurement{
		Nodes: []metricsapi.NodeUsage{{Name: "n1", Labels: map[string]string{"zone": "a"}, Usage: metricsapi.Usage{Cores: 1.5, WorkingSet: 1 << 30}, Span: span}},
		Pods:  []metricsapi.PodUsage{pod("web-1", "web", 0.25), pod("web-2", "web", 0.75), pod("db-0", "db", 1)},
	})
	config := serve(t, cache)
	client, err := metrics.NewForConfig(config)
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()

	pods, err := client.MetricsV1().PodMetricses("shop").List(ctx, metav1.ListOptions{LabelSelector: "app=web"})
	must(t, err)
	sum := int64(0)
	for _, p := range pods.Items {
		sum += p.Containers[0].Usage.Cpu().MilliValue()
		if p.Window.Duration != 15*time.Second || p.Timestamp.Unix() != span.Timestamp.Unix() {
			t.Errorf("Pod %s: window = %s, timestamp = %s, want those of the source", p.Name, p.Window.Duration, p.Timestamp)
		}
	}
	if len(pods.Items) != 2 || sum != 1000 {
		t.Errorf("%d Pods use %d millicores, want 2 Pods and 1000 millicores", len(pods.Items), sum)
	}
	beta, err := client.MetricsV1beta1().PodMetricses("").List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=db-0"})
	must(t, err)
	if len(beta.Items) != 1 || beta.Items[0].Containers[0].Usage.Memory().String() != "64Mi" {
		t.Errorf("v1beta1 list of db-0 = %+v, want one item with 64Mi", beta.Items)
	}
	node, err := client.MetricsV1().NodeMetricses().Get(ctx, "n1", metav1.GetOptions{})
	must(t, err)
	if node.Usage.Cpu().String() != "1500m" || node.Labels["zone"] != "a" {
		t.Errorf("node n1 = %+v, want 1500m and zone=a", node)
	}
	if _, err := client.MetricsV1beta1().NodeMetricses().Get(ctx, "n2", metav1.GetOptions{}); err == nil {
		t.Error("Get of an unknown node: error = nil, want an error")
	}
	closeIdle(t, config)
}

// closeIdle closes the idle connections that client-go caches per configuration.
func closeIdle(t *testing.T, config *rest.Config) {
	t.Helper()
	client, err := rest.HTTPClientFor(config)
	must(t, err)
	client.CloseIdleConnections()
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
