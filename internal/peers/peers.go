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

// ServerName is the name by which replicas ask each other for their certificates.
const ServerName = "peer.portico.internal"

// Section is how replicas exchange what they publish: store.Section.
type Section interface {
	Publish(value []byte)
	Received() (others map[string][]byte, leads bool)
	Changed() <-chan struct{}
}

// Config is what Peers needs. Everything but Metrics and Changed is required.
type Config struct {
	// Section is for the Descriptions of replicas.
	Section Section
	// Name is that of this replica.
	Name string
	// Address is host:port where the other replicas reach this one. Empty: they do not.
	Address string
	// GroupVersions are those that this replica serves itself because of its release, not because of objects that all have.
	GroupVersions []schema.GroupVersion
	// Transport has options for connections to the other replicas.
	Transport transport.Options
	// Metrics may be nil.
	Metrics *metrics.Peers
	// Changed, if set, is called when other replicas can be reached than before. It must not block.
	Changed func()
	Logger  *zap.Logger
}

// Description is what a replica publishes about itself.
type Description struct {
	// Address is host:port; empty when it takes no requests of other replicas.
	Address string `json:"address,omitempty"`
	// Certificate is the SHA-256 of its certificate for other replicas, in hex.
	Certificate string `json:"certificate"`
	// GroupVersions are those of Config.
	GroupVersions []string `json:"groupVersions,omitempty"`
}

// Peers are the other replicas, and the identity of this one among them. All methods are safe for concurrent use.
type Peers struct {
	config Config
	pair   *pki.KeyPair
	key    crypto.PrivateKey
	set    *transport.Set
	now    func() time.Time
	// unreadable is for Run.
	unreadable unreadable

	mu       sync.Mutex // guards what follows
	replicas map[string]Description
	// senders are the names of replicas by the fingerprints of their certificates.
	senders map[string]string
	// departed are those that sent requests until a while ago, by the same.
	departed map[string]departure
	skewed   map[string]bool // those whose clocks differ
	backends map[string]*transport.Backend
}

// A replica that alone has lost etcd cannot renew its lease, and hands on requests all the more. So the others go on to believe it for
// departedLife after its lease ended. It is asked for nothing by then.
const (
	departedLife = 10 * time.Minute
	maxDeparted  = 100
)

// departure is the end of a replica's lease.
type departure struct {
	name string
	at   time.Time
}

// New makes the certificate of this process and publishes it. It starts nothing.
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
	o.Certificate, o.AllowLoopback = nil, true // who they are is in their certificates, wherever they are
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

// Run follows the other replicas until ctx ends, and then ends the connections to them.
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

// update reads the descriptions and reports whether they differ from those of before.
func (p *Peers) update() bool {
	received, _ := p.config.Section.Received()
	replicas, senders := make(map[string]Description, len(received)), make(map[string]string, len(received))
	for name, text := range received {
		var d Description
		if len(text) == 0 {
			continue // a release before this package, or it has just begun
		}
		if err := json.Unmarshal(text, &d); err != nil {
			if p.unreadable.add(name, text) {
				p.config.Logger.Warn("ignoring how to reach a replica, perhaps one of another release: no request is handed to it", zap.String("replica", name), zap.Error(err))
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
			p.config.Metrics.Gone(name)
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

// depart records which of the senders are not among those that live now. It is called with mu held.
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

// senderWith returns the replica with a certificate, if it lives or did a while ago.
func (p *Peers) senderWith(fingerprint string) (name string, ok bool) {
	if name, ok := p.replicaWith(fingerprint); ok {
		return name, true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	d, ok := p.departed[fingerprint]
	return d.name, ok && p.now().Sub(d.at) <= departedLife
}

// Reachable reports whether requests can be handed to a replica.
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

// errNoneLeft is when replicas have ended since they were chosen.
var errNoneLeft = errors.New("none of these replicas can be reached any more")

// Backend returns how requests are handed to any of these replicas, which must be sorted by name.
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

// Certificate chooses the certificate of a handshake: that for other replicas if one asks for it, else whatever others says.
func (p *Peers) Certificate(others func(*tls.ClientHelloInfo) (*tls.Certificate, error)) func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		if hello.ServerName == ServerName {
			return p.pair.GetCertificate(hello)
		}
		return others(hello)
	}
}

// fingerprint is that of pki.KeyPair.
func fingerprint(c *x509.Certificate) string {
	sum := sha256.Sum256(c.Raw)
	return hex.EncodeToString(sum[:])
}
