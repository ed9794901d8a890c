// Package servingcert keeps an extension server's own serving certificate: made by itself, renewed before it ends.
//
// The authority that signs it lives in memory, outlives every certificate, and signs nothing else: its key is never
// written anywhere. A restarted server has a new authority and registers it (caBundle of its APIServices); who does not
// let it register gives it a certificate from files instead.
package servingcert

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"go.uber.org/zap"

	"portico.dev/internal/pki"
)

// Config says what the certificate is for.
type Config struct {
	// Names are the DNS names: <service>.<namespace>.svc, localhost. At least one.
	Names []string
	// IPs are the addresses.
	IPs []net.IP
	// TTL is a certificate's life. It is renewed after two thirds of it. Default 90 days.
	TTL time.Duration
	// Logger is told of renewals. Default: silence.
	Logger *zap.Logger
}

// Certificate is a serving certificate that renews itself while Run runs.
type Certificate struct {
	config    Config
	authority *pki.Authority
	pair      *pki.KeyPair
}

// New makes an authority and a first certificate.
func New(c Config) (*Certificate, error) {
	if c.TTL <= 0 {
		c.TTL = 90 * 24 * time.Hour
	}
	if c.Logger == nil {
		c.Logger = zap.NewNop()
	}
	if len(c.Names) == 0 {
		return nil, errors.New("a serving certificate needs at least one name")
	}
	authority, err := pki.NewAuthority(c.Names[0] + "-ca")
	if err != nil {
		return nil, err
	}
	s := &Certificate{config: c, authority: authority}
	certPEM, keyPEM, err := s.issue()
	if err != nil {
		return nil, err
	}
	if s.pair, err = pki.StaticKeyPair(certPEM, keyPEM); err != nil {
		return nil, fmt.Errorf("own serving certificate: %w", err)
	}
	return s, nil
}

// KeyPair is what a listener shows. It is renewed in place.
func (s *Certificate) KeyPair() *pki.KeyPair { return s.pair }

// CABundle is what a client must trust.
func (s *Certificate) CABundle() []byte { return s.authority.PEM() }

// Run renews the certificate in time, until ctx ends.
func (s *Certificate) Run(ctx context.Context) error {
	next := time.NewTimer(time.Until(s.due()))
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-next.C:
		}
		if err := s.renew(); err != nil {
			s.config.Logger.Error("renew serving certificate", zap.Error(err), zap.Time("ends", s.pair.Leaf().NotAfter))
			next.Reset(time.Minute)
			continue
		}
		s.config.Logger.Info("renewed serving certificate", zap.Time("ends", s.pair.Leaf().NotAfter))
		next.Reset(time.Until(s.due()))
	}
}

// due is when the certificate is to be renewed: after two thirds of its life.
func (s *Certificate) due() time.Time {
	leaf := s.pair.Leaf()
	return leaf.NotAfter.Add(-s.config.TTL / 3)
}

func (s *Certificate) renew() error {
	certPEM, keyPEM, err := s.issue()
	if err != nil {
		return err
	}
	return s.pair.Set(certPEM, keyPEM)
}

func (s *Certificate) issue() (certPEM, keyPEM []byte, err error) {
	return s.authority.Issue(pki.Leaf{
		CommonName: s.config.Names[0], DNSNames: s.config.Names, IPs: s.config.IPs, Server: true, TTL: s.config.TTL,
	})
}
