package behind

import (
	"encoding/base64"
	"fmt"
	"net"
	"testing"
	"time"

	"portico.dev/e2e/programs"
	"portico.dev/internal/tools/drill/faulty"
)

// reachable is an address of this machine that may be an endpoint: no loopback address may.
func reachable(t *testing.T) string {
	t.Helper()
	address := programs.MachineAddress()
	if address == "" {
		t.Fatal("this machine has only loopback addresses, want one that may be an endpoint")
	}
	return address
}

// registration is the set of objects that lead to an extension server.
type registration struct {
	group, namespace, service string
	// address is where the server is: an IP address makes an EndpointSlice, a name an external name.
	address string
	port    int32
	ca      []byte
}

func (r registration) apiService() string { return "v1." + r.group }

func (r registration) serviceYAML() string {
	if net.ParseIP(r.address) == nil {
		return fmt.Sprintf(`
apiVersion: v1
kind: Service
metadata: {name: %s, namespace: %s}
spec: {type: ExternalName, externalName: %s}
---`, r.service, r.namespace, r.address)
	}
	return fmt.Sprintf(`
apiVersion: v1
kind: Service
metadata: {name: %[1]s, namespace: %[2]s}
spec:
  ports: [{name: https, port: 443, targetPort: %[3]d}]
---
`, r.service, r.namespace, r.port) + r.slice(r.port) + "\n---"
}

func (r registration) slice(port int32) string {
	return fmt.Sprintf(`
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[1]s, namespace: %[2]s, labels: {kubernetes.io/service-name: %[1]s}}
addressType: IPv4
endpoints: [{addresses: [%[3]s]}]
ports: [{name: https, port: %[4]d, protocol: TCP}]
`, r.service, r.namespace, r.address, port)
}

// servicePort is the port in the APIService. With an ExternalName it is the server's port.
func (r registration) servicePort() int32 {
	if net.ParseIP(r.address) == nil {
		return r.port
	}
	return 443
}

func (r registration) yaml() string {
	return r.serviceYAML() + fmt.Sprintf(`
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: %s}
spec:
  group: %s
  version: v1
  groupPriorityMinimum: 100
  versionPriority: 100
  service: {namespace: %s, name: %s, port: %d}
  caBundle: %s
`, r.apiService(), r.group, r.namespace, r.service, r.servicePort(), base64.StdEncoding.EncodeToString(r.ca))
}

// extensionServer runs one that fails on demand.
func extensionServer(t *testing.T, r *registration, bind string) *faulty.Server {
	t.Helper()
	server, err := faulty.New(faulty.Config{
		Group: r.group, ServerName: r.service + "." + r.namespace + ".svc", Address: net.JoinHostPort(bind, "0"), Stores: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	runServer(t, server, r)
	return server
}

// runServer runs the server until the test ends, and completes its registration.
func runServer(t *testing.T, server *faulty.Server, r *registration) {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- server.Run(t.Context()) }()
	t.Cleanup(func() {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	select {
	case <-server.Ready():
	case <-time.After(programs.Patience):
		t.Fatal("the extension server was not ready in time, want it listening")
	}
	r.port, r.ca = server.Port(), server.CABundle()
}

// gone is how many seconds it took until the namespace was gone, 0 when it was not in time.
func gone(t *testing.T, kubeconfig string, within time.Duration) float64 {
	t.Helper()
	began := time.Now()
	out := runProgram(t, kubeconfig, "", "kubectl", "wait", "--for=delete", "namespace/doomed", fmt.Sprintf("--timeout=%s", within))
	if out.code != 0 {
		return 0
	}
	return float64(time.Since(began).Round(10*time.Millisecond)) / float64(time.Second)
}
