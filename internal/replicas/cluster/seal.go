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

// nonceLength is the length of the random number of a request.
const nonceLength = 32

// HandOver contains the keys and settings that a member of a cluster sends to a joining front door.
type HandOver struct {
	// Files are the files of pki.ReadShared.
	Files map[string][]byte `json:"files"`
	// Encryption is the EncryptionConfiguration. It is empty if objects are not encrypted at rest.
	Encryption []byte `json:"encryption,omitempty"`
	// Settings are the settings that must be equal in all members, by flag.
	Settings map[string]string `json:"settings"`
}

// errNotSealed is returned for a response that belongs to another request, or comes from a server without the secret.
var errNotSealed = errors.New("the keys that the server sent cannot be decrypted: it does not know the token, or this is not the answer to this request")

// sealKey derives the key of one response.
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

// additional returns the data that is authenticated with a response.
func additional(t Token, nonce []byte) []byte {
	return fmt.Appendf(nil, "portico join 1\n%x\n%s\n%x", t.CAHash, t.ID, nonce)
}

// seal encrypts h for the holder of a token, in response to the request with the nonce.
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

// open decrypts the result of seal.
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

// newNonce returns the random number of a request.
func newNonce() []byte {
	nonce := make([]byte, nonceLength)
	_, _ = rand.Read(nonce) // never fails
	return nonce
}
