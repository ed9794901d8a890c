package cluster

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"portico.dev/internal/filters"
	"portico.dev/internal/fleet/v1alpha1"
	"portico.dev/internal/pki"
	"portico.dev/internal/proxy"
	"portico.dev/internal/run"
	"portico.dev/internal/transport"
)

// Config is the configuration of a Cluster.
type Config struct {
	// Name is the name in messages. The backend in metrics is cluster/NAME; that of a Service is NAMESPACE/NAME:PORT.
	Name string
	// Server contains the API servers.
	Server Server
	// MaxInFlight limits the requests to the cluster that are in flight, without long-running ones. Default 400.
	MaxInFlight int
	// Credentials authenticate the front door at the API servers.
	Credentials Credentials
	// Identify writes the identity of a client's request into its header, which has the credentials already. If it changes
	// the field Authorization, it has replaced the credentials by the client's: the request is sent over connections without
	// the certificate of Credentials, because API servers prefer the user of a certificate to the user of a token.
	Identify func(header http.Header, r *filters.Request) error
	// Prefix returns the path of the client's request before the path in r. Redirects begin with it. May be nil.
	Prefix func(r *filters.Request) string
	// SingleUser is set for a front with one user. All documents are then fetched before a client requests them, and
	// documents that never change are served without a request. The API servers are not probed.
	SingleUser bool
	// Transport configures the connections. Its field Parent is the same for all clusters of a process. Certificate is ignored.
	Transport transport.Options
	Proxy     *proxy.Proxy
	Logger    *zap.Logger
}

// Server is how the API servers of a cluster are reached.
type Server struct {
	// Endpoints are the addresses of the API servers, "HOST:PORT".
	Endpoints []string
	// Path is the escaped path before the paths of the API, without a slash at its end.
	Path string
	// ServerName is the name in the serving certificates. Default DefaultServerName.
	ServerName string
	// Host is the host in requests. Default ServerName.
	Host string
	// CABundle contains the authorities of the serving certificates in PEM. Empty uses the system's.
	CABundle []byte
	// Insecure accepts any certificate.
	Insecure bool
}

const (
	// DefaultServerName is a name in the serving certificate of each kube-apiserver.
	DefaultServerName = "kubernetes.default.svc"
	// defaultMaxInFlight is the default of Config.MaxInFlight.
	defaultMaxInFlight = 400
)

// withDefaults returns a valid copy.
func (s Server) withDefaults() (Server, error) {
	if len(s.Endpoints) == 0 {
		return s, errors.New("the cluster has no endpoints; at least one HOST:PORT is required")
	}
	for _, address := range s.Endpoints {
		if host, port, err := net.SplitHostPort(address); err != nil || host == "" || port == "" {
			return s, fmt.Errorf("the endpoint %q is not of the form HOST:PORT", address)
		}
	}
	s.Endpoints = slices.Clone(s.Endpoints)
	s.ServerName = cmp.Or(s.ServerName, DefaultServerName)
	s.Host = cmp.Or(s.Host, s.ServerName)
	return s, nil
}

// Cluster serves the requests for one cluster. It is safe for concurrent use.
type Cluster struct {
	config    Config
	subject   string // what messages are about
	set       *transport.Set
	queue     *run.TimerQueue // of the probes and of the fetches of documents
	documents *documents
	causes    *causes
	current   atomic.Pointer[backends]
	probes    atomic.Pointer[[]*run.ScheduledTask] // nil if there are none

	mu          sync.Mutex // guards the fields below, and the endpoints
	server      Server
	maxInFlight int
	endpoints   []*endpoint
	version     string
	changed     chan struct{} // closed and replaced at each change of the state
	tunnels     map[*tunnel]bool
	ended       bool
}

// backends are the connections to the API servers.
type backends struct {
	certificate *pki.KeyPair
	server      Server
	own         *transport.Backend // with the certificate
	anonymous   *transport.Backend // without a certificate; the same as own if certificate is nil
}

// New returns a Cluster. It opens no connection.
func New(c Config) (*Cluster, error) {
	made := &Cluster{config: c, subject: "cluster " + c.Name, queue: run.NewTimerQueue(), tunnels: map[*tunnel]bool{}, changed: make(chan struct{})}
	if c.SingleUser {
		made.subject = "the API server at " + c.Name
	}
	o := c.Transport
	o.Certificate = nil // it depends on the request
	made.set = transport.New(o)
	made.set.OnFailure(func(*transport.Backend, error) { made.hasten() })
	if err := made.Update(c.Server, c.MaxInFlight); err != nil {
		made.set.Close()
		return nil, err
	}
	made.documents, made.causes = newDocuments(made), newCauses(made.fetch)
	made.queue.Add(made.follow)
	return made, nil
}

