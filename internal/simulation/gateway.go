package simulation

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	"portico.dev/internal/gateway"
	"portico.dev/internal/gateway/adopter"
	"portico.dev/internal/gateway/adoption"
	"portico.dev/internal/pki"
	"portico.dev/internal/simulation/network"
)

const gatewayPort = 8443

// gatewayService is the Service of the gateways.
var gatewayService = adoption.Service{Namespace: "portico-gateway", Name: "portico-gateway", Port: 443}

// manifests are the objects of deploy/gateway with its rights, so that it has no others here, and with the Secret that it writes.
var manifests = []string{"../../deploy/gateway/rbac.yaml", "../../deploy/gateway/state.yaml"}

// gatewayUser and gatewayGroups are the service account of deploy/gateway.
const gatewayUser = "system:serviceaccount:portico-gateway:portico-gateway"

var gatewayGroups = []string{"system:serviceaccounts", "system:serviceaccounts:portico-gateway"}

// gatewayReplica is a replica of `aggregator gateway`. The front door of its world is the API server of its cluster.
type gatewayReplica struct {
	name       string
	host       *network.Host
	kubeconfig string
	log        *zap.Logger

	server *gateway.Gateway // nil while it does not run
	end    context.CancelFunc
	ended  chan error
}

// start starts the replica, and returns when it is ready.
func (g *gatewayReplica) start(ctx context.Context) error {
	if err := g.launch(ctx); err != nil {
		return err
	}
	timer := time.NewTimer(startTimeout)
	defer timer.Stop()
	select {
	case <-g.server.Ready():
		return nil
	case err := <-g.ended:
		g.server = nil
		return fmt.Errorf("%s ended during its start: %w", g.name, err)
	case <-timer.C:
		return errors.Join(fmt.Errorf("%s is not ready after %s", g.name, startTimeout), g.stop())
	}
}

// launch starts the replica and does not wait for it.
func (g *gatewayReplica) launch(ctx context.Context) error {
	listener, err := g.host.Listen(gatewayPort)
	if err != nil {
		return err
	}
	c := gateway.Default()
	c.Kubeconfig, c.Namespace, c.Service, c.ServicePort = g.kubeconfig, gatewayService.Namespace, gatewayService.Name, gatewayService.Port
	c.Listener, c.MemoryLimit = listener, "0"
	c.Dial = func(ctx context.Context, address string) (net.Conn, error) { return g.host.Dial(ctx, address) }
	server, err := gateway.New(c, g.log)
	if err != nil {
		return err
	}
	ctx, end := context.WithCancel(pki.PollOnly(ctx))
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	g.server, g.end, g.ended = server, end, ended
	return nil
}

// exited returns the error with which the replica has ended without being asked, or nil.
func (g *gatewayReplica) exited() error {
	if g.server == nil {
		return nil
	}
	select {
	case err := <-g.ended:
		g.server = nil
		return fmt.Errorf("%s has ended: %w", g.name, err)
	default:
		return nil
	}
}

func (g *gatewayReplica) title() string { return g.name }
func (g *gatewayReplica) running() bool { return g.server != nil }

// stop stops the replica as SIGTERM does, which a frozen process does not receive.
func (g *gatewayReplica) stop() error {
	if g.server == nil || g.host.Frozen() {
		return nil
	}
	g.end()
	err := <-g.ended
	g.server = nil
	return err
}

// crash ends the replica without any message to other hosts.
func (g *gatewayReplica) crash() {
	g.host.Kill()
	_ = g.stop() // it has lost its connections
	g.host.Boot()
}

// ready reports whether the replica runs and serves requests.
func (g *gatewayReplica) ready() bool {
	if g.server == nil {
		return false
	}
	select {
	case <-g.server.Ready():
		return true
	default:
		return false
	}
}

