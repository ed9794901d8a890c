//go:build incumbent

package behind

import (
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"portico.dev/e2e/programs"
)

// Controllers of a kube-controller-manager while an extension server with objects is dead, by the annotation
// portico.dev/discovery-when-unavailable of its APIService, and by whether they started before or after its failure.
// docs/discovery.md has the results as a table.
func TestControllersWithADeadExtensionServer(t *testing.T) {
	for _, value := range []string{"stale", "current"} {
		for _, started := range []string{"before", "after"} {
			t.Run(value+"/started "+started, func(t *testing.T) {
				t.Parallel()
				d := newDeadServer(t, value)
				if started == "before" {
					d.startControllers(t)
					d.quotaIsComputed(t, "before")
				}
				d.kill(t)
				if started == "after" {
					d.startControllers(t)
				}

				// Dependents of a deleted owner are collected. Dependents of a widget, whose existence is unknown, are kept.
				d.create(t, "keep", configMap("owner", "", "", ""))
				d.create(t, "keep", configMap("dependent", "v1", "owner", d.uid(t, "configmap", "owner")))
				kubectl(t, d.kubeconfig, "", "-n", "keep", "delete", "configmap", "owner", "--wait=false")
				d.gone(t, "-n", "keep", "get", "configmap", "dependent")

				// The quota controller waits for all its informers, and one that starts now cannot have that of widgets.
				kubectl(t, d.kubeconfig, "", "-n", "keep", "create", "quota", "during", "--hard=configmaps=50")
				waits := value == "current" && started == "after"
				if !waits {
					d.quotaIsComputed(t, "during")
				}

				condition := "NamespaceDeletionDiscoveryFailure"
				if value == "current" {
					condition = "NamespaceDeletionContentFailure"
				}
				kubectl(t, d.kubeconfig, "", "delete", "namespace", "team", "--wait=false")
				eventually(t, "the namespace says why it stays", func() error {
					return d.prints(t, "^True$", "get", "namespace", "team", "-o", `jsonpath={.status.conditions[?(@.type=="`+condition+`")].status}`)
				})
				if waits && d.usedQuota(t, "during") != "" {
					t.Error("the quota was computed while an informer could not synchronize, want none")
				}
				kubectl(t, d.kubeconfig, "", "-n", "keep", "get", "configmap", "of-widget")

				d.startServer(t)
				d.gone(t, "get", "namespace", "team")
				d.quotaIsComputed(t, "during")
				if left := kubectl(t, d.serverKubeconfig, "", "-n", "team", "get", "widgets", "-o", "name"); left != "" {
					t.Errorf("widgets after the namespace was deleted = %s, want none", left)
				}
				kubectl(t, d.kubeconfig, "", "-n", "keep", "get", "configmap", "of-widget")
			})
		}
	}
}

// deadServer is a front door without the controllers that are looked at, and an extension server that is killed: another
// front door, with a custom resource.
type deadServer struct {
	dir                          string
	port                         int
	server                       *programs.Process
	kubeconfig, serverKubeconfig string
}

const seenControllers = "garbage-collector-controller,namespace-controller,resourcequota-controller"

func newDeadServer(t *testing.T, value string) *deadServer {
	t.Helper()
	d := &deadServer{dir: t.TempDir(), port: freePort(t)}
	d.kubeconfig, d.serverKubeconfig = filepath.Join(d.dir, "front", "admin.kubeconfig"), filepath.Join(d.dir, "shop", "admin.kubeconfig")
	front := d.start(t, "aggregator", "serve", "--data-dir", "front", "--secure-port", "0", "--access-log=false",
		"--controllers", "*,-"+strings.ReplaceAll(seenControllers, ",", ",-"))
	d.open(t, front)
	d.startServer(t)
	kubectl(t, d.serverKubeconfig, widgetsCRD, "create", "-f", "-")
	kubectl(t, d.kubeconfig, "", "create", "namespace", "back")
	kubectl(t, d.kubeconfig, "", "-n", "back", "create", "service", "externalname", "shop", "--external-name", "localhost")
	ca, err := os.ReadFile(filepath.Join(d.dir, "shop", "pki", "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	kubectl(t, d.kubeconfig, fmt.Sprintf(widgetsAPIService, value, base64.StdEncoding.EncodeToString(ca), d.port), "create", "-f", "-")
	for _, namespace := range []string{"team", "keep"} {
		kubectl(t, d.serverKubeconfig, "", "create", "namespace", namespace)
		kubectl(t, d.kubeconfig, "", "create", "namespace", namespace)
		eventually(t, "a widget in "+namespace, func() error {
			out := runProgram(t, d.kubeconfig, widget, "kubectl", "-n", namespace, "create", "-f", "-")
			if out.code != 0 {
				return errors.New(out.String())
			}
			return nil
		})
	}
	d.create(t, "keep", configMap("of-widget", "shop.example.com/v1", "old", d.uid(t, "widget", "old")))
	kubectl(t, d.kubeconfig, "", "-n", "keep", "create", "quota", "before", "--hard=configmaps=50")
	return d
}

func (d *deadServer) start(t *testing.T, program string, args ...string) *programs.Process {
	t.Helper()
	p, err := programs.Start(program, d.dir, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + d.dir}, nil, filepath.Join(binaries, program), args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Finish(t)
		p.Show(t)
	})
	return p
}

