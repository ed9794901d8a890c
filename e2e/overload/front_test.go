package overload

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"

	"portico.dev/e2e/programs"
	"portico.dev/internal/pki"
)

// front is a front door in a separate process, with a memory limit.
type front struct {
	process *programs.Process
	address string
	roots   *x509.CertPool
	// The credentials of workers and of attackers.
	admin, node       tls.Certificate
	controller        string // token
	bystander, others string // tokens
}

const (
	// limit is the process's limit, and margin its maximum use above that: allocations between two readings and a collection,
	// the mapped file of etcd, and the program's pages.
	limit, margin = 384 << 20, 96 << 20
	// big is the group-version of a backend with endless responses.
	big = "/apis/big.example.com/v1"
)

// groupVariable names the directory of a control group (version 1 or 2) in which the test may create a child, which needs root.
// The front door then runs in the child, which has the limit, instead of getting the limit as a flag: the kernel kills it above
// the limit.
const groupVariable = "PORTICO_TEST_MEMORY_CGROUP"

// inGroup creates the control group, and returns the command prefix that starts a command in it.
func inGroup(t *testing.T, parent string) []string {
	t.Helper()
	group, err := os.MkdirTemp(parent, "portico-overload-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.Remove(group); err != nil {
			t.Error(err)
		}
	})
	setting := filepath.Join(group, "memory.max")
	if _, err := os.Stat(setting); err != nil {
		setting = filepath.Join(group, "memory.limit_in_bytes")
	}
	if err := os.WriteFile(setting, []byte(strconv.Itoa(limit)), 0o644); err != nil {
		t.Fatal(err)
	}
	return []string{"/bin/sh", "-c", `echo $$ > "$0/cgroup.procs" && exec "$@"`, group}
}

