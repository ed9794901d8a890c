package metricsapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"

	"portico.dev/internal/extserver/httpclient"
	"portico.dev/internal/run"
)

// KubeletPort is the default port of kubelets.
const KubeletPort = 10250

// KubeletConfig configures a KubeletSource. The names of metrics-server's flags are in brackets.
type KubeletConfig struct {
	// Client configures the API server that lists Nodes and Pods. Required. Its credentials are also used for kubelets,
	// unless BearerTokenFile or CertFile is set.
	Client *rest.Config
	// NodeSelector selects Nodes by label [--node-selector], NodeName by name. Default: all.
	NodeSelector labels.Selector
	NodeName     string
	// AddressTypes are the address types to try, in order of preference [--kubelet-preferred-address-types]. Default:
	// Hostname, InternalDNS, InternalIP, ExternalDNS, ExternalIP.
	AddressTypes []corev1.NodeAddressType
	// Port is the port of kubelets [--kubelet-port]. Default: the port in the Node's status, or 10250 if it has none.
	Port int
	// CAFile contains the CA certificates of kubelets [--kubelet-certificate-authority]. Default: the CA of Client.
	CAFile string
	// Insecure accepts any server certificate [--kubelet-insecure-tls].
	Insecure bool
	// CertFile and KeyFile [--kubelet-client-certificate, --kubelet-client-key] or BearerTokenFile are the credentials for
	// kubelets.
	CertFile, KeyFile string
	BearerTokenFile   string

	// Resolution is the interval at which kubelets are scraped [--metric-resolution]. Default: 15 s.
	Resolution time.Duration
	// Timeout limits one request [--kubelet-request-timeout]. Default: 10 s, and at most Resolution.
	Timeout time.Duration
	// MaxInFlight limits concurrent requests. Default: 32.
	MaxInFlight int
	// MaxBytes limits the size of a response. Default: 16 MiB.
	MaxBytes int64
	// MaxAge is the maximum age of a node's last successful response that is still served. Default: 3 times Resolution.
	MaxAge time.Duration
	// Logger logs failed scrapes. Default: no logging.
	Logger *zap.Logger
}

func (c KubeletConfig) withDefaults() (KubeletConfig, error) {
	if c.NodeSelector == nil {
		c.NodeSelector = labels.Everything()
	}
	if len(c.AddressTypes) == 0 {
		c.AddressTypes = []corev1.NodeAddressType{corev1.NodeHostName, corev1.NodeInternalDNS, corev1.NodeInternalIP, corev1.NodeExternalDNS, corev1.NodeExternalIP}
	}
	c.Resolution = cmp.Or(c.Resolution, 15*time.Second)
	c.Timeout = min(cmp.Or(c.Timeout, 10*time.Second), c.Resolution)
	c.MaxInFlight = cmp.Or(c.MaxInFlight, 32)
	c.MaxBytes = cmp.Or(c.MaxBytes, 16<<20)
	c.MaxAge = cmp.Or(c.MaxAge, 3*c.Resolution)
	c.Logger = cmp.Or(c.Logger, zap.NewNop())
	switch {
	case c.Client == nil:
		return c, errors.New("kubelet source: a kubeconfig is required: it says where Nodes are listed")
	case c.Resolution < 0 || c.Timeout < 0 || c.MaxInFlight < 0 || c.MaxBytes < 0 || c.MaxAge < 0:
		return c, errors.New("kubelet source: durations and limits must not be negative")
	case c.Port < 0 || c.Port > 65535:
		return c, fmt.Errorf("kubelet port %d: must be between 0 and 65535", c.Port)
	case c.Insecure && c.CAFile != "":
		return c, errors.New("kubelet source: a CA and insecure TLS exclude each other")
	}
	return c, nil
}

// KubeletSource scrapes all kubelets periodically while Run runs, and serves the usage of nodes and pods.
type KubeletSource struct {
	Cache
	config  KubeletConfig
	http    *httpclient.Client
	nodes   *lister
	pods    *lister
	known   map[string]*node // keyed by Node name; only used by the sampling loop
	trouble atomic.Pointer[error]
}

// NewKubeletSource returns a KubeletSource. It reads the files that c names.
func NewKubeletSource(c KubeletConfig) (*KubeletSource, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &KubeletSource{config: c, known: map[string]*node{}}
	if s.http, err = access(c); err != nil {
		return nil, fmt.Errorf("kubelet source: %w", err)
	}
	listing := listerConfig{Client: c.Client, Logger: c.Logger}
	if s.pods, err = newPodLabelLister(listing); err != nil {
		return nil, err
	}
	listing.Labels = c.NodeSelector.String()
	if c.NodeName != "" {
		listing.Fields = fields.OneTermEqualSelector("metadata.name", c.NodeName).String()
	}
	s.nodes, err = newNodeLister(listing)
	return s, err
}

