package cluster

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
)

// nonceLength is that of the random number of a request.
const nonceLength = 32

// HandOver is what a member of a cluster gives to one that joins.
type HandOver struct {
	// Files are those of pki.ReadShared.
	Files map[string][]byte `json:"files"`
	// Encryption is the EncryptionConfiguration, empty if nothing is encrypted at rest.
	Encryption []byte `json:"encryption,omitempty"`
	// Settings are those in which members must agree, by their flags.
	Settings map[string]string `json:"settings"`
}

// errNotSealed is for an answer that is not the one to this request, of a server that knows the secret.
var errNotSealed = errors.New("the keys that the server sent cannot be decrypted: it does not know the token, or this is not the answer to this request")

// sealKey derives the key of one answer.
func sealKey(t Token, nonce []byte) (cipher.AEAD, error) {
	if len(nonce) != nonceLength {
		return nil, fmt.Errorf("a random number of %d bytes is needed", nonceLength)
	}
	key, err := hkdf.Key(sha256.New, []byte(t.Secret), nonce, "portico join 1: keys of a cluster", 32)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// additional is what is authenticated with an answer.
func additional(t Token, nonce []byte) []byte {
	return fmt.Appendf(nil, "portico join 1\n%x\n%s\n%x", t.CAHash, t.ID, nonce)
}

// seal encrypts what is handed over for the holder of a token, in answer to the request with a nonce.
func seal(t Token, nonce []byte, h HandOver) ([]byte, error) {
	text, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	aead, err := sealKey(t, nonce)
	if err != nil {
		return nil, err
	}
	return aead.Seal(nil, nil, text, additional(t, nonce)), nil
}

// open decrypts what seal has encrypted.
func open(t Token, nonce, sealed []byte) (HandOver, error) {
	aead, err := sealKey(t, nonce)
	if err != nil {
		return HandOver{}, err
	}
	text, err := aead.Open(nil, nil, sealed, additional(t, nonce))
	if err != nil {
		return HandOver{}, errNotSealed
	}
	var h HandOver
	if err := json.Unmarshal(text, &h); err != nil {
		return HandOver{}, fmt.Errorf("read the keys that the server sent: %w", err)
	}
	return h, nil
}

// newNonce makes the random number of a request.
func newNonce() []byte {
	nonce := make([]byte, nonceLength)
	_, _ = rand.Read(nonce) // never fails
	return nonce
}
