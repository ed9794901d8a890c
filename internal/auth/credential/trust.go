package credential

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"

	"k8s.io/apiserver/pkg/authentication/user"

	"portico.dev/internal/pki"
	"portico.dev/internal/request"
)

// Trust is whose signatures count, and for what. The bundles may be replaced while in use; the rest is immutable.
type Trust struct {
	// Clients signs who a client is. Nil: certificates name nobody.
	Clients *pki.Bundle
	// FrontProxy signs who may speak for others. Nil: identity headers are never believed.
	FrontProxy *FrontProxy

	fence atomic.Pointer[fence]
}

// FrontProxy is how to recognise a front proxy and how to read what it states.
type FrontProxy struct {
	// Bundle is the front-proxy CA.
	Bundle *pki.Bundle
	// AllowedNames are the common names that a front proxy's certificate may have. Empty: any, which is safe only while
	// the front-proxy CA signs nothing but front proxies.
	AllowedNames []string
	// Headers are the names under which it states an identity.
	Headers Headers
}

// fence is what Check found for one pair of bundles.
type fence struct {
	clients, proxies *x509.CertPool
	shared           *x509.Certificate
}

// Check reports why the authorities must not be used together, or nil. It is asked again on every request that wants
// its headers believed, because a reload may bring together what was apart at start.
func (t *Trust) Check() error {
	shared := t.Shared()
	if shared == nil || len(t.FrontProxy.AllowedNames) > 0 {
		return nil
	}
	return fmt.Errorf("the client CA and the front-proxy CA overlap (%q) and no front proxy names are listed, so every client "+
		"certificate could assert any identity; use a front-proxy CA of its own, or list the proxies with --requestheader-allowed-names",
		shared.Subject)
}

// Shared is a certificate that makes the client CA and the front-proxy CA overlap, nil when they are apart.
func (t *Trust) Shared() *x509.Certificate {
	if t.Clients == nil || t.FrontProxy == nil {
		return nil
	}
	f := &fence{clients: t.Clients.Pool(), proxies: t.FrontProxy.Bundle.Pool()}
	if last := t.fence.Load(); last != nil && last.clients == f.clients && last.proxies == f.proxies {
		return last.shared
	}
	f.shared = overlap(t.Clients.Certificates(), t.FrontProxy.Bundle.Certificates())
	t.fence.Store(f)
	return f.shared
}

// Headers are the identity headers that are in use, none without a front proxy.
func (t *Trust) Headers() Headers {
	if t.FrontProxy == nil {
		return Headers{}
	}
	return t.FrontProxy.Headers
}

// shown is what the client certificate of a request amounts to.
type shown struct {
	// user is nil when the certificate names nobody: there is none, or it is a front proxy's that speaks for nobody.
	user user.Info
	// any is whether a certificate was presented that we have an opinion about.
	any bool
	// kind is KindFrontProxy or KindCertificate.
	kind string
}

// certificate verifies the client certificate of r, and the identity headers if it is a front proxy's.
func (t *Trust) certificate(r *http.Request) (shown, error) {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 || (t.Clients == nil && t.FrontProxy == nil) {
		return shown{}, nil
	}
	chain := r.TLS.PeerCertificates
	if err := checkChain(chain); err != nil {
		return shown{}, err
	}
	isProxy, proxyErr := t.frontProxy(chain)
	if isProxy {
		if err := t.checkApart(chain); err != nil {
			return shown{}, err
		}
		// A front proxy that speaks for nobody is nobody, even where the client CA would vouch for it too (A31).
		request.NoteExpiry(r.Context(), chain[0].NotAfter)
		u, err := t.FrontProxy.Headers.identity(r.Header)
		return shown{user: u, any: true, kind: KindFrontProxy}, err
	}
	if t.Clients == nil {
		return shown{}, proxyErr
	}
	if err := t.Clients.VerifyClient(chain); err != nil {
		return shown{}, errors.Join(err, proxyErr)
	}
	request.NoteExpiry(r.Context(), chain[0].NotAfter)
	u, err := certificateUser(chain[0])
	return shown{user: u, any: true, kind: KindCertificate}, err
}

// checkApart refuses a front proxy that the client CA vouches for too, unless it is listed by name. Check sees what the
// bundles have in common; a cross-signature that is in neither bundle shows only in the chain that somebody presents.
func (t *Trust) checkApart(chain []*x509.Certificate) error {
	if err := t.Check(); err != nil {
		return err
	}
	if t.Clients == nil || len(t.FrontProxy.AllowedNames) > 0 || t.Clients.VerifyClient(chain) != nil {
		return nil
	}
	return errors.New("the client certificate is good for the client CA and for the front-proxy CA; list the front proxies by name")
}

// frontProxy reports whether chain is a front proxy's. The error is why not, and may be of interest to a person only
// if the chain turns out to be no client's either.
func (t *Trust) frontProxy(chain []*x509.Certificate) (bool, error) {
	if t.FrontProxy == nil {
		return false, nil
	}
	if err := t.FrontProxy.Bundle.VerifyClient(chain); err != nil {
		return false, fmt.Errorf("as a front proxy: %w", err)
	}
	name := chain[0].Subject.CommonName
	if names := t.FrontProxy.AllowedNames; len(names) > 0 && !slices.Contains(names, name) {
		return false, fmt.Errorf("as a front proxy: x509: subject with cn=%s is not in the allowed list", name)
	}
	return true, nil
}