// Run scrapes until ctx ends.
func (s *KubeletSource) Run(ctx context.Context) error {
	defer s.http.Close()
	g := run.Group{}
	g.Add(run.Member{Name: "pods", Run: s.pods.Run})
	g.Add(run.Member{Name: "nodes", Run: s.nodes.Run, Ready: s.nodes.Listed()})
	g.Add(run.Member{Name: "kubelets", Run: s.sample})
	return g.Run(ctx)
}

func (s *KubeletSource) sample(ctx context.Context) error {
	return run.Every(ctx, s.config.Resolution, func(ctx context.Context) {
		s.scrapeAll(ctx)
		if ctx.Err() == nil {
			s.publish(time.Now())
		}
	})
}

// publish publishes all sufficiently recent data, with a warning if some are missing.
func (s *KubeletSource) publish(now time.Time) {
	m := Measurement{Expires: now.Add(s.config.MaxAge)}
	var failed []string
	var first error
	for _, name := range slices.Sorted(maps.Keys(s.known)) {
		n := s.known[name]
		if n.err != nil {
			failed = append(failed, name)
			first = cmp.Or(first, n.err)
		}
		if now.Sub(n.good) > s.config.MaxAge {
			continue
		}
		if used, span, ok := n.pair.Usage(); ok {
			m.Nodes = append(m.Nodes, NodeUsage{Name: name, Labels: n.object.Labels, Usage: used, Span: span})
		}
		m.Pods = append(m.Pods, n.history.Pods()...)
	}
	m.Pods = s.describe(m.Pods)
	err := s.check(failed, first)
	s.trouble.Store(&err)
	if err != nil {
		m.Warnings = []string{"metrics may be missing or old: " + err.Error()}
	}
	s.Publish(m)
}

// describe adds labels to pods and omits pods that no longer run. Before the first list of Pods, it returns all pods without
// labels, because autoscalers can use them.
func (s *KubeletSource) describe(pods []PodUsage) []PodUsage {
	if !s.pods.HasList() {
		return pods
	}
	described := pods[:0]
	for _, u := range pods {
		if o, ok := s.pods.Lookup(u.Namespace, u.Name); ok {
			u.Labels = o.Labels
			described = append(described, u)
		}
	}
	return described
}

func (s *KubeletSource) check(failed []string, first error) error {
	if len(failed) == 0 {
		return errors.Join(s.nodes.LastError(), s.pods.LastError())
	}
	const shown = 3
	names := strings.Join(failed[:min(len(failed), shown)], ", ")
	if len(failed) > shown {
		names += fmt.Sprintf(" and %d more", len(failed)-shown)
	}
	return errors.Join(fmt.Errorf("%d of %d kubelets do not answer (%s): %w", len(failed), len(s.known), names, first),
		s.nodes.LastError(), s.pods.LastError())
}

// LastError returns the current errors, nil if every kubelet responds.
func (s *KubeletSource) LastError() error {
	if p := s.trouble.Load(); p != nil {
		return *p
	}
	return s.nodes.LastError()
}

// Stored returns nil if there is data to serve (metrics-server's readiness check metric-storage-ready).
func (s *KubeletSource) Stored(context.Context) error {
	return s.Filled(s.LastError())
}

const (
	defaultPath = "/metrics/resource"
	// pathAnnotation overrides the path on one node, as in metrics-server.
	pathAnnotation = "metrics.k8s.io/resource-metrics-path"
	accept         = "text/plain;version=0.0.4"
)

// node is one kubelet and its data.
type node struct {
	object      listedObject
	pair        Pair
	history     History
	lastRequest time.Time // start of the last request
	good        time.Time // time of the last successful response
	err         error     // error of the last request
}

// access returns the client for kubelets, with the credentials in c, or with the API server's credentials if c has none.
func access(c KubeletConfig) (*httpclient.Client, error) {
	o := httpclient.Config{TLS: httpclient.TLS{Insecure: c.Insecure, CAFile: c.CAFile, CertFile: c.CertFile, KeyFile: c.KeyFile}}
	api := c.Client.TLSClientConfig
	if c.CAFile == "" && !c.Insecure {
		o.CAFile, o.CA = oneOf(api.CAFile, api.CAData)
	}
	if c.CertFile == "" && c.BearerTokenFile == "" {
		o.CertFile, o.Cert = oneOf(api.CertFile, api.CertData)
		o.KeyFile, o.Key = oneOf(api.KeyFile, api.KeyData)
	}
	switch {
	case c.BearerTokenFile != "":
		o.BearerTokenFile = c.BearerTokenFile
	case c.CertFile == "":
		// A token, a token file or an exec plugin of the kubeconfig. Impersonation does not apply to kubelets.
		credentials := rest.CopyConfig(c.Client)
		credentials.Impersonate = rest.ImpersonationConfig{}
		if _, err := rest.HTTPWrappersForConfig(credentials, nil); err != nil {
			return nil, fmt.Errorf("credentials: %w", err)
		}
		o.Wrap = func(rt http.RoundTripper) http.RoundTripper {
			if wrapped, err := rest.HTTPWrappersForConfig(credentials, rt); err == nil {
				return wrapped
			}
			return rt
		}
	}
	return httpclient.New(o)
}

