package peers

import (
	"context"
	"crypto"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico.dev/internal/metrics"
	"portico.dev/internal/pki"
	"portico.dev/internal/transport"
)

// ServerName is the server name in TLS handshakes between replicas.
const ServerName = "peer.portico.internal"

// Section exchanges the values that replicas publish. store.Section implements it.
type Section interface {
	Publish(value []byte)
	Received() (others map[string][]byte, leads bool)
	Changed() <-chan struct{}
}

// Config contains the dependencies of Peers. All fields but Metrics and Changed are required.
type Config struct {
	// Section exchanges the Descriptions of replicas.
	Section Section
	// Name is the name of this replica.
	Name string
	// Address is host:port at which the other replicas reach this one. It is empty if they do not.
	Address string
	// GroupVersions are the group-versions that this replica serves itself because of its release, not because of
	// objects that all replicas have.
	GroupVersions []schema.GroupVersion
	// Transport contains options for connections to the other replicas.
	Transport transport.Options
	// Metrics may be nil.
	Metrics *metrics.Peers
	// Changed, if set, is called when the set of reachable replicas has changed. It must not block.
	Changed func()
	Logger  *zap.Logger
}

// Description is the value that a replica publishes about itself.
type Description struct {
	// Address is host:port. It is empty if the replica does not accept requests of other replicas.
	Address string `json:"address,omitempty"`
	// Certificate is the SHA-256 of its certificate for other replicas, in hex.
	Certificate string `json:"certificate"`
	// GroupVersions are Config.GroupVersions.
	GroupVersions []string `json:"groupVersions,omitempty"`
}

// Peers tracks the other replicas, and identifies this one to them. All methods are safe for concurrent use.
type Peers struct {
	config Config
	pair   *pki.KeyPair
	key    crypto.PrivateKey
	set    *transport.Set
	now    func() time.Time
	// unreadable is used only by Run.
	unreadable unreadable

	mu       sync.Mutex // guards the fields below
	replicas map[string]Description
	// senders maps the fingerprints of certificates to the names of replicas.
	senders map[string]string
	// departed contains replicas that were senders until recently, by fingerprint.
	departed map[string]departure
	skewed   map[string]bool // replicas with clocks that differ
	backends map[string]*transport.Backend
}

// A replica that alone has lost etcd cannot renew its lease, but has more requests to forward. The other replicas
// therefore accept its requests for departedLife after its lease has ended. They do not send requests to it.
const (
	departedLife = 10 * time.Minute
	maxDeparted  = 100
)

// departure is the end of a replica's lease.
type departure struct {
	name string
	at   time.Time
}

// New creates the certificate of this process and publishes it. It does not start anything.
func New(c Config) (*Peers, error) {
	authority, err := pki.NewAuthority("portico-peer")
	if err != nil {
		return nil, err
	}
	certPEM, keyPEM, err := authority.Issue(pki.Leaf{CommonName: c.Name, DNSNames: []string{ServerName}, Client: true, Server: true, TTL: pki.AuthorityTTL})
	if err != nil {
		return nil, err
	}
	pair, err := pki.StaticKeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, err
	}
	shown, err := pair.GetCertificate(nil)
	if err != nil {
		return nil, err
	}
	o := c.Transport
	o.Certificate, o.AllowLoopback = nil, true // certificates identify the replicas, regardless of their addresses
	p := &Peers{
		config: c, pair: pair, key: shown.PrivateKey, set: transport.New(o), now: time.Now,
		replicas: map[string]Description{}, senders: map[string]string{}, departed: map[string]departure{}, skewed: map[string]bool{}, backends: map[string]*transport.Backend{},
	}
	own := Description{Address: c.Address, Certificate: pair.Fingerprint()}
	for _, gv := range c.GroupVersions {
		own.GroupVersions = append(own.GroupVersions, gv.String())
	}
	slices.Sort(own.GroupVersions)
	text, err := json.Marshal(own)
	if err != nil {
		return nil, fmt.Errorf("describe this replica: %w", err)
	}
	c.Section.Publish(text)
	return p, nil
}

// Run follows the other replicas until ctx ends, and then closes the connections to them.
func (p *Peers) Run(ctx context.Context) error {
	defer p.set.Close()
	for ctx.Err() == nil {
		changed := p.config.Section.Changed()
		if p.update() && p.config.Changed != nil {
			p.config.Changed()
		}
		select {
		case <-ctx.Done():
		case <-changed:
		}
	}
	return nil
}

