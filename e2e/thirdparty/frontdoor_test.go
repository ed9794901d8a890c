package thirdparty

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	aggregatorclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"

	"portico.dev/e2e/kubelet"
	"portico.dev/e2e/programs"
	"portico.dev/internal/pki"
)

// users is the group with access to the extension servers.
const users = "users-of-third-parties"

// frontDoor is a front door of several extension servers with external front-proxy certificates, as in an existing cluster.
type frontDoor struct {
	t          *testing.T // bounds the lifetime of its servers
	name, dir  string
	port       int
	flags      []string
	log        *os.File
	process    *programs.Process
	proxyCA    *pki.Authority
	config     *rest.Config // of an administrator; each request is bounded
	endless    *rest.Config // the same without a timeout
	typed      kubernetes.Interface
	dynamic    dynamic.Interface
	aggregator aggregatorclient.Interface
	users      atomic.Int64
	parties    []*third
}

// startFrontDoor starts a front door with these flags in addition to the usual ones.
func startFrontDoor(t *testing.T, name string, flags ...string) *frontDoor {
	t.Helper()
	d := &frontDoor{t: t, name: name, dir: t.TempDir(), port: freePort(t), flags: flags}
	d.open(t, newAuthority(t, "front proxies"))
	d.letUsersIn(t)
	return d
}

// beside starts another front door with the flags and the keys of d, over the etcd in a flag of d.
func (d *frontDoor) beside(t *testing.T, name string) *frontDoor {
	t.Helper()
	other := &frontDoor{t: t, name: name, dir: t.TempDir(), port: freePort(t), flags: d.flags}
	if err := pki.CopyShared(filepath.Join(other.dir, "data", "pki"), filepath.Join(d.dir, "data", "pki")); err != nil {
		t.Fatal(err)
	}
	other.open(t, d.proxyCA)
	return other
}

// open starts the front door, with a front-proxy certificate of this authority.
func (d *frontDoor) open(t *testing.T, proxies *pki.Authority) {
	t.Helper()
	d.log = openLog(t, d.name)
	d.rotate(t, proxies)
	d.trust(t, proxies)
	t.Cleanup(func() {
		if d.process != nil {
			d.process.Finish(t)
		}
	})
	d.start(t)
	d.connect(t)
}

