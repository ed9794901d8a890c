package thirdparty

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico.dev/e2e/programs"
	"portico.dev/internal/pki"
)

// konnectivity is a konnectivity server and its agent, and how they are reached.
type konnectivity struct {
	dir          string
	name, mode   string // as the flag --mode has it
	tcp          bool   // it listens on TCP with TLS, otherwise on a socket
	port         int    // of that
	agentPort    int
	others       [4]int // ports for health and administration, of server and agent
	authority    *pki.Authority
	log          *os.File
	server, peer *programs.Process // peer is the agent
}

// A real konnectivity server connects to extension servers, kubelets and pods, in all of its modes. Failures of the tunnel are
// reported as such, and failures behind it as without a tunnel.
func TestKonnectivity(t *testing.T) {
	for _, k := range []konnectivity{
		{name: "http-connect-uds", mode: "http-connect"},
		{name: "http-connect-tcp", mode: "http-connect", tcp: true},
		{name: "grpc-uds", mode: "grpc"},
	} {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			k.prepare(t)
			k.startServer(t)
			k.startAgent(t)
			d := startFrontDoor(t, "front-"+k.name, "--egress-selector-config-file", filepath.Join(k.dir, "egress.yaml"),
				"--kubelet-preferred-address-types", "InternalIP", "--kubelet-certificate-authority", filepath.Join(k.dir, "ca.crt"), "--audit-log-path", "audit.log")
			e := &tunnelled{frontDoor: d, konnectivity: &k, port: freePort(t), authority: newAuthority(t, "tunnelled")}
			e.listen(t)
			e.register(t)
			e.awaitServed(t)
			t.Run("kubelet", e.kubelet)
			t.Run("the extension server is gone", e.serverGone)
			t.Run("the agent is gone", e.agentGone)
			t.Run("the konnectivity server is gone", e.konnectivityGone)
			t.Run("the konnectivity server hangs", e.konnectivityHangs)
			t.Run("nothing is left", e.nothingLeft)
		})
	}
}

func (k *konnectivity) prepare(t *testing.T) {
	t.Helper()
	k.dir, k.log, k.authority = t.TempDir(), openLog(t, "konnectivity-"+k.name), newAuthority(t, "konnectivity")
	k.port, k.agentPort = freePort(t), freePort(t)
	for i := range k.others {
		k.others[i] = freePort(t)
	}
	place(t, filepath.Join(k.dir, "ca.crt"), k.authority.PEM())
	for name, leaf := range map[string]pki.Leaf{
		"server": {CommonName: "konnectivity-server", Server: true, DNSNames: []string{"konnectivity.example"}, IPs: []net.IP{net.IPv4(127, 0, 0, 1)}},
		"agent":  {CommonName: "konnectivity-agent", Client: true},
		"client": {CommonName: "system:konnectivity-client", Client: true},
	} {
		cert, key, err := k.authority.Issue(leaf)
		if err != nil {
			t.Fatal(err)
		}
		place(t, filepath.Join(k.dir, name+".crt"), cert)
		place(t, filepath.Join(k.dir, name+".key"), key)
	}
	protocol := map[string]string{"grpc": "GRPC", "http-connect": "HTTPConnect"}[k.mode]
	transport := fmt.Sprintf("uds: {udsName: %s/socket}", k.dir)
	if k.tcp {
		transport = fmt.Sprintf("tcp: {url: \"https://127.0.0.1:%d\", tlsConfig: {caBundle: %[2]s/ca.crt, clientCert: %[2]s/client.crt, clientKey: %[2]s/client.key, tlsServerName: konnectivity.example}}", k.port, k.dir)
	}
	place(t, filepath.Join(k.dir, "egress.yaml"), fmt.Appendf(nil, `apiVersion: apiserver.k8s.io/v1beta1
kind: EgressSelectorConfiguration
egressSelections:
- name: cluster
  connection:
    proxyProtocol: %s
    transport:
      %s
- name: controlplane
  connection: {proxyProtocol: Direct}
`, protocol, transport))
}

