package clients

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"portico.dev/e2e/programs"
	"portico.dev/internal/pki"
	"portico.dev/internal/run/freeport"
)

// testEnv is a front door on a fixed port, an extension server with a data file, and the clients of both.
type testEnv struct {
	t    *testing.T
	dir  string // logs and everything else; kept when the test fails
	port string

	old, next *pki.Authority // the signers of the front door's certificate
	frontDoor *programs.Process
	backend   *programs.Process
	config    *rest.Config // an administrator's
	typed     kubernetes.Interface
	dynamic   dynamic.Interface

	mu     sync.Mutex // guards queues
	queues map[string]int
}

func newTestEnv(t *testing.T) *testEnv {
	t.Helper()
	dir, err := os.MkdirTemp("", "portico-clients-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("what they logged is in %s", dir)
			return
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	w := &testEnv{t: t, dir: dir, port: freePort(t), queues: map[string]int{}}
	w.old, w.next = authority(t, "old"), authority(t, "next")
	w.write(w.t, "ca.crt", append(w.old.PEM(), w.next.PEM()...))
	w.show(w.old)
	w.open()
	w.connect()
	w.register()
	return w
}

// show gives the front door a certificate of an authority.
func (w *testEnv) show(a *pki.Authority) {
	w.t.Helper()
	cert, key, err := a.Issue(pki.Leaf{CommonName: "front", DNSNames: []string{"localhost"}, IPs: []net.IP{net.IPv4(127, 0, 0, 1)}, Server: true})
	if err != nil {
		w.t.Fatal(err)
	}
	w.write(w.t, "tls.key", key)
	w.write(w.t, "tls.crt", cert)
}

// open starts the front door and waits until it is open.
func (w *testEnv) open() {
	w.t.Helper()
	w.frontDoor = w.start(w.t, "front-door", nil, "aggregator", "serve", "--data-dir", "front", "--secure-port", w.port,
		"--access-log=false", "--tls-cert-file", "tls.crt", "--tls-private-key-file", "tls.key").process
	frontDoor := w.frontDoor
	if err := programs.Poll(frontDoor.Exited(), func() error {
		c, err := tls.Dial("tcp", w.address(), w.trusting(w.old, w.next))
		if err != nil {
			return fmt.Errorf("the front door: %w", err)
		}
		return c.Close()
	}); err != nil {
		w.t.Fatal(err)
	}
}

// shut ends the front door as an operator does.
func (w *testEnv) shut() {
	w.t.Helper()
	w.frontDoor.Ended = true
	if code, err := w.frontDoor.Stop(os.Interrupt); err != nil || code != 0 {
		w.t.Fatalf("exit status of the front door = %d, %v; want 0: see %s", code, err, w.path("front-door.log"))
	}
}

func (w *testEnv) address() string { return "127.0.0.1:" + w.port }

// connect makes the administrator's clients.
func (w *testEnv) connect() {
	w.t.Helper()
	if err := programs.Poll(w.frontDoor.Exited(), func() error {
		_, err := os.Stat(w.path("front/admin.kubeconfig"))
		return err
	}); err != nil {
		w.t.Fatal(err)
	}
	made, err := clientcmd.LoadFromFile(w.path("front/admin.kubeconfig"))
	if err != nil {
		w.t.Fatal(err)
	}
	for _, who := range made.AuthInfos {
		w.kubeconfig(w.t, "admin", who)
	}
	if w.config, err = clientcmd.BuildConfigFromFlags("", w.path("admin.kubeconfig")); err != nil {
		w.t.Fatal(err)
	}
	w.config.QPS = -1
	if w.typed, err = kubernetes.NewForConfig(w.config); err != nil {
		w.t.Fatal(err)
	}
	if w.dynamic, err = dynamic.NewForConfig(w.config); err != nil {
		w.t.Fatal(err)
	}
	w.eventually("the front door is ready", func(ctx context.Context) error {
		_, err := w.typed.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		return err
	})
}

// kubeconfig writes a kubeconfig for a user, with the CA of ca.crt.
func (w *testEnv) kubeconfig(t *testing.T, name string, who *api.AuthInfo) string {
	t.Helper()
	c := api.NewConfig()
	c.Clusters["front"] = &api.Cluster{Server: "https://" + w.address(), CertificateAuthority: w.path("ca.crt")}
	c.AuthInfos["somebody"] = who
	c.Contexts["front"] = &api.Context{Cluster: "front", AuthInfo: "somebody"}
	c.CurrentContext = "front"
	file := w.path(name + ".kubeconfig")
	if err := clientcmd.WriteToFile(*c, file); err != nil {
		t.Fatal(err)
	}
	return file
}

func (w *testEnv) path(name string) string { return filepath.Join(w.dir, name) }

func (w *testEnv) write(t *testing.T, name string, data []byte) {
	t.Helper()
	if err := pki.WriteFile(w.path(name), data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// eventually polls until try succeeds, for minutes.
func (w *testEnv) eventually(what string, try func(context.Context) error) {
	w.t.Helper()
	eventually(w.t, what, try)
}

func eventually(t *testing.T, what string, try func(context.Context) error) {
	t.Helper()
	if err := programs.Poll(nil, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		return try(ctx)
	}); err != nil {
		t.Fatalf("%s: condition not met in time: %v, want it met", what, err)
	}
}

var errStill = errors.New("is still there")

func authority(t *testing.T, name string) *pki.Authority {
	t.Helper()
	a, err := pki.NewAuthority(name)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func freePort(t *testing.T) string {
	t.Helper()
	var ports freeport.Ports
	port, err := ports.Free()
	if err != nil {
		t.Fatal(err)
	}
	return strconv.Itoa(port)
}
