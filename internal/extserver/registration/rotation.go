package registration

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"go.uber.org/zap"

	"portico.dev/internal/pki"
)

// The replacement of an authority, and the reason for each delay:
//
//	next      a new authority is created and added to the bundle; the old one still signs
//	published the registration contains this bundle (Certificate.Published), plus CertificateConfig.Grace: all front
//	          doors trust both
//	switch    the serving certificate is signed by the new authority; the key of the old one is deleted
//	previous  the old one stays in the bundle for CertificateConfig.Overlap, for front doors with a handshake in
//	          progress and replicas that lag behind; then it is removed
//
// After a restart at any point, the replacement continues from the saved state, but the grace period starts over.

// complete creates the missing parts of the state that are required to serve. It keeps everything that a front door may
// trust.
func (s *Certificate) complete() error {
	st := &s.state
	now := time.Now()
	if st.authority == nil || now.After(st.authority.Certificate.NotAfter) {
		if st.authority != nil {
			s.log.Warn("CA of the serving certificate expired while the server was stopped; creating a new one",
				zap.Time("ended", st.authority.Certificate.NotAfter))
		}
		authority, err := pki.NewAuthorityFor(s.config.Names[0]+"-ca", s.config.AuthorityTTL)
		if err != nil {
			return err
		}
		*st = state{authority: authority}
	}
	if leaf := st.leaf(); leaf == nil || !s.fits(leaf) || now.After(s.due(leaf)) {
		if err := s.issue(); err != nil {
			return err
		}
	}
	return st.save(s.config.Dir)
}

// fits reports whether a certificate has the configured names and was signed by the authority.
func (s *Certificate) fits(leaf *x509.Certificate) bool {
	return slices.Equal(leaf.DNSNames, s.config.Names) && slices.EqualFunc(leaf.IPAddresses, s.config.IPs, net.IP.Equal) &&
		leaf.CheckSignatureFrom(s.state.authority.Certificate) == nil
}

// due returns when a certificate must be renewed: after two thirds of its lifetime. A certificate that expires with its
// authority is not renewed before that, because the authority cannot sign a longer one.
func (s *Certificate) due(leaf *x509.Certificate) time.Time {
	if !leaf.NotAfter.Before(s.state.authority.Certificate.NotAfter) {
		return leaf.NotAfter
	}
	return renewalTime(leaf)
}

func renewalTime(c *x509.Certificate) time.Time {
	return c.NotBefore.Add(c.NotAfter.Sub(c.NotBefore) / 3 * 2)
}

// issue issues a new certificate.
func (s *Certificate) issue() error {
	cert, key, err := s.state.authority.Issue(pki.Leaf{
		CommonName: s.config.Names[0], DNSNames: s.config.Names, IPs: s.config.IPs, Server: true, TTL: s.config.TTL,
	})
	if err != nil {
		return err
	}
	s.state.serving = pair{cert: cert, key: key}
	return nil
}

// step performs all transitions that are due and returns the time of the next one.
func (s *Certificate) step() (time.Time, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.state
	for _, move := range []func(time.Time) (bool, error){s.dropPrevious, s.makeNext, s.switchOver, s.renew} {
		moved, err := move(time.Now())
		if err == nil && moved {
			err = s.state.save(s.config.Dir)
		}
		if err == nil && moved {
			err = s.pair.Set(s.state.serving.cert, s.state.serving.key)
		}
		if err != nil {
			s.state = before // an unsaved transition has not taken place
			return time.Time{}, err
		}
		if moved && string(before.bundle()) != string(s.state.bundle()) {
			signal(s.changed)
		}
		before = s.state
	}
	return s.nextStep(), nil
}

func (s *Certificate) nextStep() time.Time {
	next := renewalTime(s.state.authority.Certificate)
	if s.state.next != nil {
		next = s.state.authority.Certificate.NotAfter
		if !s.nextPublished.IsZero() {
			next = s.nextPublished.Add(s.config.Grace)
		}
	}
	if s.state.previous != nil {
		next = earlier(next, s.state.previousUntil)
	}
	return earlier(next, s.due(s.pair.Leaf()))
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func (s *Certificate) dropPrevious(now time.Time) (bool, error) {
	if s.state.previous == nil || now.Before(s.state.previousUntil) {
		return false, nil
	}
	s.log.Info("removed the previous CA from the caBundle")
	s.state.previous = nil
	return true, nil
}

func (s *Certificate) makeNext(now time.Time) (bool, error) {
	if s.state.next != nil || now.Before(renewalTime(s.state.authority.Certificate)) {
		return false, nil
	}
	next, err := pki.NewAuthorityFor(s.config.Names[0]+"-ca", s.config.AuthorityTTL)
	if err != nil {
		return false, err
	}
	s.state.next, s.nextPublished = next, time.Time{}
	s.log.Info("added a new CA to the caBundle; the serving certificate is replaced after the caBundle is published",
		zap.Time("ends", next.Certificate.NotAfter), zap.Time("present ends", s.state.authority.Certificate.NotAfter))
	return true, nil
}

func (s *Certificate) switchOver(now time.Time) (bool, error) {
	if s.state.next == nil || s.nextPublished.IsZero() || now.Before(s.nextPublished.Add(s.config.Grace)) {
		return false, nil
	}
	old := s.state.authority
	s.state.authority, s.state.next = s.state.next, nil
	if err := s.issue(); err != nil {
		return false, err
	}
	s.state.previous, s.state.previousUntil = old.Certificate, now.Add(s.config.Overlap)
	s.log.Info("issued the serving certificate with the new CA")
	return true, nil
}

func (s *Certificate) renew(now time.Time) (bool, error) {
	leaf := s.state.leaf()
	if leaf == nil {
		return false, errors.New("the serving certificate does not parse")
	}
	if now.Before(s.due(leaf)) {
		return false, nil
	}
	if s.due(leaf).Equal(leaf.NotAfter) {
		return false, fmt.Errorf("the authority has ended, and nobody has published the next one: give front doors the caBundle (%s), or let the server register itself", bundleFile)
	}
	if err := s.issue(); err != nil {
		return false, err
	}
	s.log.Info("renewed the serving certificate")
	return true, nil
}