func (k *konnectivity) startServer(t *testing.T) {
	t.Helper()
	args := []string{
		"--mode=" + k.mode, "--agent-bind-address=127.0.0.1", fmt.Sprintf("--agent-port=%d", k.agentPort), "--cluster-cert=server.crt", "--cluster-key=server.key", "--cluster-ca-cert=ca.crt",
		fmt.Sprintf("--admin-port=%d", k.others[0]), "--health-bind-address=127.0.0.1", fmt.Sprintf("--health-port=%d", k.others[1]), "--server-id=one",
	}
	if k.tcp {
		args = append(args, "--server-bind-address=127.0.0.1", fmt.Sprintf("--server-port=%d", k.port), "--server-cert=server.crt", "--server-key=server.key", "--server-ca-cert=ca.crt")
	} else {
		args = append(args, "--server-port=0", "--uds-name="+filepath.Join(k.dir, "socket"))
	}
	k.server = k.run(t, "konnectivity-server", args...)
}

func (k *konnectivity) startAgent(t *testing.T) {
	t.Helper()
	k.peer = k.run(t, "konnectivity-agent", "--ca-cert=ca.crt", "--agent-cert=agent.crt", "--agent-key=agent.key", "--proxy-server-host=127.0.0.1",
		fmt.Sprintf("--proxy-server-port=%d", k.agentPort), "--admin-bind-address=127.0.0.1", fmt.Sprintf("--admin-server-port=%d", k.others[2]),
		"--health-server-host=127.0.0.1", fmt.Sprintf("--health-server-port=%d", k.others[3]),
		"--sync-interval=200ms", "--sync-interval-cap=500ms", "--probe-interval=200ms", "--sync-forever")
}

// run starts a program that is killed at the end of the test.
func (k *konnectivity) run(t *testing.T, program string, args ...string) *programs.Process {
	t.Helper()
	p, err := programs.Start(program, k.dir, []string{"HOME=" + k.dir}, k.log, filepath.Join(binaries, program), args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Kill(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// tunnelled is an extension server that accepts connections of its machine, and records whether they came from the agent.
type tunnelled struct {
	*frontDoor
	*konnectivity
	port      int
	authority *pki.Authority
	server    *http.Server

	mu       sync.Mutex
	direct   int // connections that were not made by the agent
	accepted int
}

const (
	tunnelledGroup = "tunnelled.example.com"
	tunnelledName  = "v1." + tunnelledGroup
	tunnelledPath  = "/apis/" + tunnelledGroup + "/v1"
)

func (e *tunnelled) listen(t *testing.T) {
	t.Helper()
	cert, key, err := e.authority.Issue(pki.Leaf{CommonName: "tunnelled", DNSNames: []string{"tunnelled.tunnelled.svc"}, Server: true})
	if err != nil {
		t.Fatal(err)
	}
	pair := must[*pki.KeyPair](t)(pki.StaticKeyPair(cert, key))
	listener := must[net.Listener](t)(net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(e.port))))
	e.server = &http.Server{
		ErrorLog: log.New(io.Discard, "", 0),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			switch r.URL.Path {
			case tunnelledPath:
				fmt.Fprintf(w, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":%q,"resources":[{"name":"things","kind":"Thing","namespaced":false,"singularName":"thing","verbs":["get","list"]}]}`, tunnelledGroup+"/v1")
			case tunnelledPath + "/things":
				fmt.Fprintf(w, `{"kind":"ThingList","apiVersion":%q,"metadata":{"resourceVersion":"1"},"items":[]}`, tunnelledGroup+"/v1")
			default:
				w.WriteHeader(http.StatusNotFound)
			}
		}),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			e.note(c)
			return ctx
		},
	}
	e.server.TLSConfig = pki.ServerConfig(pair)
	server := e.server
	go func() { _ = server.Serve(tls.NewListener(listener, server.TLSConfig)) }() // ends with Close
	t.Cleanup(func() { _ = server.Close() })
}

