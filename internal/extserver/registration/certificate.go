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

// CertificateConfig configures a Certificate.
type CertificateConfig struct {
	// Names are the DNS names, such as <service>.<namespace>.svc and localhost. At least one is required.
	Names []string
	// IPs are the IP addresses.
	IPs []net.IP
	// TTL is the lifetime of a certificate. It is renewed after two thirds of its lifetime. Default: 90 days.
	TTL time.Duration
	// AuthorityTTL is the lifetime of an authority. It is replaced after two thirds of its lifetime. Default: one year. At
	// least twice TTL.
	AuthorityTTL time.Duration
	// Dir is the directory of the state: state.json with the keys (0600), and ca-bundle.crt (0644) for operators. It is
	// created if it does not exist (0700). If empty, the state is kept in memory.
	Dir string
	// Grace is the delay after the registration has the new authority and before the first certificate is signed by it. It
	// must be as long as the slowest front door needs to see a changed APIService. Default: one minute.
	Grace time.Duration
	// Overlap is how long a replaced authority stays in the caBundle. Default: one day.
	Overlap time.Duration
	// Logger logs renewals. Default: no logging.
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

// Certificate is a serving certificate that is renewed automatically while Run runs.
type Certificate struct {
	config CertificateConfig
	log    *zap.Logger
	pair   *pki.KeyPair
	// changed and published have a token if the caBundle has changed or has been published.
	changed, published chan struct{}

	mu    sync.Mutex // guards the fields below
	state state
	// nextPublished is when the next authority was first known to be in the registration.
	nextPublished time.Time
}

// NewCertificate reads the state in CertificateConfig.Dir. It creates a missing authority or certificate and saves the state.
// It returns an error if all users can access the file with the keys.
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

// KeyPair returns the certificate for a listener. It is renewed in place.
func (s *Certificate) KeyPair() *pki.KeyPair { return s.pair }

// CABundle returns the current CA certificates. They change while an authority is replaced; see Changed.
func (s *Certificate) CABundle() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.bundle()
}

// Changed returns a channel that has a token when CABundle has changed and must be published. It must have only one reader.
func (s *Certificate) Changed() <-chan struct{} { return s.changed }

// Published reports that front doors have received bundle. Without this call, no certificate is signed by a new authority,
// and the server keeps using the authority that its clients know.
func (s *Certificate) Published(bundle []byte) {
	s.mu.Lock()
	news := s.state.next != nil && s.nextPublished.IsZero() && contains(bundle, s.state.next.Certificate)
	if news {
		s.nextPublished = time.Now()
	}
	s.mu.Unlock()
	if news {
		signal(s.published)
	}
}

// signal adds a token to c, unless c already has one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// retry is the delay before a failed renewal is retried. It is much shorter than the remaining lifetime of certificates.
const retry = time.Minute

// Run renews the certificate until ctx ends.
func (s *Certificate) Run(ctx context.Context) error {
	for {
		next, err := s.step()
		if err != nil {
			s.log.Error("failed to renew the serving certificate", zap.Error(err), zap.Time("ends", s.pair.Leaf().NotAfter))
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
