package cluster

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base32"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"

	"portico.dev/internal/pki"
)

// tokenPrefix is the prefix of tokens in the first format.
const tokenPrefix = "portico-join1"

const (
	idLength     = 8
	secretLength = 52 // 256 bits, 5 in each character
)

// Token allows its holder to join a cluster.
type Token struct {
	// CAHash is the SHA-256 of the public key of the cluster's CA.
	CAHash [sha256.Size]byte
	// ID identifies the token. It is not secret.
	ID     string
	Secret string
}

var (
	lowerBase32   = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)
	idPattern     = regexp.MustCompile(fmt.Sprintf("^[a-z2-7]{%d}$", idLength))
	secretPattern = regexp.MustCompile(fmt.Sprintf("^[a-z2-7]{%d}$", secretLength))
)

// NewToken returns a new token for the cluster of a CA.
func NewToken(ca *x509.Certificate) Token {
	return Token{CAHash: pki.SPKIHash(ca), ID: randomText(5), Secret: randomText(sha256.Size)}
}

func randomText(bytes int) string {
	b := make([]byte, bytes)
	_, _ = rand.Read(b) // never fails
	return lowerBase32.EncodeToString(b)
}

// String returns the complete token.
func (t Token) String() string {
	return strings.Join([]string{tokenPrefix, hex.EncodeToString(t.CAHash[:]), t.ID, t.Secret}, ".")
}

// credential returns the part of a token that is sent to the server.
func (t Token) credential() string { return t.ID + "." + t.Secret }

// errMalformedToken never contains the token.
var errMalformedToken = errors.New("this is no join token; copy all of what `aggregator token create` prints")

// ParseToken parses the result of String. It ignores surrounding white space.
func ParseToken(text string) (Token, error) {
	parts := strings.Split(strings.TrimSpace(text), ".")
	if len(parts) != 4 || parts[0] != tokenPrefix {
		return Token{}, errMalformedToken
	}
	hash, err := hex.DecodeString(parts[1])
	if err != nil || len(hash) != sha256.Size {
		return Token{}, errMalformedToken
	}
	t := Token{CAHash: [sha256.Size]byte(hash), ID: parts[2], Secret: parts[3]}
	if !idPattern.MatchString(t.ID) || !secretPattern.MatchString(t.Secret) {
		return Token{}, errMalformedToken
	}
	return t, nil
}

// CheckTokenID returns an error if id is not a valid token ID.
func CheckTokenID(id string) error {
	if !idPattern.MatchString(id) {
		return ErrNoToken
	}
	return nil
}

// ReadToken reads the token in a file that other users must not be able to read.
func ReadToken(file string) (Token, error) {
	if err := pki.CheckPrivate(file); err != nil {
		return Token{}, err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return Token{}, err
	}
	t, err := ParseToken(string(text))
	if err != nil {
		return Token{}, fmt.Errorf("%s: %w", file, err)
	}
	return t, nil
}
