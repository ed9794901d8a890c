package adoption

import (
	"bytes"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"slices"

	"portico.dev/internal/pki"
)

// The ConfigMap with the front proxies that extension servers must trust. An API server adds its own data and keeps
// the rest.
const (
	TrustNamespace = "kube-system"
	TrustConfigMap = "extension-apiserver-authentication"

	proxyCAKey      = "requestheader-client-ca-file"
	allowedNamesKey = "requestheader-allowed-names"
)

// Names of the data that a gateway publishes in its namespace, for the adoption of APIServices.
const (
	// PublishedConfigMap contains the authorities of the gateway's certificates, in PEM.
	PublishedConfigMap = "portico-gateway"
	// PublishedServingCA is the key of the authorities that verify the serving certificate: the caBundle of adopted
	// APIServices.
	PublishedServingCA = "ca.crt"
	// PublishedFrontProxyCA is the key of the authorities that verify the front-proxy client certificate.
	PublishedFrontProxyCA = "front-proxy-ca.crt"
)

// FrontProxyName returns the common name of the gateway's front-proxy client certificate.
func (g Service) FrontProxyName() string { return g.ServerName() }

// FrontProxyAuthorityName returns the common name of its authority. It distinguishes this authority from other
// gateways' and all other authorities.
func (g Service) FrontProxyAuthorityName() string { return g.ServerName() + " front proxy CA" }

// ServingAuthorityName returns the common name of the authority of the serving certificate.
func (g Service) ServingAuthorityName() string { return g.ServerName() + " CA" }

// IsFrontProxyAuthority reports whether a certificate has the name of this gateway's authority. The name proves
// nothing. Use it only to remove authorities that were added before.
func (g Service) IsFrontProxyAuthority(c *x509.Certificate) bool {
	return c.Subject.CommonName == g.FrontProxyAuthorityName()
}

// Publish returns the data of the ConfigMap with this gateway's authorities and name added, and all other entries
// unchanged. It removes authorities of this gateway that are not in the bundle. If any name is allowed, it adds no
// name, because a list with only this gateway's name would exclude the API server's front proxy.
func (g Service) Publish(data map[string]string, authorities []byte) (map[string]string, error) {
	ours, err := pki.ParseBundle(authorities)
	if err != nil {
		return nil, fmt.Errorf("our own authorities: %w", err)
	}
	return g.rewrite(data, ours)
}

// Withdraw returns the data of the ConfigMap without the entries of this gateway.
func (g Service) Withdraw(data map[string]string) (map[string]string, error) {
	return g.rewrite(data, nil)
}

func (g Service) rewrite(data map[string]string, ours []*x509.Certificate) (map[string]string, error) {
	if data[proxyCAKey] == "" {
		return nil, fmt.Errorf("%s is empty: the API server has no front proxy, which takes its flag --requestheader-client-ca-file", proxyCAKey)
	}
	present, err := pki.ParseBundle([]byte(data[proxyCAKey]))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", proxyCAKey, err)
	}
	out := maps.Clone(data)
	if out[proxyCAKey], err = g.rewriteBundle(data[proxyCAKey], present, ours); err != nil {
		return nil, err
	}
	if out[allowedNamesKey], err = g.rewriteNames(data[allowedNamesKey], len(ours) > 0); err != nil {
		return nil, err
	}
	if _, had := data[allowedNamesKey]; !had {
		delete(out, allowedNamesKey)
	}
	return out, nil
}

// rewriteBundle returns text unchanged if it contains exactly the given authorities of this gateway.
func (g Service) rewriteBundle(text string, present, ours []*x509.Certificate) (string, error) {
	wanted := func(c *x509.Certificate) bool { return slices.ContainsFunc(ours, c.Equal) }
	var out bytes.Buffer
	changed, left := false, 0
	for _, c := range present {
		if g.IsFrontProxyAuthority(c) && !wanted(c) {
			changed = true
			continue
		}
		left++
		out.Write(encode(c))
	}
	if left == 0 {
		return "", fmt.Errorf("%s has no authority but this gateway's; without it, no front proxy would be believed", proxyCAKey)
	}
	for _, c := range ours {
		if !slices.ContainsFunc(present, c.Equal) {
			changed = true
			out.Write(encode(c))
		}
	}
	if !changed {
		return text, nil
	}
	return out.String(), nil
}

func encode(c *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
}

// rewriteNames returns text unchanged if the name is already present or absent as required.
func (g Service) rewriteNames(text string, wanted bool) (string, error) {
	var names []string
	if text != "" {
		if err := json.Unmarshal([]byte(text), &names); err != nil {
			return "", fmt.Errorf("%s: %w", allowedNamesKey, err)
		}
	}
	name := g.FrontProxyName()
	switch has := slices.Contains(names, name); {
	case len(names) == 0, has == wanted:
		return text, nil
	case wanted:
		names = append(names, name)
	case len(names) == 1:
		return "", fmt.Errorf("%s has no name but this gateway's; an empty list would allow every name", allowedNamesKey)
	default:
		names = slices.DeleteFunc(names, func(n string) bool { return n == name })
	}
	encoded, err := json.Marshal(names)
	return string(encoded), err
}