func openLog(t *testing.T, name string) *os.File {
	t.Helper()
	f := must[*os.File](t)(os.OpenFile(filepath.Join(logs, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644))
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

func newAuthority(t *testing.T, name string) *pki.Authority {
	t.Helper()
	return must[*pki.Authority](t)(pki.NewAuthority(name))
}

func (d *frontDoor) file(name string) string { return filepath.Join(d.dir, name) }

// rotate gives the front door a client certificate of this authority.
func (d *frontDoor) rotate(t *testing.T, ca *pki.Authority) {
	t.Helper()
	cert, key, err := ca.Issue(pki.Leaf{CommonName: pki.FrontProxyClientName, Client: true})
	if err != nil {
		t.Fatal(err)
	}
	d.proxyCA = ca
	place(t, d.file("front-proxy-client.key"), key)
	place(t, d.file("front-proxy-client.crt"), cert)
}

// trust makes these authorities the ones of front proxies.
func (d *frontDoor) trust(t *testing.T, authorities ...*pki.Authority) {
	t.Helper()
	var bundle []byte
	for _, ca := range authorities {
		bundle = append(bundle, ca.PEM()...)
	}
	place(t, d.file("front-proxy-ca.crt"), bundle)
}

// place replaces a file atomically.
func place(t *testing.T, name string, data []byte) {
	t.Helper()
	if err := os.WriteFile(name+".new", data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(name+".new", name); err != nil {
		t.Fatal(err)
	}
}

func (d *frontDoor) start(t *testing.T) {
	t.Helper()
	args := append([]string{"serve", "--data-dir", "data", "--secure-port", strconv.Itoa(d.port),
		"--requestheader-client-ca-file", "front-proxy-ca.crt",
		"--proxy-client-cert-file", "front-proxy-client.crt", "--proxy-client-key-file", "front-proxy-client.key"}, d.flags...)
	p, err := programs.Start(d.name, d.dir, d.env(), d.log, filepath.Join(binaries, "aggregator"), args...)
	if err != nil {
		t.Fatal(err)
	}
	d.process = p
	eventually(t, d.name+" opens", func() error {
		if !bytes.Contains([]byte(p.Output()), []byte("the front door is open")) {
			return fmt.Errorf("it does not say so; its log is %s", d.log.Name())
		}
		return nil
	})
}

// stop ends the front door as a service manager does.
func (d *frontDoor) stop(t *testing.T) {
	t.Helper()
	d.process.Finish(t)
	d.process = nil
}

func (d *frontDoor) env() []string {
	return []string{"PATH=" + os.Getenv("PATH"), "HOME=" + d.dir, "KUBECONFIG=" + d.kubeconfig()}
}

func (d *frontDoor) kubeconfig() string { return filepath.Join(d.dir, "data", "admin.kubeconfig") }

func (d *frontDoor) connect(t *testing.T) {
	t.Helper()
	d.endless = must[*rest.Config](t)(clientcmd.BuildConfigFromFlags("", d.kubeconfig()))
	d.endless.QPS, d.endless.WarningHandler = -1, rest.NoWarnings{}
	d.config = rest.CopyConfig(d.endless)
	d.config.Timeout = time.Minute
	d.typed = must[kubernetes.Interface](t)(kubernetes.NewForConfig(d.config))
	d.dynamic = must[dynamic.Interface](t)(dynamic.NewForConfig(d.config))
	d.aggregator = must[aggregatorclient.Interface](t)(aggregatorclient.NewForConfig(d.config))
}

func (d *frontDoor) letUsersIn(t *testing.T) {
	t.Helper()
	d.bind(t, "users", rbacv1.Subject{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: users}, rbacv1.PolicyRule{
		APIGroups: []string{"wardle.example.com", "metrics.k8s.io", "custom.metrics.k8s.io", "external.metrics.k8s.io", upgradeGroup},
		Resources: []string{"*"}, Verbs: []string{"*"},
	})
}

// bind grants a subject these rights in all namespaces.
func (d *frontDoor) bind(t *testing.T, name string, who rbacv1.Subject, rules ...rbacv1.PolicyRule) {
	t.Helper()
	ctx := t.Context()
	if _, err := d.typed.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	d.bindTo(t, name, who, name)
}

func (d *frontDoor) bindTo(t *testing.T, name string, who rbacv1.Subject, role string) {
	t.Helper()
	if _, err := d.typed.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Subjects: []rbacv1.Subject{who},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// newUser returns a user that no server has seen before, so that no cache has a decision: a server must send an access review
// to the front door.
func (d *frontDoor) newUser(groups ...string) (*rest.Config, error) {
	return d.named(fmt.Sprintf("visitor-%d", d.users.Add(1)), groups...)
}

func (d *frontDoor) named(user string, groups ...string) (*rest.Config, error) {
	keys, err := pki.ReadDirectory(filepath.Join(d.dir, "data", "pki"))
	if err != nil {
		return nil, err
	}
	cert, key, err := keys.ClientKeyPair(user, groups, time.Hour)
	if err != nil {
		return nil, err
	}
	return &rest.Config{
		Host: d.config.Host, QPS: -1, WarningHandler: rest.NoWarnings{}, Timeout: 30 * time.Second,
		TLSClientConfig: rest.TLSClientConfig{CAData: d.config.CAData, CertData: cert, KeyData: key},
	}, nil
}

// kubectl runs kubectl as an administrator and returns its output.
func (d *frontDoor) kubectl(input string, args ...string) (string, error) {
	return d.client().Kubectl(input, args...)
}

// client returns kubectl of an administrator.
func (d *frontDoor) client() *kubelet.Client {
	return &kubelet.Client{Programs: binaries, Dir: d.dir, Kubeconfig: d.kubeconfig()}
}