// Update replaces the API servers and the limit. Endpoints that remain keep their connections, unless the serving certificates
// are verified in another way.
func (c *Cluster) Update(s Server, maxInFlight int) error {
	s, err := s.withDefaults()
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	lastServer, lastLimit, lastEndpoints := c.server, c.maxInFlight, c.endpoints
	c.server, c.maxInFlight, c.endpoints = s, cmp.Or(maxInFlight, defaultMaxInFlight), newEndpoints(lastEndpoints, s.Endpoints)
	if err := c.register(); err != nil {
		c.server, c.maxInFlight, c.endpoints = lastServer, lastLimit, lastEndpoints
		return err
	}
	c.scheduleProbes(lastEndpoints)
	c.notify()
	return nil
}

// register applies the endpoints and their readiness to the transport. It is called with mu held.
func (c *Cluster) register() error {
	certificate := c.config.Credentials.Certificate()
	spec := transport.Spec{
		Name: "cluster/" + c.config.Name, ServerName: c.server.ServerName, CABundle: c.server.CABundle, Insecure: c.server.Insecure,
		LoopbackOK: true, MaxInFlight: c.maxInFlight, Certificate: certificate,
	}
	for _, e := range c.endpoints {
		spec.Endpoints = append(spec.Endpoints, transport.Endpoint{Address: e.address, Terminating: !e.ready && !c.config.SingleUser})
	}
	own, err := c.set.Backend(spec)
	if err != nil {
		return err
	}
	anonymous := own
	if spec.Certificate = nil; certificate != nil {
		if anonymous, err = c.set.Backend(spec); err != nil {
			return err
		}
	}
	c.set.Retain(map[*transport.Backend]bool{own: true, anonymous: true})
	c.current.Store(&backends{certificate, c.server, own, anonymous})
	return nil
}

