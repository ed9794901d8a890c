package kubelet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico.dev/internal/coreapi/registry"
	"portico.dev/internal/httpengine"
	"portico.dev/internal/pki"
	"portico.dev/internal/proxy"
	"portico.dev/internal/transport"
)

const (
	// maxConns bounds the connections to one kubelet that supports only HTTP/1.1. Each log that is followed uses one.
	maxConns = 512
	// idleServer is the time without requests after which a server is dropped. sweepInterval is the interval of that
	// check.
	idleServer    = 5 * time.Minute
	sweepInterval = time.Minute
)

// Config configures the connections to kubelets and pods.
type Config struct {
	// Proxy returns the proxy that forwards requests. It is called when a request needs it. Required.
	Proxy func() *proxy.Proxy
	// PreferredAddressTypes lists the types of node addresses in order of preference.
	PreferredAddressTypes []corev1.NodeAddressType
	// Certificate is the client certificate for kubelets. It may be nil.
	Certificate *pki.KeyPair
	// Authority verifies the certificates of kubelets. If it is nil, they are not verified.
	Authority *pki.Bundle
	// Timeout bounds the connection to a kubelet, and separately the TLS handshake.
	Timeout time.Duration
	// Tunnel dials the connections. If it is nil, they are direct.
	Tunnel *transport.Tunnel
	// OwnAddresses returns the addresses of this process's listeners, which must not be dialled.
	OwnAddresses func() []string
	// Engine is the HTTP implementation.
	Engine httpengine.Name
	// Logger may be nil.
	Logger *zap.Logger
}

// Connector implements registry.Connector. It starts goroutines for its connections only. They end with Close.
type Connector struct {
	config Config
	// kubelets presents the certificate. pods does not, and never verifies the peer.
	kubelets, pods *transport.Set
	plain          *transport.Plains

	mu      sync.Mutex // guards the fields below
	servers map[key]*server
	swept   time.Time
}

var _ registry.Connector = (*Connector)(nil)

// New returns a Connector without connections.
func New(c Config) *Connector {
	options := transport.Options{
		Tunnel: c.Tunnel, OwnAddresses: c.OwnAddresses, DialTimeout: c.Timeout, TLSTimeout: c.Timeout, HeaderTimeout: transport.NoHeaderTimeout,
		MaxConns: maxConns, Engine: c.Engine, Logger: c.Logger,
	}
	k := &Connector{config: c, pods: transport.New(options), plain: transport.NewPlains(options), servers: map[key]*server{}}
	options.Certificate = c.Certificate
	k.kubelets = transport.New(options)
	return k
}

// Close closes every connection. Requests in flight fail.
func (k *Connector) Close() {
	k.kubelets.Close()
	k.pods.Close()
	k.plain.Close()
}

// key identifies a server. Connections for one key are not used for another.
type key struct {
	name               string // "node NAME", or "pod" for any server that is not a kubelet
	address            string
	authority          string // PEM
	insecure, loopback bool
}

// server is a kubelet, or a pod that is reached over TLS. It records since when it has been failing.
type server struct {
	*transport.Backend
	users int       // requests in flight, guarded by Connector.mu
	used  time.Time // guarded by Connector.mu

	mu       sync.Mutex
	failedAt time.Time // time of the first failure since the last response, or zero
}

// RoundTrip and DialUpgrade record the result of a request.
func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := s.Backend.RoundTrip(r)
	s.note(err)
	return resp, err
}

func (s *server) DialUpgrade(ctx context.Context) (net.Conn, error) {
	conn, err := s.Backend.DialUpgrade(ctx)
	s.note(err)
	return conn, err
}

func (s *server) note(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var failed *transport.Error
	switch {
	case err == nil:
		s.failedAt = time.Time{}
	case errors.As(err, &failed) && failed.Class == transport.ClassBackend && s.failedAt.IsZero():
		s.failedAt = time.Now()
	}
}

func (s *server) failingSince() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failedAt
}

// acquire returns the server for k, and a function that the caller must call to release it.
func (c *Connector) acquire(k key) (*server, func(), error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	c.sweep(now)
	s, ok := c.servers[k]
	if !ok {
		set, spec := c.pods, transport.Spec{Name: k.name + " " + k.address, Insecure: true, Endpoints: []transport.Endpoint{{Address: k.address}}}
		if k.name != podKey {
			set, spec.Insecure, spec.LoopbackOK, spec.CABundle = c.kubelets, k.insecure, k.loopback, []byte(k.authority)
		}
		host, _, err := net.SplitHostPort(k.address)
		if err != nil {
			return nil, nil, apierrors.NewBadRequest(err.Error())
		}
		spec.ServerName = host
		backend, err := set.Backend(spec)
		if err != nil {
			return nil, nil, apierrors.NewInternalError(err)
		}
		s = &server{Backend: backend}
		c.servers[k] = s
	}
	s.users++
	s.used = now
	return s, sync.OnceFunc(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		s.users--
		s.used = time.Now()
	}), nil
}