func (d *deadServer) open(t *testing.T, p *programs.Process) {
	t.Helper()
	if err := programs.Poll(p.Exited(), func() error {
		if !strings.Contains(p.Output(), "the front door is open") {
			return errors.New("the front door is not open")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// startServer starts the extension server and waits until it serves.
func (d *deadServer) startServer(t *testing.T) {
	t.Helper()
	d.server = d.start(t, "aggregator", "serve", "--data-dir", "shop", "--secure-port", strconv.Itoa(d.port), "--access-log=false",
		"--advertise-name", "shop.back.svc", "--requestheader-client-ca-file", filepath.Join("front", "pki", "front-proxy-ca.crt"))
	d.open(t, d.server)
}

func (d *deadServer) kill(t *testing.T) {
	t.Helper()
	_, err := d.server.Stop(syscall.SIGKILL)
	d.server.Ended = true
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the death is noticed", func() error {
		return d.prints(t, "^False$", "get", "apiservice", "v1.shop.example.com", "-o", `jsonpath={.status.conditions[?(@.type=="Available")].status}`)
	})
}

func (d *deadServer) startControllers(t *testing.T) {
	t.Helper()
	p := d.start(t, "kube-controller-manager", "--kubeconfig", d.kubeconfig, "--authentication-kubeconfig", d.kubeconfig,
		"--authorization-kubeconfig", d.kubeconfig, "--leader-elect=false", "--secure-port", strconv.Itoa(freePort(t)),
		"--cert-dir", filepath.Join(d.dir, "certificates"), "--controllers", seenControllers)
	t.Cleanup(func() {
		p.Ended = true // without an election the signal ends it, and not with 0
		if _, err := p.Stop(os.Interrupt); err != nil {
			t.Error(err)
		}
	})
}

func (d *deadServer) create(t *testing.T, namespace, object string) {
	t.Helper()
	kubectl(t, d.kubeconfig, object, "-n", namespace, "create", "-f", "-")
}

func (d *deadServer) uid(t *testing.T, kind, name string) string {
	t.Helper()
	return kubectl(t, d.kubeconfig, "", "-n", "keep", "get", kind, name, "-o", "jsonpath={.metadata.uid}")
}

func (d *deadServer) usedQuota(t *testing.T, name string) string {
	t.Helper()
	return kubectl(t, d.kubeconfig, "", "-n", "keep", "get", "quota", name, "-o", "jsonpath={.status.used.configmaps}")
}

func (d *deadServer) quotaIsComputed(t *testing.T, name string) {
	t.Helper()
	eventually(t, "quota "+name+" is computed", func() error {
		if d.usedQuota(t, name) == "" {
			return errors.New("it is not")
		}
		return nil
	})
}

// prints returns an error while the output of kubectl does not match.
func (d *deadServer) prints(t *testing.T, pattern string, args ...string) error {
	t.Helper()
	if out := runProgram(t, d.kubeconfig, "", "kubectl", args...); !regexp.MustCompile(pattern).MatchString(out.stdout) {
		return errors.New(out.String())
	}
	return nil
}

func (d *deadServer) gone(t *testing.T, get ...string) {
	t.Helper()
	eventually(t, strings.Join(get, " ")+" finds nothing", func() error {
		if out := runProgram(t, d.kubeconfig, "", "kubectl", get...); !strings.Contains(out.stderr, "(NotFound)") {
			return errors.New(out.String())
		}
		return nil
	})
}

// configMap has an owner unless that has no UID.
func configMap(name, apiVersion, owner, uid string) string {
	object := "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: " + name + "\n"
	if uid == "" {
		return object
	}
	kind := "ConfigMap"
	if apiVersion != "v1" {
		kind = "Widget"
	}
	return object + fmt.Sprintf("  ownerReferences: [{apiVersion: %s, kind: %s, name: %s, uid: %s}]\n", apiVersion, kind, owner, uid)
}

const (
	widgetsCRD = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.shop.example.com}
spec:
  group: shop.example.com
  scope: Namespaced
  names: {kind: Widget, listKind: WidgetList, plural: widgets, singular: widget}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object}}
`
	widget = `
apiVersion: shop.example.com/v1
kind: Widget
metadata: {name: old}
`
	widgetsAPIService = `
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata:
  name: v1.shop.example.com
  annotations: {portico.dev/discovery-when-unavailable: %s}
spec:
  group: shop.example.com
  version: v1
  groupPriorityMinimum: 100
  versionPriority: 100
  caBundle: %s
  service: {namespace: back, name: shop, port: %d}
`
)
