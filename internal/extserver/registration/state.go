package registration

import (
	"bytes"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"portico.dev/internal/pki"
)

const (
	// stateFile contains the entire state, including keys. It is a single file, because a crash could leave several files
	// inconsistent.
	stateFile = "state.json"
	// bundleFile is the caBundle for operators who register the server manually. It is never read.
	bundleFile = "ca-bundle.crt"

	readableByOthers = 0o007
)

// state must persist across restarts.
type state struct {
	authority *pki.Authority // signs
	next      *pki.Authority // will sign; nil outside of a replacement
	serving   pair

	previous      *x509.Certificate // signed before; nil if it is not in the bundle
	previousUntil time.Time
}

type pair struct{ cert, key []byte }

// storedState is the encoding of state.
type storedState struct {
	Authority     storedPair  `json:"authority"`
	Next          *storedPair `json:"next,omitempty"`
	Serving       storedPair  `json:"serving"`
	Previous      string      `json:"previous,omitempty"`
	PreviousUntil time.Time   `json:"previousUntil,omitzero"`
}

type storedPair struct {
	Certificate string `json:"certificate"`
	Key         string `json:"key"`
}

// bundle returns the CA certificates that clients must trust: the current, the next and the previous one.
func (s *state) bundle() []byte {
	out := slices.Clone(s.authority.PEM())
	if s.next != nil {
		out = append(out, s.next.PEM()...)
	}
	if s.previous != nil {
		out = append(out, encode(s.previous)...)
	}
	return out
}

func encode(c *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
}

func contains(bundle []byte, want *x509.Certificate) bool {
	certs, err := pki.ParseBundle(bundle)
	return err == nil && slices.ContainsFunc(certs, want.Equal)
}

// leaf returns the serving certificate, nil if it is missing or does not match its key.
func (s *state) leaf() *x509.Certificate {
	found, err := pki.StaticKeyPair(s.serving.cert, s.serving.key)
	if err != nil {
		return nil
	}
	return found.Leaf()
}

// load reads the state in dir. It is empty at the first start, or if the directory was lost.
func load(dir string) (state, error) {
	if dir == "" {
		return state{}, nil
	}
	file := filepath.Join(dir, stateFile)
	info, err := os.Stat(file)
	if errors.Is(err, fs.ErrNotExist) {
		return state{}, nil
	}
	if err != nil {
		return state{}, fmt.Errorf("serving certificate: %w", err)
	}
	if info.Mode().Perm()&readableByOthers != 0 {
		return state{}, fmt.Errorf("serving certificate: %s holds private keys and everybody may read it (mode %04o); take its keys for stolen: remove it, and new ones are made with the right mode",
			file, info.Mode().Perm())
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return state{}, fmt.Errorf("serving certificate: %w", err)
	}
	s, err := parse(data)
	if err != nil {
		return state{}, fmt.Errorf("serving certificate: %s: %w; restore it, or remove it to have new keys made", file, err)
	}
	return s, nil
}

func parse(data []byte) (s state, err error) {
	var k storedState
	if err = json.Unmarshal(data, &k); err != nil {
		return s, err
	}
	if s.authority, err = pki.ParseAuthority([]byte(k.Authority.Certificate), []byte(k.Authority.Key)); err != nil {
		return s, fmt.Errorf("authority: %w", err)
	}
	if k.Next != nil {
		if s.next, err = pki.ParseAuthority([]byte(k.Next.Certificate), []byte(k.Next.Key)); err != nil {
			return s, fmt.Errorf("next authority: %w", err)
		}
	}
	if k.Previous != "" {
		certs, err := pki.ParseBundle([]byte(k.Previous))
		if err != nil {
			return s, fmt.Errorf("previous authority: %w", err)
		}
		s.previous, s.previousUntil = certs[0], k.PreviousUntil
	}
	s.serving = pair{cert: []byte(k.Serving.Certificate), key: []byte(k.Serving.Key)}
	return s, nil
}

// save writes the state to dir. It writes the bundle last, because the bundle is only useful after the keys have been saved.
func (s *state) save(dir string) error {
	if dir == "" {
		return nil
	}
	k := storedState{Serving: storedPair{Certificate: string(s.serving.cert), Key: string(s.serving.key)}, PreviousUntil: s.previousUntil}
	var err error
	if k.Authority, err = storedAuthority(s.authority); err != nil {
		return err
	}
	if s.next != nil {
		next, err := storedAuthority(s.next)
		if err != nil {
			return err
		}
		k.Next = &next
	}
	if s.previous != nil {
		k.Previous = string(encode(s.previous))
	}
	data, err := json.MarshalIndent(k, "", "  ")
	if err != nil {
		return fmt.Errorf("encode keys: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make directory of the serving certificate: %w", err)
	}
	if err := pki.WriteFile(filepath.Join(dir, stateFile), append(bytes.TrimSpace(data), '\n'), 0o600); err != nil {
		return err
	}
	return pki.WriteFile(filepath.Join(dir, bundleFile), s.bundle(), 0o644)
}

func storedAuthority(a *pki.Authority) (storedPair, error) {
	key, err := a.KeyPEM()
	return storedPair{Certificate: string(a.PEM()), Key: string(key)}, err
}