// note records whether the agent has made a connection: through the tunnel, and not directly.
func (e *tunnelled) note(c net.Conn) {
	byAgent := ownsSocket(e.peer.PID(), c.RemoteAddr().(*net.TCPAddr).Port, c.LocalAddr().(*net.TCPAddr).Port)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.accepted++
	if !byAgent {
		e.direct++
	}
}

// ownsSocket reports whether a process has the connection over IPv4 from a port of this machine to another.
func ownsSocket(pid, from, to int) bool {
	if runtime.GOOS != "linux" {
		return true // unknown
	}
	table, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(table)) {
		fields := strings.Fields(line)
		if len(fields) < 10 || !strings.HasSuffix(fields[1], fmt.Sprintf(":%04X", from)) || !strings.HasSuffix(fields[2], fmt.Sprintf(":%04X", to)) {
			continue
		}
		files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		if err != nil {
			return false
		}
		for _, file := range files {
			if target, err := os.Readlink(file); err == nil && target == "socket:["+fields[9]+"]" {
				return true
			}
		}
	}
	return false
}

func (e *tunnelled) register(t *testing.T) {
	t.Helper()
	ctx, core := t.Context(), e.typed.CoreV1()
	if _, err := core.Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "tunnelled"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := core.Services("tunnelled").Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "tunnelled"}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	port := int32(e.port)
	if _, err := e.aggregator.ApiregistrationV1().APIServices().Create(ctx, &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: tunnelledName},
		Spec: apiregistrationv1.APIServiceSpec{
			Group: tunnelledGroup, Version: "v1", GroupPriorityMinimum: 1000, VersionPriority: 15,
			Service: &apiregistrationv1.ServiceReference{Namespace: "tunnelled", Name: "tunnelled", Port: &port}, CABundle: e.authority.PEM(),
		},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (e *tunnelled) list(ctx context.Context) error {
	return e.typed.Discovery().RESTClient().Get().AbsPath(tunnelledPath + "/things").Do(ctx).Error()
}

func (e *tunnelled) condition(ctx context.Context) (apiregistrationv1.APIServiceCondition, error) {
	a, err := e.aggregator.ApiregistrationV1().APIServices().Get(ctx, tunnelledName, metav1.GetOptions{})
	if err != nil {
		return apiregistrationv1.APIServiceCondition{}, err
	}
	for _, c := range a.Status.Conditions {
		if c.Type == apiregistrationv1.Available {
			return c, nil
		}
	}
	return apiregistrationv1.APIServiceCondition{}, errors.New("no condition Available")
}

// awaitServed waits until the extension server responds, and checks that all connections so far came through the tunnel.
func (e *tunnelled) awaitServed(t *testing.T) {
	t.Helper()
	eventually(t, "the extension server answers", func() error {
		if c, err := e.condition(t.Context()); err != nil || c.Status != apiregistrationv1.ConditionTrue {
			return fmt.Errorf("%s: %s, %w", c.Reason, c.Message, err)
		}
		return e.list(t.Context())
	})
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.accepted == 0 || e.direct > 0 {
		t.Errorf("of %d connections to the extension server, %d were direct, want some and 0", e.accepted, e.direct)
	}
}

// awaitFailure waits until the condition and a request report the failure.
func (e *tunnelled) awaitFailure(t *testing.T, message, condition string) {
	t.Helper()
	eventually(t, "it is told: "+condition, func() error {
		c, err := e.condition(t.Context())
		if err != nil || c.Status != apiregistrationv1.ConditionFalse || !strings.Contains(c.Message, condition) {
			return fmt.Errorf("the condition is %s: %s, %w", c.Status, c.Message, err)
		}
		return nil
	})
	err := e.list(t.Context())
	var status *apierrors.StatusError
	if !errors.As(err, &status) || status.ErrStatus.Code != http.StatusServiceUnavailable || !strings.Contains(err.Error(), message) {
		t.Errorf("a request: %v, want %q", err, message)
	}
}

