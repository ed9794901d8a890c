package oidc

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/base64"
	"math/big"
	"slices"
	"strings"
)

const (
	minRSABits = 2048
	maxRSABits = 8192 // verification is cubic in it, and the issuer chooses
	// maxKeys bounds how many keys of an issuer are kept.
	maxKeys = 64
	// maxTried bounds how many keys one token is tried with: an id may be given to several, and a token may have none
	// (attack row B2).
	maxTried = 4
)

// jwks is a JSON Web Key Set.
type jwks struct {
	Keys []jwk `json:"keys"`
}

type jwk struct {
	Type      string `json:"kty"`
	Use       string `json:"use"`
	ID        string `json:"kid"`
	Algorithm string `json:"alg"`
	Curve     string `json:"crv"`
	N         string `json:"n"`
	E         string `json:"e"`
	X         string `json:"x"`
	Y         string `json:"y"`
}

// key verifies signatures by any of its algorithms. They follow from its type and its curve, and from what the issuer
// says of it; never from a token (attack row B1).
type key struct {
	id         string
	algorithms []string
	public     crypto.PublicKey
}

type keySet []key

// set is the keys that can be used. Others are passed over: issuers publish keys for encryption in the same document.
func (d jwks) set() keySet {
	var set keySet
	for _, j := range d.Keys {
		if len(set) == maxKeys {
			break
		}
		if k, ok := j.key(); ok {
			set = append(set, k)
		}
	}
	return set
}

// candidates are the keys that may have signed a token with this id and algorithm.
func (s keySet) candidates(id, algorithm string) []crypto.PublicKey {
	var found []crypto.PublicKey
	for _, k := range s {
		if (id == "" || k.id == id) && slices.Contains(k.algorithms, algorithm) && len(found) < maxTried {
			found = append(found, k.public)
		}
	}
	return found
}

func (j jwk) key() (key, bool) {
	k := key{id: j.ID}
	if j.Use != "" && j.Use != "sig" {
		return k, false
	}
	var ok bool
	switch j.Type {
	case "RSA":
		k.public, ok = j.rsa()
		k.algorithms = []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}
	case "EC":
		var algorithm string
		k.public, algorithm, ok = j.ecdsa()
		k.algorithms = []string{algorithm}
	}
	if j.Algorithm != "" {
		k.algorithms = slices.DeleteFunc(k.algorithms, func(a string) bool { return a != j.Algorithm })
	}
	return k, ok && len(k.algorithms) > 0
}

func (j jwk) rsa() (*rsa.PublicKey, bool) {
	n, okN := number(j.N)
	e, okE := number(j.E)
	if !okN || !okE || n.BitLen() < minRSABits || n.BitLen() > maxRSABits || e.BitLen() > 31 || e.Cmp(big.NewInt(3)) < 0 || e.Bit(0) == 0 {
		return nil, false
	}
	return &rsa.PublicKey{N: n, E: int(e.Int64())}, true
}

func (j jwk) ecdsa() (*ecdsa.PublicKey, string, bool) {
	curves := map[string]struct {
		curve     elliptic.Curve
		algorithm string
	}{"P-256": {elliptic.P256(), "ES256"}, "P-384": {elliptic.P384(), "ES384"}, "P-521": {elliptic.P521(), "ES512"}}
	c, known := curves[j.Curve]
	if !known {
		return nil, "", false
	}
	size := (c.curve.Params().BitSize + 7) / 8
	x, okX := number(j.X)
	y, okY := number(j.Y)
	if !okX || !okY || x.BitLen() > 8*size || y.BitLen() > 8*size {
		return nil, "", false
	}
	point := make([]byte, 1+2*size) // SEC 1: 4, x, y
	point[0] = 4
	x.FillBytes(point[1 : 1+size])
	y.FillBytes(point[1+size:])
	public, err := ecdsa.ParseUncompressedPublicKey(c.curve, point) // refuses a point off the curve
	return public, c.algorithm, err == nil
}

func number(s string) (*big.Int, bool) {
	data, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(s, "="))
	if err != nil || len(data) == 0 || len(data) > maxRSABits/8+1 {
		return nil, false
	}
	return new(big.Int).SetBytes(data), true
}
