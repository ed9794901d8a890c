package aggregator

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"portico.dev/internal/httpengine/enginetest"
)

// A front door that waits for etcd reports that on its port, and serves there as soon as etcd answers.
func TestStartReportsWaitingForEtcd(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	sockets, err := os.MkdirTemp("", "p") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(sockets) })
	socket := filepath.Join(sockets, "etcd")
	number := fixedPort(t)
	port := strconv.Itoa(number)
	c := Default()
	c.DataDir, c.SecurePort, c.AccessLog, c.EtcdServers = t.TempDir(), number, false, []string{"unix://" + socket}
	c.HTTPEngine, c.BackendEngine = enginetest.HTTP(t), enginetest.Backend(t)
	a, err := New(c, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	config := &rest.Config{Host: "https://127.0.0.1:" + port, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
	eventually(t, "listening", func() error {
		conn, err := net.Dial("tcp", "127.0.0.1:"+port)
		if err == nil {
			_ = conn.Close()
		}
		return err
	})
	answers := func(path string, want int) error {
		if code, body := get(t, config, path); code != want {
			return fmt.Errorf("%s: %d %s, want %d", path, code, body, want)
		}
		return nil
	}
	for path, want := range map[string]int{
		"/livez": http.StatusOK, "/readyz": http.StatusInternalServerError, "/readyz/startup": http.StatusServiceUnavailable,
		"/healthz": http.StatusInternalServerError, "/api": http.StatusServiceUnavailable, "/metrics": http.StatusServiceUnavailable,
	} {
		if err := answers(path, want); err != nil {
			t.Error(err)
		}
	}
	core := kubernetes.NewForConfigOrDie(config).CoreV1().RESTClient()
	err = core.Get().AbsPath("/api/v1/namespaces/default").MaxRetries(0).Do(t.Context()).Error()
	if seconds, again := apierrors.SuggestsClientDelay(err); !apierrors.IsServiceUnavailable(err) || !again || seconds != 1 {
		t.Errorf("GET while etcd is away = %v, want ServiceUnavailable with Retry-After 1", err)
	}

	startEtcd(t, socket)
	eventually(t, "ready", func() error { return answers("/readyz", http.StatusOK) })
	<-a.Ready()
	admin, err := clientcmd.BuildConfigFromFlags("", c.AdminKubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kubernetes.NewForConfigOrDie(admin).CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