// kubelet runs the tests of kwok's kubelet through the tunnel.
func (e *tunnelled) kubelet(t *testing.T) {
	k := newKwok(t, e.frontDoor, e.konnectivity.dir, e.konnectivity.authority, e.frontDoor)
	t.Run("logs", k.Logs)
	t.Run("exec", k.Exec)
	t.Run("port-forward", k.Forward)
	t.Run("proxy", k.Proxy)
}

func (e *tunnelled) serverGone(t *testing.T) {
	if err := e.server.Close(); err != nil {
		t.Fatal(err)
	}
	e.awaitFailure(t, "connection refused", "dial tcp: connect: connection refused")
	if c, err := e.condition(t.Context()); err != nil || strings.Contains(c.Message, "tunnel to") {
		t.Errorf("condition with a dead server = %s, %v; want no mention of the tunnel", c.Message, err)
	}
	e.listen(e.frontDoor.t)
	e.awaitServed(t)
}

func (e *tunnelled) agentGone(t *testing.T) {
	if err := e.peer.Kill(); err != nil {
		t.Fatal(err)
	}
	e.awaitFailure(t, "the tunnel to the cluster network refused to connect", "the tunnel to the cluster network refused to connect: ")
	e.startAgent(e.frontDoor.t)
	e.awaitServed(t)
}

func (e *tunnelled) konnectivityGone(t *testing.T) {
	if err := e.konnectivity.server.Kill(); err != nil {
		t.Fatal(err)
	}
	e.awaitFailure(t, "the tunnel to the cluster network cannot be reached", "the tunnel to the cluster network cannot be reached: ")
	// Requests for kubelets behind the tunnel get the same error.
	_, err := e.kubectl("", "logs", "a")
	if err == nil || !strings.Contains(err.Error(), "the kubelet of node n1") || !strings.Contains(err.Error(), "the tunnel to the cluster network cannot be reached") {
		t.Errorf("kubectl logs = %v, want an error about the tunnel", err)
	}
	e.startServer(e.frontDoor.t)
	e.awaitServed(t)
}

// konnectivityHangs stops the server while many requests are sent.
func (e *tunnelled) konnectivityHangs(t *testing.T) {
	pid := e.konnectivity.server.PID()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Kill(pid, syscall.SIGCONT) }() // again, if the test failed
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	eventually(t, "it is stopped", func() error { // which takes a moment
		if err := e.list(ctx); err == nil {
			return errors.New("a request was answered")
		}
		return nil
	})
	var asking sync.WaitGroup
	for range 100 {
		asking.Go(func() {
			if err := e.list(ctx); err == nil {
				t.Error("a request through a hanging konnectivity server succeeded, want an error")
			}
		})
	}
	asking.Wait()
	eventually(t, "it is told", func() error {
		c, err := e.condition(t.Context())
		if err != nil || c.Status != apiregistrationv1.ConditionFalse || !strings.Contains(c.Message, "the tunnel to the cluster network") {
			return fmt.Errorf("the condition is %s: %s, %w", c.Status, c.Message, err)
		}
		return nil
	})
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	e.awaitServed(t)
}

// nothingLeft checks for dials, connections and goroutines after all users of the tunnel have ended.
func (e *tunnelled) nothingLeft(t *testing.T) {
	ctx := t.Context()
	if err := e.aggregator.ApiregistrationV1().APIServices().Delete(ctx, tunnelledName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "nothing is left", func() error {
		text, err := e.kubectl("", "get", "--raw", "/metrics")
		if err != nil {
			return err
		}
		if !strings.Contains(text, `portico_egress_pending_dials{network="cluster"} 0`) {
			return errors.New("dials are under way")
		}
		if !strings.Contains(text, `portico_egress_connections{network="cluster"} 0`) {
			return errors.New("connections are open")
		}
		stacks, err := e.kubectl("", "get", "--raw", "/debug/pprof/goroutine?debug=2")
		if err != nil {
			return err
		}
		for _, what := range []string{"egress.(*tunnel)", "egress.(*stream)", "internal/transport.(*http2Client)"} {
			if n := strings.Count(stacks, what); n > 0 {
				return fmt.Errorf("goroutines: %s %d times", what, n)
			}
		}
		return nil
	})
}
