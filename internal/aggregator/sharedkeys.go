package aggregator

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"slices"

	"portico.dev/internal/replicas/peers"
)

// wireSharedKeys builds the comparison of the keys that replicas must share.
func (h *parts) wireSharedKeys() {
	h.sharedKeys = peers.NewSharedKeys(peers.SharedKeysConfig{
		Section: h.replicas.Section("keys"), Name: h.replicas.Name(), Oldest: h.replicas.Oldest, Keys: h.keysToShare, Logger: h.log.Named("replicas"),
	})
}

// keysToShare returns the fingerprints of this replica's current keys.
func (h *parts) keysToShare() map[peers.Purpose]peers.Keys {
	signing, verifying := h.tokens.KeyIDs()
	shared := map[peers.Purpose]peers.Keys{
		peers.ServiceAccountKeys:   {Accepts: verifying},
		peers.ServiceAccountIssuer: {Uses: []string{h.issuer}, Accepts: []string{h.issuer}},
		peers.FrontProxyCA:         {Uses: fingerprints(h.proxyClientCert.Roots(h.frontProxy)), Accepts: fingerprints(h.frontProxy.Certificates())},
	}
	if signing != "" {
		shared[peers.ServiceAccountKeys] = peers.Keys{Uses: []string{signing}, Accepts: verifying}
	}
	if used := h.servingCert.Roots(h.rootCA); len(used) > 0 { // otherwise the CA that clients trust is unknown
		shared[peers.ServingCA] = peers.Keys{Uses: fingerprints(used), Accepts: fingerprints(h.rootCA.Certificates())}
	}
	clients := peers.Keys{Accepts: fingerprints(h.clientCA.Certificates())}
	if own := fingerprints([]*x509.Certificate{h.keys.Client().Certificate}); slices.Contains(clients.Accepts, own[0]) {
		clients.Uses = own // for "aggregator kubeconfig"
	}
	shared[peers.ClientCA] = clients
	writes, reads := h.encryption.Keys()
	shared[peers.EncryptionKeys] = peers.Keys{Uses: writes, Accepts: reads}
	return shared
}

// fingerprints returns the fingerprints of the public keys. A certificate that is renewed with the same key keeps its
// fingerprint.
func fingerprints(certificates []*x509.Certificate) []string {
	var out []string
	for _, c := range certificates {
		sum := sha256.Sum256(c.RawSubjectPublicKeyInfo)
		out = append(out, hex.EncodeToString(sum[:8]))
	}
	slices.Sort(out)
	return slices.Compact(out)
}