const podKey = "pod"

// sweep drops servers that have been idle for idleServer. The caller holds mu.
func (c *Connector) sweep(now time.Time) {
	if now.Sub(c.swept) < sweepInterval {
		return
	}
	c.swept = now
	keep, gone := map[*transport.Backend]bool{}, false
	for k, s := range c.servers {
		if s.users == 0 && now.Sub(s.used) > idleServer {
			delete(c.servers, k)
			gone = true
			continue
		}
		keep[s.Backend] = true
	}
	if gone {
		c.kubelets.Retain(keep)
		c.pods.Retain(keep)
	}
}

// kubelet is the address of a node's kubelet, from the status of its Node.
type kubelet struct {
	node, host, port string
	addressType      corev1.NodeAddressType
	reportsPort      bool
	features         []string
}

// defaultPort is the kubelet port if the Node does not report one.
const defaultPort = 10250

// locate returns the kubelet of a node: the address of the most preferred type, and the port in its status.
func (c *Connector) locate(ctx context.Context, from registry.Objects, name string) (*kubelet, error) {
	node, err := from.Node(ctx, name)
	if err != nil {
		return nil, err
	}
	for _, kind := range c.config.PreferredAddressTypes {
		at := slices.IndexFunc(node.Status.Addresses, func(a corev1.NodeAddress) bool { return a.Type == kind })
		if at < 0 {
			continue
		}
		port := node.Status.DaemonEndpoints.KubeletEndpoint.Port
		k := &kubelet{
			node: name, host: node.Status.Addresses[at].Address, addressType: kind, reportsPort: port > 0, features: node.Status.DeclaredFeatures,
		}
		if port <= 0 {
			port = defaultPort
		}
		k.port = strconv.Itoa(int(port))
		return k, nil
	}
	status := apierrors.NewServiceUnavailable(fmt.Sprintf("node %s has no kubelet that could be asked: no preferred addresses found; known addresses: %v; "+
		"start a kubelet for it, or name the types of its addresses in --kubelet-preferred-address-types", name, node.Status.Addresses))
	status.ErrStatus.Details = nodeDetails(name)
	return nil, status
}

func nodeDetails(name string) *metav1.StatusDetails {
	return &metav1.StatusDetails{Kind: "nodes", Name: name}
}

func (k *kubelet) address() string { return net.JoinHostPort(k.host, k.port) }

// target returns the kubelet as a target of the proxy. The caller must call release.
func (c *Connector) target(k *kubelet, insecure, loopback bool) (_ *proxy.Target, release func(), _ error) {
	at := key{name: "node " + k.node, address: k.address(), insecure: insecure || c.config.Authority == nil, loopback: loopback}
	if !at.insecure {
		at.authority = string(c.config.Authority.PEM())
	}
	s, release, err := c.acquire(at)
	if err != nil {
		return nil, nil, err
	}
	return &proxy.Target{
		Server: s, Host: k.address(), Details: *nodeDetails(k.node),
		Name:    fmt.Sprintf("the kubelet of node %s at %s (%s)", k.node, k.address(), k.addressType),
		Explain: func(cause, text string) string { return k.explain(s, cause, text) },
	}, release, nil
}

// explain describes a failure of a kubelet, and since when it has not responded.
func (k *kubelet) explain(s *server, cause, text string) string {
	switch cause {
	case "TunnelUnreachable", "TunnelRefused", "TunnelBusy":
		return text // the message concerns the tunnel, not the kubelet
	case "ForbiddenAddress":
		return "its address must not be dialled: it is a loopback, link-local or multicast address, a cloud's metadata service, or this server itself"
	case "CertificateUntrusted":
		text = "its certificate is not signed by the authority in --kubelet-certificate-authority"
	case "TLSAlert":
		text = "it refused the TLS handshake; it may not accept the certificate of --kubelet-client-certificate"
	case "TLSInternalError":
		text = "it could not complete the TLS handshake: it may have no serving certificate yet (kubectl get csr)"
	case "ConnectionRefused":
		if !k.reportsPort {
			return "nothing listens there, and the Node names no port of a kubelet (status.daemonEndpoints): no kubelet runs for it; start one, or delete the Node"
		}
	}
	if since := s.failingSince(); !since.IsZero() {
		text += "; it has not answered since " + since.UTC().Format("2006-01-02T15:04:05Z")
	}
	return text
}
