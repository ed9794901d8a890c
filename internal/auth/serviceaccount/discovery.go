package serviceaccount

import (
	"crypto/ecdsa"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"maps"
	"math/big"
	"slices"
	"strings"
)

// jsonWebKey is a public key as defined in RFC 7517.
type jsonWebKey struct {
	Use       string `json:"use"`
	Type      string `json:"kty"`
	ID        string `json:"kid"`
	Curve     string `json:"crv,omitempty"`
	Algorithm string `json:"alg"`
	N         string `json:"n,omitempty"`
	E         string `json:"e,omitempty"`
	X         string `json:"x,omitempty"`
	Y         string `json:"y,omitempty"`
}

// JWKS returns the document for /openid/v1/jwks: all public keys that verify tokens, in a stable order.
func (t *Tokens) JWKS() []byte {
	doc := struct {
		Keys []jsonWebKey `json:"keys"`
	}{Keys: []jsonWebKey{}}
	for _, k := range t.keys.sorted() {
		doc.Keys = append(doc.Keys, k.jwk())
	}
	return encode(doc)
}

// OpenIDConfiguration returns the document for /.well-known/openid-configuration. jwksURI is the address of JWKS for
// clients.
func (t *Tokens) OpenIDConfiguration(jwksURI string) []byte {
	var algorithms []string
	for _, k := range t.keys.sorted() {
		if alg := k.method.Alg(); !slices.Contains(algorithms, alg) {
			algorithms = append(algorithms, alg)
		}
	}
	return encode(struct {
		Issuer        string   `json:"issuer"`
		JWKSURI       string   `json:"jwks_uri"`
		ResponseTypes []string `json:"response_types_supported"`
		SubjectTypes  []string `json:"subject_types_supported"`
		Algorithms    []string `json:"id_token_signing_alg_values_supported"`
	}{t.issuer, jwksURI, []string{"id_token"}, []string{"public"}, algorithms})
}

// Issuer returns the iss claim of all tokens.
func (t *Tokens) Issuer() string { return t.issuer }

// Audiences returns the audiences of this server.
func (t *Tokens) Audiences() []string { return slices.Clone(t.audiences) }

func (s keySet) sorted() []verifyKey {
	return slices.SortedFunc(maps.Values(s), func(a, b verifyKey) int { return strings.Compare(a.id, b.id) })
}

func (k verifyKey) jwk() jsonWebKey {
	w := jsonWebKey{Use: "sig", ID: k.id, Algorithm: k.method.Alg()}
	b64 := base64.RawURLEncoding.EncodeToString
	switch p := k.public.(type) {
	case *rsa.PublicKey:
		w.Type, w.N, w.E = "RSA", b64(p.N.Bytes()), b64(big.NewInt(int64(p.E)).Bytes())
	case *ecdsa.PublicKey:
		// An uncompressed point: a format byte and both coordinates in full length.
		point, err := p.Bytes()
		if err != nil {
			panic(err) // only for a point off the curve, which is refused when the key is loaded
		}
		half := (len(point) - 1) / 2
		w.Type, w.Curve, w.X, w.Y = "EC", "P-256", b64(point[1:1+half]), b64(point[1+half:])
	}
	return w
}

func encode(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // cannot fail for strings and slices of strings
	}
	return data
}