func start(t *testing.T) *front {
	t.Helper()
	dir := t.TempDir()
	tokens := filepath.Join(dir, "tokens.csv")
	if err := os.WriteFile(tokens, []byte("bystander-token,bystander,1,people\nattacker-token,attacker,2,people\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f := &front{bystander: "bystander-token", others: "attacker-token"}
	data := filepath.Join(dir, "data")
	command := []string{filepath.Join(binaries, "aggregator"), "serve", "--secure-port", "0", "--data-dir", data, "--token-auth-file", tokens, "--access-log=false"}
	if group := os.Getenv(groupVariable); group != "" {
		command = append(inGroup(t, group), command...)
	} else {
		command = append(command, "--memory-limit", strconv.Itoa(limit))
	}
	p, err := programs.Start("aggregator serve", dir, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir}, nil, command[0], command[1:]...)
	if err != nil {
		t.Fatal(err)
	}
	f.process = p
	t.Cleanup(func() { p.Show(t) })
	t.Cleanup(func() { p.Finish(t) })
	kubeconfig := filepath.Join(data, "admin.kubeconfig")
	if err := programs.Poll(p.Exited(), func() error { _, err := os.Stat(kubeconfig); return err }); err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	f.address, f.roots = u.Host, x509.NewCertPool()
	f.roots.AppendCertsFromPEM(config.CAData)
	if f.admin, err = tls.X509KeyPair(config.CertData, config.KeyData); err != nil {
		t.Fatal(err)
	}
	f.node = nodeCertificate(t, filepath.Join(data, "pki"))
	client := kubernetes.NewForConfigOrDie(config)
	ctx, cancel := context.WithTimeout(t.Context(), programs.Patience)
	defer cancel()
	everybody := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "everybody"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
	}
	for _, group := range []string{"people", "system:nodes", "system:serviceaccounts:kube-system"} {
		everybody.Subjects = append(everybody.Subjects, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: group})
	}
	if _, err := client.RbacV1().ClusterRoleBindings().Create(ctx, everybody, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "controller"}}
	if _, err := client.CoreV1().ServiceAccounts("kube-system").Create(ctx, account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	token, err := client.CoreV1().ServiceAccounts("kube-system").CreateToken(ctx, "controller", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	f.controller = token.Status.Token
	f.registerBackend(ctx, t, client, aggregatorclient.NewForConfigOrDie(config))
	return f
}

// nodeCertificate returns a kubelet's client certificate.
func nodeCertificate(t *testing.T, dir string) tls.Certificate {
	t.Helper()
	certPEM, err := os.ReadFile(filepath.Join(dir, "client-ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	keyPEM, err := os.ReadFile(filepath.Join(dir, "client-ca.key"))
	if err != nil {
		t.Fatal(err)
	}
	ca, err := pki.ParseAuthority(certPEM, keyPEM)
	if err != nil {
		t.Fatal(err)
	}
	cert, key, err := ca.Issue(pki.Leaf{CommonName: "system:node:n1", Organizations: []string{"system:nodes"}, Client: true})
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

// registerBackend puts a backend behind big.example.com/v1 that answers its resources with bytes without end.
func (f *front) registerBackend(ctx context.Context, t *testing.T, client kubernetes.Interface, services aggregatorclient.Interface) {
	t.Helper()
	ca, err := pki.NewAuthority("backend")
	if err != nil {
		t.Fatal(err)
	}
	cert, key, err := ca.Issue(pki.Leaf{CommonName: "big", DNSNames: []string{"big.default.svc"}, Server: true})
	if err != nil {
		t.Fatal(err)
	}
	pair, err := pki.StaticKeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path == big {
			_, _ = io.WriteString(w, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"big.example.com/v1","resources":[`+
				`{"name":"blobs","singularName":"blob","namespaced":false,"kind":"Blob","verbs":["get","list"]}]}`)
			return
		}
		room := make([]byte, 64<<10)
		for i := range room {
			room[i] = ' '
		}
		for r.Context().Err() == nil {
			if _, err := w.Write(room); err != nil {
				return
			}
		}
	}))
	srv.TLS, srv.EnableHTTP2 = pki.ServerConfig(pair), true
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.StartTLS()
	t.Cleanup(srv.Close)
	t.Cleanup(srv.CloseClientConnections)
	_, text, _ := net.SplitHostPort(srv.Listener.Addr().String())
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	port := int32(n)
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "big"}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
	}
	if _, err := client.CoreV1().Services("default").Create(ctx, service, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	registration := &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: "v1.big.example.com"},
		Spec: apiregistrationv1.APIServiceSpec{
			Group: "big.example.com", Version: "v1", GroupPriorityMinimum: 100, VersionPriority: 100, CABundle: ca.PEM(),
			Service: &apiregistrationv1.ServiceReference{Namespace: "default", Name: "big", Port: &port},
		},
	}
	if _, err := services.ApiregistrationV1().APIServices().Create(ctx, registration, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	admin := f.client(credential{certificate: &f.admin}, true)
	defer admin.CloseIdleConnections()
	if err := programs.Poll(f.process.Exited(), func() error {
		code, _, err := f.get(ctx, admin, credential{}, big)
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("the backend is answered for with %d", code)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// credential is a certificate or a token.
type credential struct {
	certificate *tls.Certificate
	token       string
}

func (f *front) tls(c credential, protocol string) *tls.Config {
	config := &tls.Config{RootCAs: f.roots, ServerName: "127.0.0.1", NextProtos: []string{protocol}}
	if c.certificate != nil {
		config.Certificates = []tls.Certificate{*c.certificate}
	}
	return config
}

func (f *front) client(c credential, h2 bool) *http.Client {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(!h2)
	protocols.SetHTTP2(h2)
	config := f.tls(c, "")
	config.NextProtos = nil
	return &http.Client{Timeout: time.Minute, Transport: &http.Transport{TLSClientConfig: config, Protocols: protocols}}
}

// get returns the code of a complete response, and its Retry-After.
func (f *front) get(ctx context.Context, client *http.Client, c credential, path string) (code int, after string, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+f.address+path, nil)
	if err != nil {
		return 0, "", err
	}
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	res, err := client.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	_, err = io.Copy(io.Discard, res.Body)
	return res.StatusCode, res.Header.Get("Retry-After"), err
}

// metric is the sum of the series of a metric.
func (f *front) metric(ctx context.Context, admin *http.Client, name string) (sum float64, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+f.address+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	res, err := admin.Do(r)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return 0, errors.New(res.Status)
	}
	lines := bufio.NewScanner(res.Body)
	for lines.Scan() {
		series, value, _ := strings.Cut(lines.Text(), " ")
		if series != name && !strings.HasPrefix(series, name) {
			continue
		}
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, lines.Err()
}

// resident is how much memory the process has, in bytes, and had at most.
func (f *front) resident(t *testing.T) (now, most int64) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", f.process.PID()))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		n, _ := strconv.ParseInt(fields[1], 10, 64)
		switch fields[0] {
		case "VmRSS:":
			now = n << 10
		case "VmHWM:":
			most = n << 10
		}
	}
	return now, most
}
