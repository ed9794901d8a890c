package serviceaccount

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"

	"github.com/golang-jwt/jwt/v5"

	"portico.dev/internal/auth/authn"
	"portico.dev/internal/pki"
)

const (
	minRSABits      = 2048
	maxKeyFileBytes = 1 << 20
	// maxKeys is the maximum number of public keys for verification. A rotation needs two or three.
	maxKeys = 16
)

// verifyKey is a public key with its id and algorithm. The algorithm is a property of the key, and a token's header
// must match it (attack row B1).
type verifyKey struct {
	id     string
	method jwt.SigningMethod
	public crypto.PublicKey
}

type signingKey struct {
	verifyKey
	private crypto.Signer
}

// keySet maps key ids to public keys.
type keySet map[string]verifyKey

func (s keySet) add(k verifyKey) { s[k.id] = k }

// newVerifyKey derives the id and the algorithm. The id is the unpadded base64url encoding of the SHA-256 of the
// key's DER form. It is the same as upstream's, so that tokens and JWKS documents remain valid when a cluster
// migrates to this server.
func newVerifyKey(public crypto.PublicKey) (verifyKey, error) {
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return verifyKey{}, fmt.Errorf("encode public key: %w", err)
	}
	sum := sha256.Sum256(der)
	k := verifyKey{id: base64.RawURLEncoding.EncodeToString(sum[:]), public: public}
	switch p := public.(type) {
	case *rsa.PublicKey:
		if p.N.BitLen() < minRSABits {
			return verifyKey{}, fmt.Errorf("RSA key of %d bits; at least %d are needed", p.N.BitLen(), minRSABits)
		}
		k.method = jwt.SigningMethodRS256
	case *ecdsa.PublicKey:
		if p.Curve != elliptic.P256() {
			return verifyKey{}, fmt.Errorf("ECDSA key on curve %s; only P-256 is supported", p.Curve.Params().Name)
		}
		k.method = jwt.SigningMethodES256
	default:
		return verifyKey{}, fmt.Errorf("key of type %T; only RSA and ECDSA P-256 are supported", public)
	}
	return k, nil
}

func loadSigningKey(file string) (*signingKey, error) {
	if err := pki.CheckPrivate(file); err != nil {
		return nil, fmt.Errorf("service account signing key: %w", err)
	}
	data, err := readKeyFile(file)
	if err != nil {
		return nil, fmt.Errorf("service account signing key: %w", err)
	}
	private, err := pki.ParseKey(data)
	if err != nil {
		return nil, fmt.Errorf("service account signing key %s: %w", file, err)
	}
	k, err := newVerifyKey(private.Public())
	if err != nil {
		return nil, fmt.Errorf("service account signing key %s: %w", file, err)
	}
	return &signingKey{verifyKey: k, private: private}, nil
}

// load adds the public keys of all blocks of a PEM file.
func (s keySet) load(file string) error {
	data, err := readKeyFile(file)
	if err != nil {
		return fmt.Errorf("service account key: %w", err)
	}
	found := 0
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == "EC PARAMETERS" { // openssl writes one before an EC private key
			continue
		}
		public, err := publicKey(block)
		if err != nil {
			return fmt.Errorf("service account key %s: block %d: %w", file, found+1, err)
		}
		k, err := newVerifyKey(public)
		if err != nil {
			return fmt.Errorf("service account key %s: block %d: %w", file, found+1, err)
		}
		s.add(k)
		found++
	}
	switch {
	case found == 0:
		return fmt.Errorf("service account key %s: no PEM block found; expected a public key", file)
	case len(s) > maxKeys:
		return fmt.Errorf("more than %d service account keys; remove those whose tokens have expired", maxKeys)
	}
	return nil
}

func publicKey(block *pem.Block) (crypto.PublicKey, error) {
	switch block.Type {
	case "PUBLIC KEY":
		return x509.ParsePKIXPublicKey(block.Bytes)
	case "RSA PUBLIC KEY":
		return x509.ParsePKCS1PublicKey(block.Bytes)
	case "CERTIFICATE":
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		return cert.PublicKey, nil
	case "PRIVATE KEY", "RSA PRIVATE KEY", "EC PRIVATE KEY":
		private, err := pki.ParseKey(pem.EncodeToMemory(block))
		if err != nil {
			return nil, err
		}
		return private.Public(), nil
	}
	return nil, fmt.Errorf("a %q block is not a key", block.Type)
}

func readKeyFile(file string) ([]byte, error) {
	return pki.ReadFile(file, maxKeyFileBytes, errors.New(file+" is too large to be a key"))
}

// header is a token's JOSE header. Tokens issued here have exactly these three members.
type header struct {
	Algorithm string `json:"alg"`
	KeyID     string `json:"kid"`
	Type      string `json:"typ"`
}

// peekHeader decodes the header of a token before verification. Unknown members are refused: crit, jku, jwk, x5u, x5c
// and zip have each been the cause of vulnerabilities.
func peekHeader(head string) (header, error) {
	var h header
	err := authn.DecodeTokenPart(head, &h, true)
	return h, err
}
