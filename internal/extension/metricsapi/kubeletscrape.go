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
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"

	"portico.dev/internal/extension/httpclient"
)

const (
	defaultPath = "/metrics/resource"
	// pathAnnotation names another path on one node, as for metrics-server.
	pathAnnotation = "metrics.k8s.io/resource-metrics-path"
	accept         = "text/plain;version=0.0.4"
)

// node is one kubelet and what it has told.
type node struct {
	object  listedObject
	pair    Pair
	history History
	asked   time.Time // when it was asked last
	good    time.Time // when it last answered well
	err     error     // of the last question
}

// access is the client for kubelets: the API's own credentials unless c names others.
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
		// A token, a token file or a login plugin of the kubeconfig. Its impersonation is not for kubelets.
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

// oneOf is the rule of kubeconfigs: what is written in them wins over the file that they name.
func oneOf(file string, data []byte) (string, []byte) {
	if len(data) > 0 {
		return "", data
	}
	return file, nil
}

// scrapeAll asks every kubelet once. Nodes that are gone are forgotten, with what they told.
func (s *KubeletSource) scrapeAll(ctx context.Context) {
	if s.nodes.Known() {
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
	// A round ends when the next one is due, and those that hung last time come last: however many they are, they hold up
	// each other and nobody else.
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
				s.config.Logger.Warn("scrape kubelet", zap.String("node", n.object.Name), zap.Error(err))
			}
			return nil
		})
	}
	_ = g.Wait() // each node keeps its own error
}

// inOrder is whose turn it is: those that were asked longest ago first, and those that failed after all others.
func (s *KubeletSource) inOrder() []*node {
	failed := func(n *node) int {
		if n.err != nil && !errors.Is(n.err, errNoTurn) {
			return 1
		}
		return 0
	}
	return slices.SortedFunc(maps.Values(s.known), func(a, b *node) int {
		return cmp.Or(cmp.Compare(failed(a), failed(b)), a.asked.Compare(b.asked), cmp.Compare(a.object.Name, b.object.Name))
	})
}

// errNoTurn is the error of nodes that a round had no time for.
var errNoTurn = errors.New("others that hang took all the time; raise the limit of kubelets asked at a time")

// scrape asks one kubelet. Only the failure of this node comes of it.
func (s *KubeletSource) scrape(ctx context.Context, n *node) error {
	if ctx.Err() != nil {
		return errNoTurn
	}
	n.asked = time.Now()
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
	// Without the monotonic part: kubelets' times are compared with each other.
	e, err := parse(answer.Body, at.Round(0))
	if err != nil {
		return nil, at, fmt.Errorf("%s: %w", address, err)
	}
	return e, at, nil
}

// address is where the node's kubelet is asked.
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