// connections returns the backends with the current certificate of the credentials.
func (c *Cluster) connections() *backends {
	current := c.current.Load()
	if current.certificate == c.config.Credentials.Certificate() {
		return current
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.register(); err != nil {
		c.config.Logger.Debug("the connections have an old certificate", zap.String("cluster", c.config.Name), zap.Error(err))
	}
	return c.current.Load()
}

// URL returns the URL of the API servers.
func (c *Cluster) URL() string {
	s := c.current.Load().server
	return "https://" + s.Host + s.Path
}

// Run keeps the state and the documents current until ctx ends, and then closes the connections.
func (c *Cluster) Run(ctx context.Context) error {
	c.queue.Run(ctx)
	c.closeTunnels()
	c.set.Retain(nil) // removes the metrics
	c.set.Close()
	return nil
}

// Fetched returns a channel that is closed when the documents have been fetched once, or could not be.
func (c *Cluster) Fetched() <-chan struct{} { return c.documents.followed }

// pseudonym is the name in Via headers, by which loops are detected. It differs from that of requests to extension servers, because the
// API servers may be front doors.
func (c *Cluster) pseudonym() string {
	if c.config.SingleUser {
		return "portico-front"
	}
	return "portico-clusters"
}

// Serve implements the handler of all paths of the cluster. Documents come from memory while the API servers do not answer.
func (c *Cluster) Serve(w http.ResponseWriter, r *filters.Request) {
	r.Record.ServedBy = "cluster"
	if v, ok := documentOf(r.Request); ok && !proxy.Passed(r.Header, c.pseudonym()) && c.documents.serve(w, r, v) {
		return
	}
	x := c.call(r)
	c.config.Proxy.ServeTarget(w, r, &x.target)
}

// ServeOwn is like Serve, but sends the request as the front door. The caller has authorized the client. ServeOwn returns false,
// without a response, if the API server refuses the front door.
func (c *Cluster) ServeOwn(w http.ResponseWriter, r *filters.Request) (permitted bool) {
	r.Record.ServedBy = "cluster"
	x := c.call(r)
	x.asFront = true
	failed := c.config.Proxy.AttemptTarget(w, r, &x.target)
	if failed != nil && !x.refused {
		failed.Answer()
	}
	return !x.refused
}

func (c *Cluster) call(r *filters.Request) *call {
	r.Record.Proxied = true
	x := &call{cluster: c, backends: c.connections()}
	x.target = proxy.Target{
		Server: x, Host: x.server.Host, Path: x.server.Path + rawPath(r.URL), RawQuery: r.URL.RawQuery,
		Pseudonym: c.pseudonym(), Name: c.subject, Explain: x.explain, Identify: x.identify, Judge: func(resp *http.Response) error { return x.judge(r, resp) },
		Redirects: true, Bounded: true,
	}
	return x
}

// rawPath returns the path as the client spelled it.
func rawPath(u *url.URL) string {
	if u.RawPath != "" {
		return u.RawPath
	}
	return u.EscapedPath()
}

// authenticate writes the credentials, and the identity of r, into a header. If r is nil, the request is the front door's. It
// returns true if Identify has replaced the credentials.
func (c *Cluster) authenticate(ctx context.Context, header http.Header, r *filters.Request) (passed bool, err error) {
	unavailable := c.config.Credentials.Apply(ctx, header)
	if r != nil {
		given := header["Authorization"]
		if err := c.config.Identify(header, r); err != nil {
			return false, err
		}
		if !slices.Equal(given, header["Authorization"]) {
			return true, nil
		}
	}
	if unavailable == nil {
		return false, nil
	}
	text := "the credentials for " + c.subject + " are not available: " + unavailable.Error()
	if c.config.SingleUser { // they are the user's
		return false, apierrors.NewUnauthorized(text)
	}
	return false, apierrors.NewServiceUnavailable(text)
}

// roundTrip sends a request, and reports credentials that the API server refuses.
func (c *Cluster) roundTrip(b *backends, r *http.Request, passed bool) (*http.Response, error) {
	if passed {
		return b.anonymous.RoundTrip(r)
	}
	resp, err := b.own.RoundTrip(r)
	if err == nil && resp.StatusCode == http.StatusUnauthorized {
		c.config.Credentials.Refused(r.Context())
	}
	return resp, err
}

// RoundTrip implements http.RoundTripper: it sends a request of the front door itself. The host of the URL is ignored.
func (c *Cluster) RoundTrip(r *http.Request) (*http.Response, error) {
	return c.send(r, identity{}, false)
}

// identity is the user of a request to the API servers. The zero value is the front door itself.
type identity struct {
	header http.Header // credentials and user
	passed bool        // the credentials are the client's
	known  bool        // the user is authenticated
	key    string      // equal for requests with the same header; empty for the front door
	user   string      // name at the front door
}

// identityOf returns the identity of a client's request. The only user of a front is the front itself, unless it impersonates.
func (c *Cluster) identityOf(r *filters.Request) (identity, error) {
	if c.config.SingleUser && !impersonates(r.Header) {
		return identity{}, nil
	}
	header := http.Header{}
	passed, err := c.authenticate(r.Context(), header, r)
	if err != nil {
		return identity{}, err
	}
	hash := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(header)) {
		_, _ = fmt.Fprintf(hash, "%q:%q\n", name, header[name]) // a hash has no errors
	}
	known := r.User != nil && r.UserName != user.Anonymous
	return identity{header, passed, known, string(hash.Sum(nil)), r.UserName}, nil
}

// send sends a request with an identity. In the background, it uses the connections of the probes, so that there are no others to
// the API servers of a cluster that no client uses.
func (c *Cluster) send(r *http.Request, who identity, background bool) (*http.Response, error) {
	b := c.connections()
	out := r.Clone(r.Context())
	out.URL, out.Host = b.urlOf(rawPath(r.URL), r.URL.RawQuery), b.server.Host
	out.Header["Via"] = []string{"1.1 " + c.pseudonym()}
	if who.key != "" {
		maps.Copy(out.Header, who.header)
	} else if _, err := c.authenticate(r.Context(), out.Header, nil); err != nil {
		return nil, err
	}
	if background {
		return b.own.Probe().RoundTrip(out)
	}
	return c.roundTrip(b, out, who.passed)
}

// urlOf returns the URL of a request for an escaped path.
func (b *backends) urlOf(path, query string) *url.URL {
	return &url.URL{Scheme: "https", Host: b.server.Host, Opaque: b.server.Path + path, RawQuery: query}
}

// fetcher gets a document at an unescaped path.
type fetcher func(ctx context.Context, path, query string, header http.Header, who identity) (*http.Response, error)

func (c *Cluster) fetch(ctx context.Context, path, query string, header http.Header, who identity) (*http.Response, error) {
	target := url.URL{Scheme: "https", Host: c.config.Name, Path: path, RawQuery: query}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return nil, err
	}
	r.Header = header
	return c.send(r, who, who.key == "" && !c.config.SingleUser)
}

// follow is the task of the queue that keeps the documents current.
func (c *Cluster) follow(ctx context.Context) time.Duration {
	if c.documents.follow(ctx) && !c.config.SingleUser {
		c.connections().own.RenewProbes() // their buffers have the size of the documents
	}
	if version := c.documents.version(); version != "" {
		c.setVersion(version)
	}
	return jitter(followInterval)
}

