package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"

	"portico.dev/internal/pki"
)

// Credentials authenticate the front door at the API servers. The methods may be called concurrently.
type Credentials interface {
	// Apply adds the credentials to the header of a request.
	Apply(ctx context.Context, header http.Header) error
	// Refused is called when the API server has refused a request with the credentials.
	Refused(ctx context.Context)
	// Certificate returns the client certificate, or nil. After it returns another pair, new requests use new connections.
	Certificate() *pki.KeyPair
}

// StaticCredentials are a bearer token, or a certificate and its key, which may be replaced while in use. The zero value has no
// credentials, and requests fail.
type StaticCredentials struct {
	current atomic.Pointer[secret]
}

// secret is the content of StaticCredentials.
type secret struct {
	token       []string // field Authorization, which must not be modified; nil for a certificate
	certificate *pki.KeyPair
}

// Use replaces the credentials by a token, or by a certificate and its key in PEM. If they are not valid, the last ones remain.
func (s *StaticCredentials) Use(token string, cert, key []byte) error {
	switch {
	case token != "" && len(cert)+len(key) > 0:
		return errors.New("the credentials contain both a token and a certificate; one of them is required")
	case token != "":
		if strings.ContainsFunc(token, func(c rune) bool { return c <= ' ' || c >= 0x7f }) {
			return errors.New("the token contains bytes that a bearer token cannot contain")
		}
		s.current.Store(&secret{token: []string{"Bearer " + token}})
		return nil
	case len(cert) == 0 || len(key) == 0:
		return errors.New("the credentials contain neither a token nor a certificate with its key")
	}
	made, err := pki.StaticKeyPair(cert, key)
	if err != nil {
		return fmt.Errorf("the client certificate: %w", err)
	}
	s.UseCertificate(made)
	return nil
}

// UseCertificate replaces the credentials by a certificate that its owner renews.
func (s *StaticCredentials) UseCertificate(pair *pki.KeyPair) {
	s.current.Store(&secret{certificate: pair})
}

// Apply implements Credentials.
func (s *StaticCredentials) Apply(_ context.Context, header http.Header) error {
	current := s.current.Load()
	switch {
	case current == nil:
		return errors.New("there are none yet")
	case current.token != nil:
		header["Authorization"] = current.token
	}
	return nil
}

// Refused implements Credentials.
func (s *StaticCredentials) Refused(context.Context) {}

// Certificate implements Credentials.
func (s *StaticCredentials) Certificate() *pki.KeyPair {
	if current := s.current.Load(); current != nil {
		return current.certificate
	}
	return nil
}
