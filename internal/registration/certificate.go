package registration

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"go.uber.org/zap"

	"portico.dev/internal/pki"
)

// CertificateConfig says what the certificate is for.
type CertificateConfig struct {
	// Names are the DNS names: <service>.<namespace>.svc, localhost. At least one.
	Names []string
	// IPs are the addresses.
	IPs []net.IP
	// TTL is a certificate's life. It is renewed after two thirds of it. Default 90 days.
	TTL time.Duration
	// AuthorityTTL is an authority's life. It is replaced after two thirds of it. Default a year, and at least twice TTL.
	AuthorityTTL time.Duration
	// Dir is where everything is kept: state.json with the keys (0600), and ca-bundle.crt (0644) for people. It is made
	// if it is missing (0700). Empty: memory.
	Dir string
	// Grace is how long after the registration has the new authority the first certificate is signed by it: as long as
	// the slowest front door takes to see a changed APIService. Default a minute.
	Grace time.Duration
	// Overlap is how long an authority that signs no more stays in the caBundle. Default a day.
	Overlap time.Duration
	// Logger is told of renewals. Default: silence.
	Logger *zap.Logger
}

func (c CertificateConfig) withDefaults() (CertificateConfig, error) {
	if len(c.Names) == 0 {
		return c, errors.New("a serving certificate needs at least one name")
	}
	for _, d := range []struct {
		value     *time.Duration
		otherwise time.Duration
	}{
		{&c.TTL, 90 * 24 * time.Hour}, {&c.AuthorityTTL, 365 * 24 * time.Hour}, {&c.Grace, time.Minute}, {&c.Overlap, 24 * time.Hour},
	} {
		if *d.value <= 0 {
			*d.value = d.otherwise
		}
	}
	c.AuthorityTTL = max(c.AuthorityTTL, 2*c.TTL)
	c.Logger = cmp.Or(c.Logger, zap.NewNop())
	return c, nil
}

// Certificate is a serving certificate that renews itself while Run runs.
type Certificate struct {
	config CertificateConfig
	log    *zap.Logger
	pair   *pki.KeyPair
	// changed and published have a token while the caBundle has changed, or is known to have been published.
	changed, published chan struct{}

	mu    sync.Mutex // guards what follows
	state state
	// since is when the registration was first known to hold the next authority.
	since time.Time
}

// NewCertificate reads what CertificateConfig.Dir holds and makes what is missing: an authority and a first certificate. It refuses a
// directory whose keys others may read.
func NewCertificate(c CertificateConfig) (*Certificate, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Certificate{config: c, log: c.Logger, changed: make(chan struct{}, 1), published: make(chan struct{}, 1)}
	if s.state, err = load(c.Dir); err != nil {
		return nil, err
	}
	if err := s.complete(); err != nil {
		return nil, err
	}
	if s.pair, err = pki.StaticKeyPair(s.state.serving.cert, s.state.serving.key); err != nil {
		return nil, fmt.Errorf("own serving certificate: %w", err)
	}
	return s, nil
}

// KeyPair is what a listener shows. It is renewed in place.
func (s *Certificate) KeyPair() *pki.KeyPair { return s.pair }

// CABundle is what a client must trust now. It changes while authorities are replaced; see Changed.
func (s *Certificate) CABundle() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.bundle()
}

// Changed has a token when CABundle has changed and is to be published. It is for one reader.
func (s *Certificate) Changed() <-chan struct{} { return s.changed }

// Published tells that front doors have been given bundle. Without it no certificate is ever signed by a new authority:
// a server whose bundle nobody publishes keeps the one that they know.
func (s *Certificate) Published(bundle []byte) {
	s.mu.Lock()
	news := s.state.next != nil && s.since.IsZero() && contains(bundle, s.state.next.Certificate)
	if news {
		s.since = time.Now()
	}
	s.mu.Unlock()
	if news {
		signal(s.published)
	}
}

// signal puts a token where there is none; one that is there says the same.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// retry is when a renewal that did not work is tried again: long before anything ends.
const retry = time.Minute

// Run renews in time, until ctx ends.
func (s *Certificate) Run(ctx context.Context) error {
	for {
		next, err := s.step()
		if err != nil {
			s.log.Error("renew serving certificate", zap.Error(err), zap.Time("ends", s.pair.Leaf().NotAfter))
			next = time.Now().Add(retry)
		}
		timer := time.NewTimer(max(time.Until(next), time.Second))
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-s.published:
		case <-timer.C:
		}
		timer.Stop()
	}
}