// call is one request of a client. It is its own proxy.Server: the connections depend on the identity.
type call struct {
	*backends
	cluster *Cluster
	target  proxy.Target
	passed  bool // the credentials are the client's
	asFront bool // the request is sent as the front door
	refused bool // the API server refuses the front door
}

// identify implements proxy.Target.Identify.
func (x *call) identify(header http.Header, r *filters.Request) (err error) {
	ctx := r.Context()
	if x.asFront {
		r = nil
	}
	x.passed, err = x.cluster.authenticate(ctx, header, r)
	return err
}

// Admit implements proxy.Server. All requests share the limit.
func (x *call) Admit(slot *transport.Slot, user string) error { return x.own.Admit(slot, user) }

// RoundTrip implements proxy.Server.
func (x *call) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := x.cluster.roundTrip(x.cluster.connections(), r, x.passed) // x.backends may have been replaced since Admit
	x.failed(err)
	return resp, err
}

// DialUpgrade implements proxy.Server.
func (x *call) DialUpgrade(ctx context.Context) (net.Conn, error) {
	b := x.cluster.connections()
	to := b.own
	if x.passed {
		to = b.anonymous
	}
	conn, err := to.DialUpgrade(ctx)
	x.failed(err)
	if err != nil {
		return nil, err
	}
	return x.cluster.track(conn), nil
}

// Tunnels implements proxy.Server.
func (x *call) Tunnels(n int) { x.own.Tunnels(n) }

// Broken implements proxy.Server.
func (x *call) Broken() { x.own.Broken() }

// failed adds the API server of the last attempt to messages.
func (x *call) failed(err error) {
	if failed, ok := errors.AsType[*transport.Error](err); ok && failed.Endpoint != "" && !x.cluster.config.SingleUser {
		x.target.Name = x.cluster.subject + ": API server " + failed.Endpoint
	}
}

// explain implements proxy.Target.Explain. The text for extension servers is replaced where it does not apply.
func (x *call) explain(cause, text string) string {
	switch {
	case cause == "ForbiddenAddress" && x.cluster.config.SingleUser:
		return "its address is this front itself, link-local, multicast, or a cloud's metadata service; the kubeconfig may be the one of a front that has ended"
	case cause == "ForbiddenAddress":
		text = "its address is this front door itself, link-local, multicast, or a cloud's metadata service"
	}
	if s := x.cluster.State(); !s.Ready && s.Reason == v1alpha1.ReasonNoReadyAPIServer {
		text += "; " + s.Message
	}
	return text
}

var errRefused = errors.New("the API server refuses the front door")

// judge replaces the 503 of an unavailable APIService by one with the cause, and checks redirects.
func (x *call) judge(r *filters.Request, resp *http.Response) error {
	switch {
	case x.asFront && (resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden):
		x.refused = true
		return errRefused
	case resp.StatusCode == http.StatusServiceUnavailable:
		return x.cluster.explainUnavailable(r)
	case resp.Header.Get("Location") != "":
		return x.redirect(r, resp)
	}
	return nil
}

// explainUnavailable returns the response for a request that the API server has answered with 503, or nil if that response is
// relayed.
func (c *Cluster) explainUnavailable(r *filters.Request) error {
	who, err := c.identityOf(r)
	if err != nil {
		return nil // its credentials have just been replaced
	}
	return c.causes.explain(who, r)
}

// redirect makes a Location that leads to the API server lead to the front door. Clients that follow others would send their
// credentials there (CVE-2022-3172).
func (x *call) redirect(r *filters.Request, resp *http.Response) error {
	given := resp.Header.Get("Location")
	base := url.URL{Scheme: "https", Host: x.server.Host, Path: "/"}
	location, err := base.Parse(given)
	if err != nil || strings.Contains(given, `\`) || location.Host != base.Host || location.Scheme != base.Scheme || location.User != nil {
		return refusedRedirect(x.cluster.subject)
	}
	path, ok := strings.CutPrefix(location.EscapedPath(), x.server.Path)
	if !ok || !strings.HasPrefix(path, "/") || strings.HasPrefix(path, "//") {
		return refusedRedirect(x.cluster.subject)
	}
	if x.cluster.config.Prefix != nil {
		path = x.cluster.config.Prefix(r) + path
	}
	rest := url.URL{RawQuery: location.RawQuery, Fragment: location.Fragment}
	resp.Header.Set("Location", path+rest.String())
	return nil
}

func refusedRedirect(server string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusBadGateway, Reason: "BackendRedirect",
		Message: server + " redirects the request to another server, which is not followed",
	}}
}
