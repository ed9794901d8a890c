package oidc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"k8s.io/apiserver/pkg/apis/apiserver"

	"portico.dev/internal/pki"
)

const (
	// fetchTimeout limits both requests of a fetch together.
	fetchTimeout = 10 * time.Second
	// maxDocumentBytes limits an issuer's response. Real documents have a few kilobytes.
	maxDocumentBytes = 1 << 20
)

// fetcher fetches the keys of one issuer.
type fetcher struct {
	issuer    string
	discovery string
	client    *http.Client
}

func newFetcher(issuer apiserver.Issuer) (*fetcher, error) {
	options := pki.ClientOptions{}
	if issuer.CertificateAuthority != "" {
		options.Roots = []byte(issuer.CertificateAuthority)
	}
	config, err := pki.ClientConfig(options)
	if err != nil {
		return nil, err
	}
	f := &fetcher{issuer: issuer.URL, discovery: issuer.DiscoveryURL}
	if f.discovery == "" {
		f.discovery = strings.TrimSuffix(issuer.URL, "/") + "/.well-known/openid-configuration"
	}
	f.client = &http.Client{
		Transport: &http.Transport{
			TLSClientConfig: config, ForceAttemptHTTP2: true, Proxy: http.ProxyFromEnvironment,
			DialContext:         (&net.Dialer{Timeout: fetchTimeout / 2}).DialContext,
			TLSHandshakeTimeout: fetchTimeout / 2, MaxResponseHeaderBytes: 64 << 10,
			// Fetches are minutes apart, and a new connection cannot be a dead one.
			DisableKeepAlives: true,
		},
		Timeout: fetchTimeout,
		// A redirect leads away from the configured issuer (attack row A6).
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return f, nil
}

// keys fetches the discovery document and the key set.
func (f *fetcher) keys(ctx context.Context) (keySet, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	var provider struct {
		Issuer string `json:"issuer"`
		Keys   string `json:"jwks_uri"`
	}
	if err := f.get(ctx, f.discovery, &provider); err != nil {
		return nil, err
	}
	if provider.Issuer != f.issuer {
		return nil, fmt.Errorf("%s is the document of issuer %q; jwt.issuer.url must be the same, to the letter", f.discovery, provider.Issuer)
	}
	if u, err := url.Parse(provider.Keys); err != nil || u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("%s: jwks_uri %q is not an https URL", f.discovery, provider.Keys)
	}
	var document jwks
	if err := f.get(ctx, provider.Keys, &document); err != nil {
		return nil, err
	}
	set := document.set()
	if len(set) == 0 {
		return nil, fmt.Errorf("%s holds no key that signatures can be verified with", provider.Keys)
	}
	return set, nil
}

func (f *fetcher) get(ctx context.Context, from string, into any) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, from, nil)
	if err != nil {
		return err
	}
	r.Header.Set("Accept", "application/json")
	response, err := f.client.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("get %s: %s", from, response.Status)
	}
	data, err := io.ReadAll(io.LimitReader(response.Body, maxDocumentBytes+1))
	switch {
	case err != nil:
		return fmt.Errorf("read %s: %w", from, err)
	case len(data) > maxDocumentBytes:
		return fmt.Errorf("read %s: it is larger than %d bytes", from, maxDocumentBytes)
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("read %s: %w", from, err)
	}
	return nil
}

// refusingTransport fails every request. It is the transport of the OIDC authenticator in k8s.io/apiserver, which
// would otherwise follow references in claims.
type refusingTransport struct{}

var errReference = errors.New("references in tokens are not followed; have the issuer put the claim into the token itself")

func (refusingTransport) RoundTrip(*http.Request) (*http.Response, error) { return nil, errReference }