// deployGateways installs the gateways of a world, and adopts every APIService.
func (w *world) deployGateways(c *client, dir string, logger *zap.Logger) error {
	if err := w.applyGateway(c); err != nil {
		return err
	}
	kubeconfig := filepath.Join(dir, "gateway.kubeconfig")
	if err := w.writeKubeconfig(kubeconfig); err != nil {
		return err
	}
	for i, host := range w.gatewayHosts() {
		name := fmt.Sprintf("gateway%d", i)
		g := &gatewayReplica{name: name, host: host, kubeconfig: kubeconfig, log: logger.Named(name)}
		w.gateways = append(w.gateways, g)
		if err := g.start(w.ctx); err != nil {
			return err
		}
	}
	return w.adoptAll()
}

func (w *world) gatewayHosts() []*network.Host {
	var hosts []*network.Host
	for i := range w.shape.gateways {
		hosts = append(hosts, w.net.Host(fmt.Sprintf("10.0.4.%d", i+1)))
	}
	return hosts
}

// applyGateway creates the objects of deploy/gateway. All gateways stay endpoints of their Service: a front door finds out itself
// which of them it reaches.
func (w *world) applyGateway(c *client) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: gatewayService.Namespace}}
	if err := c.do(w.ctx, http.MethodPost, namespacesPath, namespace).failure(); err != nil {
		return err
	}
	for _, file := range manifests {
		if err := w.apply(c, file); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	var endpoints []discoveryv1.Endpoint
	ready := true
	for _, host := range w.gatewayHosts() {
		endpoints = append(endpoints, discoveryv1.Endpoint{Addresses: []string{host.String()}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}})
	}
	return w.registerService(c, gatewayService.Namespace, gatewayService.Name, []int32{gatewayService.Port}, gatewayPort, endpoints)
}

// apply creates the objects of a manifest.
func (w *world) apply(c *client, file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		var object metav1.PartialObjectMetadata
		var whole map[string]any
		if err := errors.Join(yaml.Unmarshal([]byte(document), &object), yaml.Unmarshal([]byte(document), &whole)); err != nil {
			return err
		}
		if err := c.do(w.ctx, http.MethodPost, collectionOf(&object), whole).failure(); err != nil {
			return err
		}
	}
	return nil
}

// collectionOf returns the path at which an object of a manifest is created.
func collectionOf(o *metav1.PartialObjectMetadata) string {
	path := "/apis/" + o.APIVersion
	if o.APIVersion == "v1" {
		path = "/api/v1"
	}
	if o.Namespace != "" {
		path += "/namespaces/" + o.Namespace
	}
	return path + "/" + strings.ToLower(o.Kind) + "s"
}

// apiServer returns the kubeconfig of a client of the front door.
func (w *world) apiServer(user string, groups []string) (*clientcmdapi.Config, error) {
	certificate, key, err := w.keys.ClientKeyPair(user, groups, 100*time.Hour)
	if err != nil {
		return nil, err
	}
	c := clientcmdapi.NewConfig()
	c.Clusters["world"] = &clientcmdapi.Cluster{Server: fmt.Sprintf("https://%s:%d", w.fronts[0].host, frontPort), CertificateAuthorityData: w.keys.Cluster().PEM()}
	c.AuthInfos[user] = &clientcmdapi.AuthInfo{ClientCertificateData: certificate, ClientKeyData: key}
	c.Contexts["world"] = &clientcmdapi.Context{Cluster: "world", AuthInfo: user}
	c.CurrentContext = "world"
	return c, nil
}

func (w *world) writeKubeconfig(file string) error {
	c, err := w.apiServer(gatewayUser, gatewayGroups)
	if err != nil {
		return err
	}
	return clientcmd.WriteToFile(*c, file)
}

// adoptAll adopts every APIService, as `aggregator adopt --all` does.
func (w *world) adoptAll() error {
	c, err := w.apiServer(admin, []string{"system:masters"})
	if err != nil {
		return err
	}
	config, err := clientcmd.NewDefaultClientConfig(*c, nil).ClientConfig()
	if err != nil {
		return err
	}
	config.Dial = func(ctx context.Context, _, address string) (net.Conn, error) { return w.clientHost.Dial(ctx, address) }
	a, err := adopter.New(config, gatewayService, time.Minute)
	if err != nil {
		return err
	}
	for _, b := range w.backends {
		if _, err := a.Adopt(w.ctx, b.apiService()); err != nil {
			return err
		}
	}
	w.adopted = true
	return nil
}
