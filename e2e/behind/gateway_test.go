package behind

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"portico.dev/e2e/programs"
	"portico.dev/internal/gateway/adoption"
	"portico.dev/internal/tools/drill/faulty"
)

const gatewayNamespace = "portico-gateway"

// gateways are the replicas of a gateway, installed from deploy/gateway. Processes take the place of its pods, with the service
// account, and the test acts as the endpoint controller.
type gateways struct {
	*apiServer
	t          *testing.T
	kubeconfig string
	address    string
	replicas   map[string]*replica
}

type replica struct {
	port    int
	process *programs.Process
}

func installGateway(t *testing.T, s *apiServer) *gateways {
	t.Helper()
	manifests, err := filepath.Abs("../../deploy/gateway")
	if err != nil {
		t.Fatal(err)
	}
	kubectl(t, s.Kubeconfig, "", "apply", "-k", manifests)
	g := &gateways{apiServer: s, t: t, kubeconfig: filepath.Join(t.TempDir(), "gateway.kubeconfig"), address: reachable(t), replicas: map[string]*replica{}}
	accountKubeconfig(t, s.Kubeconfig, g.kubeconfig, gatewayNamespace, "portico-gateway")
	g.run("a")
	g.run("b")
	return g
}

// run starts a replica, and makes it an endpoint of the Service when it is ready.
func (g *gateways) run(name string) {
	g.t.Helper()
	r := g.replicas[name]
	if r == nil {
		r = &replica{port: freePort(g.t)}
		g.replicas[name] = r
		g.t.Cleanup(func() { g.kill(name) })
	}
	dir := g.t.TempDir()
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { _ = log.Close() })
	r.process, err = programs.Start("gateway "+name, dir, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir}, log, filepath.Join(binaries, "aggregator"),
		"gateway", "--kubeconfig="+g.kubeconfig, "--namespace="+gatewayNamespace, "--bind-address="+g.address, fmt.Sprintf("--secure-port=%d", r.port), "--shutdown-delay-duration=2s")
	if err != nil {
		g.t.Fatal(err)
	}
	eventually(g.t, "gateway "+name+" is ready", func() error {
		out := runProgram(g.t, g.Kubeconfig, "", "kubectl", "get", "--raw", "/readyz", "--server", "https://"+net.JoinHostPort(g.address, fmt.Sprint(r.port)), "--insecure-skip-tls-verify")
		if out.code != 0 {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
	g.publish(name, true)
}

// publish makes a replica an endpoint, or does away with that.
func (g *gateways) publish(name string, ready bool) {
	g.t.Helper()
	slice := registration{namespace: gatewayNamespace, service: "portico-gateway", address: g.address}.slice(int32(g.replicas[name].port))
	slice = strings.Replace(slice, "metadata: {name: portico-gateway,", "metadata: {name: replica-"+name+",", 1)
	verb := []string{"apply", "-f", "-"}
	if !ready {
		verb = []string{"delete", "--ignore-not-found", "-f", "-"}
	}
	kubectl(g.t, g.Kubeconfig, slice, verb...)
}

func (g *gateways) kill(name string) {
	g.t.Helper()
	p := g.replicas[name].process
	if p == nil {
		return
	}
	g.replicas[name].process = nil
	if err := p.Kill(); err != nil {
		g.t.Error(err)
	}
	p.Show(g.t)
}

// condition returns the status of an APIService's condition.
func (g *gateways) condition(apiService, kind string) string {
	g.t.Helper()
	return kubectl(g.t, g.Kubeconfig, "", "get", "apiservice", apiService, "-o", `jsonpath={.status.conditions[?(@.type=="`+kind+`")].status}`)
}

func (g *gateways) conditionIs(apiService, kind, want string) {
	g.t.Helper()
	eventually(g.t, apiService+" is "+kind+"="+want, func() error {
		if got := g.condition(apiService, kind); got != want {
			return fmt.Errorf("it is %q", got)
		}
		return nil
	})
}

func (g *gateways) works(args ...string) error {
	if out := runProgram(g.t, g.Kubeconfig, "", "kubectl", args...); out.code != 0 {
		return fmt.Errorf("%s", out)
	}
	return nil
}

// The test of a gateway with a front door in the place of the kube-apiserver, which runs in CI. TestGateway is the same with a
// kube-apiserver.
func TestGatewayBehindPortico(t *testing.T) { tellOfGateway(t, portico(t)) }

// tellOfGateway installs a gateway in a cluster. The gateway adopts servers and handles their failures. Every component is
// killed in turn. Its replicas are replaced under traffic. Then it is removed completely.
func tellOfGateway(t *testing.T, k *apiServer) {
	address := reachable(t)
	flunders, fischers := "v1alpha1."+wardle, "v1beta1."+wardle
	_, restartSample := sampleAt(t, k.Kubeconfig, address)
	readings := registration{group: "readings.example.com", namespace: "default", service: "readings", address: address}
	meter, err := faulty.New(faulty.Config{Group: readings.group, ServerName: "readings.default.svc", Address: net.JoinHostPort(address, "0")})
	if err != nil {
		t.Fatal(err)
	}
	runServer(t, meter, &readings)
	kubectl(t, k.Kubeconfig, readings.yaml(), "apply", "-f", "-")
	eventually(t, "readings are served", func() error {
		if out := runProgram(t, k.Kubeconfig, "", "kubectl", "get", "readings"); out.code != 0 {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
	before := kubectl(t, k.Kubeconfig, "", "get", "apiservices", flunders, fischers, readings.apiService(), "-o", `jsonpath={range .items[*]}{.spec}{"\n"}{end}`)
	trusted := kubectl(t, k.Kubeconfig, "", "-n", "kube-system", "get", "configmap", "extension-apiserver-authentication", "-o", "jsonpath={.data}")

	remote := strings.Fields(kubectl(t, k.Kubeconfig, "", "get", "apiservices", "-o", "jsonpath={.items[?(@.spec.service.name)].metadata.name}"))
	g := installGateway(t, k)
	out := runProgram(t, k.Kubeconfig, "", "aggregator", "adopt", "--all")
	if out.code != 0 || strings.Count(out.stdout, " adopted\n") != len(remote) || len(remote) < 3 {
		t.Fatalf("aggregator adopt --all = %s, want all APIServices adopted", out)
	}
	t.Log(out.stdout)
	for _, name := range []string{flunders, fischers, readings.apiService()} {
		g.conditionIs(name, "BackendAvailable", "True")
		g.conditionIs(name, "FrontProxyTrusted", "True")
		g.conditionIs(name, "Available", "True")
	}
	t.Run("what the server stores is written and read through the gateway", func(t *testing.T) {
		kubectl(t, k.Kubeconfig, strings.ReplaceAll(sampleObjects, "name: one", "name: behind"), "apply", "-f", "-")
		if got := kubectl(t, k.Kubeconfig, "", "get", "flunders", "behind", "-o", "name"); !strings.Contains(got, "flunder") {
			t.Errorf("kubectl get through the gateway = %s, want the flunder", got)
		}
		if got := kubectl(t, k.Kubeconfig, "", "explain", "flunder"); !strings.Contains(got, "Flunder") {
			t.Errorf("kubectl explain through the gateway = %s, want Flunder", got)
		}
	})

	t.Run("a dead metrics server blocks no namespace", func(t *testing.T) {
		kubectl(t, k.Kubeconfig, "", "create", "namespace", "doomed")
		if err := meter.SetFault(faulty.Refuse); err != nil {
			t.Fatal(err)
		}
		g.conditionIs(readings.apiService(), "BackendAvailable", "False")
		eventually(t, "the replica that is asked has noticed too", func() error {
			get := runProgram(t, k.Kubeconfig, "", "kubectl", "get", "readings")
			if !strings.Contains(get.stderr, "APIService "+readings.apiService()+" is unavailable") {
				return fmt.Errorf("kubectl get readings: %s", get)
			}
			t.Log(get.stderr)
			return nil
		})
		kubectl(t, k.Kubeconfig, "", "delete", "namespace", "doomed", "--wait=false")
		took := gone(t, k.Kubeconfig, time.Minute)
		if took == 0 {
			t.Fatalf("the namespace is not deleted within a minute, want it deleted: %s",
				kubectl(t, k.Kubeconfig, "", "get", "namespace", "doomed", "-o", "yaml"))
		}
		t.Logf("gone after %.1f s; kube-apiserver says Available=%s", took, g.condition(readings.apiService(), "Available"))
		if got := g.condition(readings.apiService(), "Available"); got != "True" {
			t.Errorf("condition Available = %s, want True", got)
		}
		if err := meter.SetFault(faulty.Healthy); err != nil {
			t.Fatal(err)
		}
		g.conditionIs(readings.apiService(), "BackendAvailable", "True")
	})

	t.Run("a dead server that stores holds the namespace, whose condition names it", func(t *testing.T) {
		widgets := registration{group: "stored.example.com", namespace: "default", service: "stored", address: address}
		server := extensionServer(t, &widgets, address)
		kubectl(t, k.Kubeconfig, widgets.yaml(), "apply", "-f", "-")
		eventually(t, "widgets are served", func() error { return g.works("get", "widgets") })
		if out := runProgram(t, k.Kubeconfig, "", "aggregator", "adopt", widgets.apiService(), "-o", "json"); out.code != 0 {
			t.Fatalf("aggregator adopt = %s, want exit code 0", out)
		}
		kubectl(t, k.Kubeconfig, "", "create", "namespace", "doomed")
		kubectl(t, k.Kubeconfig, fmt.Sprintf(`{"apiVersion":"%s/v1","kind":"Widget","metadata":{"name":"w","namespace":"doomed"}}`, widgets.group), "create", "--validate=false", "-f", "-")
		if err := server.SetFault(faulty.Refuse); err != nil {
			t.Fatal(err)
		}
		g.conditionIs(widgets.apiService(), "BackendAvailable", "False")
		kubectl(t, k.Kubeconfig, "", "delete", "namespace", "doomed", "--wait=false")
		condition := ""
		eventually(t, "the namespace's condition names the APIService", func() error {
			condition = kubectl(t, k.Kubeconfig, "", "get", "namespace", "doomed", "-o", `jsonpath={range .status.conditions[?(@.status=="True")]}{.type}: {.message}{"\n"}{end}`)
			if !strings.Contains(condition, "APIService "+widgets.apiService()+" is unavailable") {
				return fmt.Errorf("%s", condition)
			}
			return nil
		})
		t.Log(condition)
		if server.Stored("doomed") != 1 {
			t.Errorf("%d objects at the dead server, want 1", server.Stored("doomed"))
		}
		if err := server.SetFault(faulty.Healthy); err != nil {
			t.Fatal(err)
		}
		if took := gone(t, k.Kubeconfig, programs.Patience); took == 0 || server.Stored("doomed") != 0 {
			t.Errorf("deletion of the namespace after the return took %.1f s with %d objects left, want a deletion and 0",
				took, server.Stored("doomed"))
		}
		if out := runProgram(t, k.Kubeconfig, "", "aggregator", "release", widgets.apiService()); out.code != 0 {
			t.Errorf("aggregator release = %s, want exit code 0", out)
		}
		kubectl(t, k.Kubeconfig, "", "delete", "apiservice", widgets.apiService())
	})

	firstAuthority := base64.StdEncoding.EncodeToString(meter.CABundle())
	t.Run("the authority of a server changes, and no request is lost", func(t *testing.T) { g.newAuthority(t, meter, readings) })
	t.Run("a new authority in spec.caBundle is taken over", func(t *testing.T) { g.authorityInSpec(t, meter, readings) })

	get := []string{"get", "flunders", "behind", "-o", "name"}
	t.Run("everything is killed in turn", func(t *testing.T) {
		g.publish("a", false)
		g.kill("a")
		eventually(t, "one replica is enough", func() error { return g.works(get...) })
		restartSample()
		eventually(t, "the extension server is back", func() error { return g.works(get...) })
		if err := g.stop(); err != nil {
			t.Fatal(err)
		}
		if err := g.start(t.Context()); err != nil {
			t.Fatal(err)
		}
		eventually(t, "kube-apiserver is back", func() error { return g.works(get...) })
		g.run("a")
		g.kill("b")
		g.publish("b", false)
		eventually(t, "the other replica is enough", func() error { return g.works(get...) })
		g.kill("a")
		g.conditionIs(flunders, "Available", "False")
		if out := runProgram(t, k.Kubeconfig, "", "kubectl", get...); out.code == 0 {
			t.Errorf("kubectl get without a gateway = %s, want an error", out)
		}
		g.run("a")
		eventually(t, "a gateway is back", func() error { return g.works(get...) })
		g.run("b")
		for _, name := range []string{flunders, fischers, readings.apiService()} {
			g.conditionIs(name, "Available", "True")
			g.conditionIs(name, "BackendAvailable", "True")
		}
	})

	t.Run("the replicas are replaced, and no request is lost", func(t *testing.T) { g.replaced(t) })

	g.kill("d") // a release does not need it
	out = runProgram(t, k.Kubeconfig, "", "aggregator", "release", "--all")
	if out.code != 0 || strings.Count(out.stdout, " released\n") != len(remote) {
		t.Fatalf("aggregator release --all = %s, want all APIServices released", out)
	}
	after := kubectl(t, k.Kubeconfig, "", "get", "apiservices", flunders, fischers, readings.apiService(), "-o", `jsonpath={range .items[*]}{.spec}{"\n"}{end}`)
	before = strings.ReplaceAll(before, firstAuthority, base64.StdEncoding.EncodeToString(meter.CABundle()))
	if after != before {
		t.Errorf("APIServices after the release =\n%s\nwant\n%s", after, before)
	}
	eventually(t, "nothing is left of the gateway in what extension servers believe", func() error {
		now := kubectl(t, k.Kubeconfig, "", "-n", "kube-system", "get", "configmap", "extension-apiserver-authentication", "-o", "jsonpath={.data}")
		if now != trusted {
			return fmt.Errorf("%s\nwas\n%s", now, trusted)
		}
		return nil
	})
	eventually(t, "the server is served directly", func() error { return g.works(get...) })
}

// replaced replaces the replicas, as an upgrade or the drain of a node does, while clients read and write.
func (g *gateways) replaced(t *testing.T) {
	flunder := "/apis/" + wardle + "/v1alpha1/namespaces/default/flunders/behind"
	g.whileRequested(t, flunder, true, func(goOn func(what string)) {
		for _, names := range [][2]string{{"c", "a"}, {"d", "b"}} {
			g.run(names[0])
			g.end(names[1])
			goOn("without " + names[1])
		}
	})
}

// newAuthority changes the authority of a server's certificate: both are trusted, then the new certificate is used, then the
// old authority is removed. Clients do not notice.
func (g *gateways) newAuthority(t *testing.T, server *faulty.Server, r registration) {
	trust := func() {
		kubectl(t, g.Kubeconfig, "", "annotate", "--overwrite", "apiservice", r.apiService(), adoption.OriginalCABundleAnnotation+"="+base64.StdEncoding.EncodeToString(server.CABundle()))
	}
	g.whileRequested(t, "/apis/"+r.group+"/v1/namespaces/default/readings", false, func(goOn func(what string)) {
		for _, step := range []struct {
			what string
			does func() error
		}{
			{"with both authorities", func() error { err := server.RotateAuthority(); trust(); return err }},
			{"with the new certificate", server.ShowRotated},
			{"with the new authority", func() error { trust(); return nil }},
		} {
			if err := step.does(); err != nil {
				t.Fatal(err)
			}
			goOn(step.what)
		}
	})
	g.conditionIs(r.apiService(), "BackendAvailable", "True")
}

// authorityInSpec has the next authority of a server written into spec.caBundle, where it belongs without a gateway.
func (g *gateways) authorityInSpec(t *testing.T, server *faulty.Server, r registration) {
	for _, change := range []func() error{server.RotateAuthority, server.ShowRotated} {
		if err := change(); err != nil {
			t.Fatal(err)
		}
		bundle := base64.StdEncoding.EncodeToString(server.CABundle())
		kubectl(t, g.Kubeconfig, "", "patch", "apiservice", r.apiService(), "--type=merge", "-p", `{"spec":{"caBundle":"`+bundle+`"}}`)
		eventually(t, "it is the authority of the server, and the gateway's is back", func() error {
			got := kubectl(t, g.Kubeconfig, "", "get", "apiservice", r.apiService(), "-o", `jsonpath={.spec.caBundle}{"\n"}{.metadata.annotations.gateway\.portico\.dev/original-ca-bundle}`)
			if spec, original, _ := strings.Cut(got, "\n"); original != bundle || spec == "" || spec == bundle {
				return fmt.Errorf("%s", got)
			}
			return g.works("get", "readings")
		})
	}
	g.conditionIs(r.apiService(), "BackendAvailable", "True")
	g.conditionIs(r.apiService(), "Available", "True")
}

// whileRequested does something while clients read an object, or write it too, and fails the test if a request fails.
func (g *gateways) whileRequested(t *testing.T, path string, write bool, does func(goOn func(what string))) {
	config, err := clientcmd.BuildConfigFromFlags("", g.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	client, err := rest.HTTPClientFor(config) // which does not retry
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var traffic sync.WaitGroup
	var sent atomic.Int64
	failures := make(chan error, 1)
	for n := range 8 {
		traffic.Go(func() {
			for ctx.Err() == nil {
				if err := readOrWrite(t.Context(), client, config.Host+path, write && n%2 == 0); err != nil {
					select {
					case failures <- err:
					default:
					}
					return
				}
				sent.Add(1)
			}
		})
	}
	does(func(what string) {
		before := sent.Load()
		eventually(t, "requests go on "+what, func() error {
			if now := sent.Load(); now < before+500 { // both replicas have applied the step by then
				return fmt.Errorf("%d were sent", now-before)
			}
			return nil
		})
	})
	stop()
	traffic.Wait()
	select {
	case err := <-failures:
		t.Errorf("request failed after %d requests: %v, want no error", sent.Load(), err)
	default:
		t.Logf("%d requests, all of them answered", sent.Load())
	}
}

// readOrWrite sends one request for an object behind the gateway.
func readOrWrite(ctx context.Context, client *http.Client, url string, write bool) error {
	ctx, cancel := context.WithTimeout(ctx, programs.Patience)
	defer cancel()
	method, body := http.MethodGet, ""
	if write {
		method, body = http.MethodPatch, fmt.Sprintf(`{"metadata":{"annotations":{"at":"%d"}}}`, time.Now().UnixNano())
	}
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/merge-patch+json")
	response, err := client.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }() // it is read
	text, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", response.Status, text)
	}
	return err
}

// end terminates a replica and removes its endpoint, as the kubelet and the endpoint controller do.
func (g *gateways) end(name string) {
	g.t.Helper()
	p := g.replicas[name].process
	g.replicas[name].process = nil
	ended := make(chan error, 1)
	go func() {
		code, err := p.Stop(syscall.SIGTERM)
		if err == nil && code != 0 {
			err = fmt.Errorf("it ended with exit status %d", code)
		}
		ended <- err
	}()
	g.publish(name, false)
	if err := <-ended; err != nil {
		g.t.Errorf("gateway %s: %v, want exit status 0", name, err)
	}
	p.Show(g.t)
}