// update reads the descriptions and reports whether they have changed.
func (p *Peers) update() bool {
	received, _ := p.config.Section.Received()
	replicas, senders := make(map[string]Description, len(received)), make(map[string]string, len(received))
	for name, text := range received {
		var d Description
		if len(text) == 0 {
			continue // a release without this package, or a replica that has just started
		}
		if err := json.Unmarshal(text, &d); err != nil {
			if p.unreadable.add(name, text) {
				p.config.Logger.Warn("ignoring the unreadable description of a replica, which may run another release; no requests are forwarded to it", zap.String("replica", name), zap.Error(err))
			}
			continue
		}
		replicas[name], senders[d.Certificate] = d, name
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if maps.EqualFunc(replicas, p.replicas, Description.equals) {
		return false
	}
	for name := range p.replicas {
		if _, lives := replicas[name]; !lives {
			delete(p.skewed, name)
			p.config.Metrics.Remove(name)
		}
	}
	p.depart(senders)
	p.replicas, p.senders = replicas, senders
	keep := map[*transport.Backend]bool{}
	for key, b := range p.backends {
		names := strings.Split(key, ",")
		if slices.ContainsFunc(names, func(name string) bool { return replicas[name].Address == "" }) {
			delete(p.backends, key)
			continue
		}
		keep[b] = true
	}
	p.set.Retain(keep)
	return true
}

// depart records the senders that are not live any more. It must be called with mu held.
func (p *Peers) depart(live map[string]string) {
	now := p.now()
	for certificate, name := range p.senders {
		if _, lives := live[certificate]; !lives {
			p.departed[certificate] = departure{name, now}
		}
	}
	maps.DeleteFunc(p.departed, func(certificate string, d departure) bool {
		_, lives := live[certificate]
		return lives || now.Sub(d.at) > departedLife
	})
	for len(p.departed) > maxDeparted {
		oldest := slices.MinFunc(slices.Collect(maps.Keys(p.departed)), func(a, b string) int { return p.departed[a].at.Compare(p.departed[b].at) })
		delete(p.departed, oldest)
	}
}

func (d Description) equals(o Description) bool {
	return d.Address == o.Address && d.Certificate == o.Certificate && slices.Equal(d.GroupVersions, o.GroupVersions)
}

// replicaWith returns the live replica with a certificate.
func (p *Peers) replicaWith(fingerprint string) (name string, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	name, ok = p.senders[fingerprint]
	return name, ok
}

// senderWith returns the replica with a certificate, if it is live or departed recently.
func (p *Peers) senderWith(fingerprint string) (name string, ok bool) {
	if name, ok := p.replicaWith(fingerprint); ok {
		return name, true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	d, ok := p.departed[fingerprint]
	return d.name, ok && p.now().Sub(d.at) <= departedLife
}

// Reachable reports whether requests can be forwarded to a replica.
func (p *Peers) Reachable(name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.replicas[name].Address != ""
}

// Serving returns the names of the replicas that serve a group-version themselves because of their release.
func (p *Peers) Serving(gv schema.GroupVersion) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var names []string
	for name, d := range p.replicas {
		if _, found := slices.BinarySearch(d.GroupVersions, gv.String()); found && d.Address != "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// errNoneLeft is returned if replicas have ended since they were selected.
var errNoneLeft = errors.New("none of these replicas can be reached any more")

// Backend returns the backend for requests to any of these replicas, which must be sorted by name.
func (p *Peers) Backend(names []string) (*transport.Backend, error) {
	key := strings.Join(names, ",")
	p.mu.Lock()
	defer p.mu.Unlock()
	if b, ok := p.backends[key]; ok {
		return b, nil
	}
	spec := transport.Spec{Name: "replicas:" + key, ServerName: ServerName}
	for _, name := range names {
		if d := p.replicas[name]; d.Address != "" {
			spec.Endpoints = append(spec.Endpoints, transport.Endpoint{Address: d.Address})
		}
	}
	if len(spec.Endpoints) < len(names) {
		return nil, errNoneLeft
	}
	b, err := p.set.BackendWithTLS(spec, "", pki.PinnedClientConfig(ServerName, p.pair, func(c *x509.Certificate) bool {
		_, ok := p.replicaWith(fingerprint(c))
		return ok
	}))
	if err != nil {
		return nil, err
	}
	p.backends[key] = b
	return b, nil
}

// KeptBodies returns the number of bytes of request bodies that can be sent to another replica again.
func (p *Peers) KeptBodies() int64 { return p.set.KeptBodies() }

// Certificate returns a function that selects the certificate of a handshake. It returns the certificate for other
// replicas if the client requests ServerName, and otherwise the result of others.
func (p *Peers) Certificate(others func(*tls.ClientHelloInfo) (*tls.Certificate, error)) func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		if hello.ServerName == ServerName {
			return p.pair.GetCertificate(hello)
		}
		return others(hello)
	}
}

// fingerprint returns the same fingerprint as pki.KeyPair.
func fingerprint(c *x509.Certificate) string {
	sum := sha256.Sum256(c.Raw)
	return hex.EncodeToString(sum[:])
}
