package delegated

import (
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"portico.dev/internal/auth/authn"
	"portico.dev/internal/pki"
)

// The keys of the ConfigMap, as kube-apiserver writes it.
const (
	clientCAKey      = "client-ca-file"
	proxyCAKey       = "requestheader-client-ca-file"
	allowedNamesKey  = "requestheader-allowed-names"
	userHeadersKey   = "requestheader-username-headers"
	uidHeadersKey    = "requestheader-uid-headers"
	groupHeadersKey  = "requestheader-group-headers"
	extraPrefixesKey = "requestheader-extra-headers-prefix"
)

// published is the content of the ConfigMap, decoded and checked. It never changes.
type published struct {
	trust *authn.Trust
	pool  *x509.CertPool // both authorities, for the handshake
	// data is what it was made of, to tell a change from a repetition.
	data map[string]string
}

// read decodes the ConfigMap, or says what is wrong with it.
func read(cm *corev1.ConfigMap) (*published, error) {
	p := &published{trust: &authn.Trust{}, pool: x509.NewCertPool(), data: cm.Data}
	if text := cm.Data[clientCAKey]; text != "" {
		bundle, err := pki.StaticBundle([]byte(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", clientCAKey, err)
		}
		p.trust.Clients = bundle
		addAll(p.pool, bundle)
	}
	if text := cm.Data[proxyCAKey]; text != "" {
		proxy, err := readFrontProxy(cm.Data)
		if err != nil {
			return nil, err
		}
		p.trust.FrontProxy = proxy
		addAll(p.pool, proxy.Bundle)
	}
	if err := p.trust.Check(); err != nil {
		return nil, err
	}
	return p, nil
}

func readFrontProxy(data map[string]string) (*authn.FrontProxy, error) {
	bundle, err := pki.StaticBundle([]byte(data[proxyCAKey]))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", proxyCAKey, err)
	}
	proxy := &authn.FrontProxy{Bundle: bundle}
	for _, list := range []struct {
		key  string
		into *[]string
	}{
		{allowedNamesKey, &proxy.AllowedNames},
		{userHeadersKey, &proxy.Headers.Username},
		{uidHeadersKey, &proxy.Headers.UID},
		{groupHeadersKey, &proxy.Headers.Group},
		{extraPrefixesKey, &proxy.Headers.ExtraPrefix},
	} {
		text, ok := data[list.key]
		if !ok {
			continue
		}
		if err := json.Unmarshal([]byte(text), list.into); err != nil {
			return nil, fmt.Errorf("%s: %w", list.key, err)
		}
		if slices.Contains(*list.into, "") {
			// An empty extra prefix would turn every header into an identity, an empty name a certificate without one.
			return nil, fmt.Errorf("%s: an entry is empty", list.key)
		}
	}
	if len(proxy.Headers.Username) == 0 {
		return nil, errors.New(userHeadersKey + ": names no header")
	}
	return proxy, nil
}

func addAll(pool *x509.CertPool, b *pki.Bundle) {
	for _, c := range b.Certificates() {
		pool.AddCert(c)
	}
}
