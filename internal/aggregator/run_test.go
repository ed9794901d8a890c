package aggregator

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"portico.dev/internal/httpengine/enginetest"
	"portico.dev/internal/pki"
)

// parallelTests run at once, unless -parallel is given. They are more than the processors, because most of them wait.
const parallelTests = "6"

func TestMain(m *testing.M) {
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		if err := f.Value.Set(parallelTests); err != nil {
			panic(err)
		}
	}
	// The tests start a hundred front doors. A third of their CPU time was garbage collection.
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(300)
		debug.SetMemoryLimit(2 << 30)
	}
	goleak.VerifyTestMain(m,
		// The library that rotates audit logs never ends the goroutine that removes old ones (natefinch/lumberjack#56).
		goleak.IgnoreTopFunction("gopkg.in/natefinch/lumberjack%2ev2.(*Logger).millRun"),
		// A timer of k8s.io/apiserver's watch cache, which ends within three seconds.
		goleak.IgnoreTopFunction("k8s.io/apiserver/pkg/storage/cacher.(*watchCache).waitUntilFreshLocked.func2"),
		// A kubelet's certificate manager that was stopped waits for the next rotation first.
		goleak.IgnoreAnyFunction("k8s.io/client-go/util/certificate.(*manager).run"),
		goleak.IgnoreAnyFunction("k8s.io/client-go/util/certificate.(*manager).run.func1"),
	)
}

// open starts a front door on a free port and returns an administrator's configuration and how to stop it.
func open(t *testing.T, dir string, change ...func(*Config)) (client *rest.Config, stop func() error) {
	t.Helper()
	_, client, stop = openFront(t, dir, change...)
	return client, stop
}

// openFront is open with the front door itself.
func openFront(t *testing.T, dir string, change ...func(*Config)) (a *Aggregator, client *rest.Config, stop func() error) {
	t.Helper()
	c := Default()
	c.DataDir, c.SecurePort, c.AccessLog = dir, 0, false
	c.HTTPEngine, c.BackendEngine = enginetest.HTTP(t), enginetest.Backend(t)
	for _, f := range change {
		f(&c)
	}
	a, err := New(c, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	stop = func() error {
		cancel()
		return <-done
	}
	select {
	case <-a.Ready():
	case err := <-done:
		cancel()
		t.Fatal(err)
	case <-time.After(time.Minute):
		t.Fatal("the front door was not ready within a minute, want ready")
	}
	config, err := clientcmd.BuildConfigFromFlags("", c.AdminKubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1 // the tests do not wait for the client's rate limit
	return a, config, stop
}

// fixedPort returns a port for a server that needs a fixed number. It is below the kernel's ephemeral range, so that no other
// process gets it before the server listens or while the server restarts.
func fixedPort(t *testing.T) int {
	t.Helper()
	for range 100 {
		port := 20000 + rand.IntN(10000)
		if l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
			_ = l.Close()
			return port
		}
	}
	t.Fatal("no free port between 20000 and 30000, want one")
	return 0
}

// beside returns the data directory of a further replica with the files that it must share with another replica's directory.
func beside(t *testing.T, other string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "second") // private, unlike the test's directory
	if err := pki.CopyShared(filepath.Join(dir, "pki"), filepath.Join(other, "pki")); err != nil {
		t.Fatal(err)
	}
	return dir
}

func get(t *testing.T, config *rest.Config, path string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, config.Host+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, body := do(t, config, r)
	return res.StatusCode, body
}

func do(t *testing.T, config *rest.Config, r *http.Request) (*http.Response, string) {
	t.Helper()
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	client.Timeout = 20 * time.Second
	res, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	if err != nil {
		t.Fatal(err)
	}
	return res, string(body)
}

// No globals: two front doors in one process neither share nor disturb anything.
func TestTwoFrontDoorsInOneProcessAreIndependent(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	one, stopOne := open(t, filepath.Join(t.TempDir(), "one"))
	two, stopTwo := open(t, filepath.Join(t.TempDir(), "two"))
	if err := stopOne(); err != nil {
		t.Errorf("stopping front door one failed: %v, want no error", err)
	}
	if code, body := get(t, two, "/readyz?verbose"); code != http.StatusOK {
		t.Errorf("/readyz of the other front door = %d\n%s, want 200", code, body)
	}
	if one.Host == two.Host {
		t.Error("both front doors have one address, want two")
	}
	if err := stopTwo(); err != nil {
		t.Errorf("stopping front door two failed: %v, want no error", err)
	}
}

func TestRestartKeepsDataAndKeys(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	dir := t.TempDir()
	config, stop := open(t, dir)
	client := kubernetes.NewForConfigOrDie(config)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	before, err := client.CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	code, body := get(t, config, "/metrics")
	if code != http.StatusOK || !strings.Contains(body, "apiserver_request_total") {
		t.Errorf("status of /metrics = %d, want 200 and apiserver_request_total", code)
	}
	if want := fmt.Sprintf("portico_http_engine_info{engine=%q,side=\"clients\"} 1", enginetest.HTTP(t)); !strings.Contains(body, want) {
		t.Errorf("/metrics has no %s, want one", want)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	again, stop := open(t, dir)
	again.CAData, again.CertData, again.KeyData = config.CAData, config.CertData, config.KeyData
	after, err := kubernetes.NewForConfigOrDie(again).CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{})
	if err != nil {
		t.Fatalf("Get with the credentials of the first start failed: %v, want no error", err)
	}
	if before.UID != after.UID {
		t.Errorf("UID of the namespace default = %s after a restart, want %s", after.UID, before.UID)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestFailedStartReportsTheCauseInOneLine(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	port := taken.Addr().(*net.TCPAddr).Port
	for name, c := range map[string]struct {
		change func(*Config)
		says   string
	}{
		"a port in use":      {func(c *Config) { c.SecurePort = port }, strconv.Itoa(port) + " is in use by another process"},
		"a missing CA file":  {func(c *Config) { c.ClientCAFile = "/nonexistent/ca.crt" }, "--client-ca-file"},
		"an unwritable path": {func(c *Config) { c.DataDir = "/dev/null/data" }, "data directory /dev/null/data cannot be used"},
		"a missing token file": {
			func(c *Config) { c.TokenAuthFile = "/nonexistent/tokens" }, "/nonexistent/tokens",
		},
	} {
		t.Run(name, func(t *testing.T) {
			config := Default()
			config.DataDir, config.SecurePort = t.TempDir(), 0
			c.change(&config)
			a, err := New(config, zap.NewNop())
			if err != nil {
				t.Fatal(err)
			}
			err = a.Run(t.Context())
			if err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "\n") {
				t.Errorf("Run error = %v, want one line with %q", err, c.says)
			}
		})
	}
}