// oneOf implements a rule of kubeconfigs: inline data take precedence over a file.
func oneOf(file string, data []byte) (string, []byte) {
	if len(data) > 0 {
		return "", data
	}
	return file, nil
}

// scrapeAll scrapes every kubelet once. It removes nodes that no longer exist, with their data.
func (s *KubeletSource) scrapeAll(ctx context.Context) {
	if s.nodes.HasList() {
		listed := map[string]*node{}
		for _, o := range s.nodes.All() {
			n := s.known[o.Name]
			if n == nil {
				n = &node{}
			}
			n.object = o
			listed[o.Name] = n
		}
		s.known = listed
	}
	// A round ends when the next one is due. Kubelets that failed in the last round are scraped last, so that unresponsive
	// kubelets only delay each other.
	round, cancel := context.WithTimeout(ctx, max(s.config.Resolution, s.config.Timeout))
	defer cancel()
	g := errgroup.Group{}
	g.SetLimit(s.config.MaxInFlight)
	for _, n := range s.inOrder() {
		g.Go(func() error {
			err := s.scrape(round, n)
			if ctx.Err() != nil {
				return nil
			}
			if n.err = err; err != nil {
				s.config.Logger.Warn("failed to scrape a kubelet", zap.String("node", n.object.Name), zap.Error(err))
			}
			return nil
		})
	}
	_ = g.Wait() // each node stores its error
}

// inOrder returns the nodes in order of their last scrape, with failed nodes at the end.
func (s *KubeletSource) inOrder() []*node {
	failed := func(n *node) int {
		if n.err != nil && !errors.Is(n.err, errNotScraped) {
			return 1
		}
		return 0
	}
	return slices.SortedFunc(maps.Values(s.known), func(a, b *node) int {
		return cmp.Or(cmp.Compare(failed(a), failed(b)), a.lastRequest.Compare(b.lastRequest), cmp.Compare(a.object.Name, b.object.Name))
	})
}

// errNotScraped is the error of nodes that a round had no time to scrape.
var errNotScraped = errors.New("others that hang took all the time; raise the limit of kubelets asked at a time")

// scrape scrapes one kubelet. The returned error only concerns this node.
func (s *KubeletSource) scrape(ctx context.Context, n *node) error {
	if ctx.Err() != nil {
		return errNotScraped
	}
	n.lastRequest = time.Now()
	ctx, cancel := context.WithTimeout(ctx, s.config.Timeout)
	defer cancel()
	e, at, err := s.fetch(ctx, n.object)
	if err != nil {
		return err
	}
	if e.halves > 0 {
		s.config.Logger.Debug("containers without CPU or memory", zap.String("node", n.object.Name), zap.Int("containers", e.halves))
	}
	n.good = at
	n.pair = n.pair.Next(e.node)
	n.history = n.history.Next(e.pods)
	return nil
}

func (s *KubeletSource) fetch(ctx context.Context, o listedObject) (*exposition, time.Time, error) {
	address, err := s.address(o)
	if err != nil {
		return nil, time.Time{}, err
	}
	answer, err := s.http.Get(ctx, address, accept, s.config.MaxBytes)
	if err != nil {
		return nil, time.Time{}, err
	}
	at := time.Now()
	switch answer.Code {
	case http.StatusOK:
	case http.StatusUnauthorized:
		return nil, at, fmt.Errorf("%s: 401: the kubelet does not know who we are; it needs a client certificate of its client CA or a token", address)
	case http.StatusForbidden:
		return nil, at, fmt.Errorf("%s: 403: may not get nodes/metrics; grant it, for example by the ClusterRole system:kubelet-api-admin", address)
	default:
		return nil, at, fmt.Errorf("%s: HTTP %d", address, answer.Code)
	}
	// Remove the monotonic part, because times are compared with the times of kubelets.
	e, err := parse(answer.Body, at.Round(0))
	if err != nil {
		return nil, at, fmt.Errorf("%s: %w", address, err)
	}
	return e, at, nil
}

// address returns the URL of the node's kubelet.
func (s *KubeletSource) address(o listedObject) (string, error) {
	host := ""
	for _, want := range s.config.AddressTypes {
		for _, a := range o.Addresses {
			if host == "" && a.Type == want {
				host = a.Address
			}
		}
	}
	if host == "" {
		return "", errors.New("the Node has no address of a preferred type")
	}
	port := cmp.Or(s.config.Port, o.KubeletPort, KubeletPort)
	u := url.URL{Scheme: "https", Host: net.JoinHostPort(host, strconv.Itoa(port)), Path: defaultPath}
	if path := o.Annotations[pathAnnotation]; strings.HasPrefix(path, "/") {
		u.Path = path
	}
	return u.String(), nil
}
