package store

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"portico.dev/internal/pki"
)

// The file format of a state snapshot:
//
//	magic, format (2 bytes)     identical in all formats
//	key ID (8)                  distinguishes a file with another key from a damaged one
//	salt (32), nonce (12)
//	AES-256-GCM of gzip of      a line of JSON (stateHeader), then keys and values, each preceded by its length
//
// The fields before the nonce and the prefix of the objects are authenticated too. The key is derived from a secret of the
// front door, so that an attacker with write access cannot forge a state. The attacker can only restore an earlier file, which
// is limited by the maximum age.
const (
	stateMagic  = "portico state snapshot\n"
	stateFormat = 1
	keyIDSize   = 8
	saltSize    = 32
	// maxStateBytes bounds a state, and its file.
	maxStateBytes = 1 << 30
	// maxClockStep is how far the time of a state may be in the future.
	maxClockStep = 5 * time.Minute
)

var (
	errStateFormat  = errors.New("it has another format, of another release")
	errStateKey     = errors.New("it was made with another key: by another front door, or before the service account key was replaced")
	errStateDamaged = errors.New("it is damaged, or somebody has changed it")
)

// state is a part of the contents of etcd at a time.
type state struct {
	at time.Time
	// ranges are the key prefixes that the state contains completely.
	ranges []string
	values map[string][]byte // by key in etcd
}

// stateHeader is the first line of the plain text.
type stateHeader struct {
	Time   time.Time `json:"time"`
	Ranges []string  `json:"ranges"`
	Keys   int       `json:"keys"`
}

// stateKeys derives the key of a file, and its ID.
func stateKeys(secret, salt []byte) (seal cipher.AEAD, id []byte, err error) {
	key, err := hkdf.Key(sha256.New, secret, salt, "portico state snapshot", 32)
	if err != nil {
		return nil, nil, err
	}
	if id, err = hkdf.Key(sha256.New, secret, nil, "portico state snapshot key ID", keyIDSize); err != nil {
		return nil, nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, nil, err
	}
	seal, err = cipher.NewGCM(block)
	return seal, id, err
}

// encodeState returns the file contents for a state.
func encodeState(s *state, secret []byte, prefix string) ([]byte, error) {
	salt, nonce := make([]byte, saltSize), make([]byte, 12)
	_, _ = rand.Read(salt) // never returns an error
	_, _ = rand.Read(nonce)
	seal, id, err := stateKeys(secret, salt)
	if err != nil {
		return nil, err
	}
	var plain bytes.Buffer
	if err := writeState(&plain, s); err != nil {
		return nil, err
	}
	file := binary.BigEndian.AppendUint16([]byte(stateMagic), stateFormat)
	file = append(append(file, id...), salt...)
	authenticated := append(slices.Clone(file), prefix...)
	return seal.Seal(append(file, nonce...), nonce, plain.Bytes(), authenticated), nil
}

func writeState(to io.Writer, s *state) error {
	packed, err := gzip.NewWriterLevel(to, gzip.BestSpeed)
	if err != nil {
		return err
	}
	header, err := json.Marshal(stateHeader{Time: s.at, Ranges: s.ranges, Keys: len(s.values)})
	if err != nil {
		return err
	}
	w := bufio.NewWriter(packed)
	_, _ = w.Write(append(header, '\n')) // the writer keeps the error
	var length []byte
	for _, key := range slices.Sorted(maps.Keys(s.values)) {
		for _, part := range [][]byte{[]byte(key), s.values[key]} {
			length = binary.AppendUvarint(length[:0], uint64(len(part)))
			_, _ = w.Write(length)
			_, _ = w.Write(part)
		}
	}
	return errors.Join(w.Flush(), packed.Close())
}

// decodeState decodes the contents of a file. It returns an error if the file is incomplete.
func decodeState(file, secret []byte, prefix string) (*state, error) {
	rest, ok := bytes.CutPrefix(file, []byte(stateMagic))
	if !ok || len(rest) < 2 {
		return nil, errStateDamaged
	}
	if binary.BigEndian.Uint16(rest) != stateFormat {
		return nil, errStateFormat
	}
	rest = rest[2:]
	if len(rest) < keyIDSize+saltSize+12 {
		return nil, errStateDamaged
	}
	fileID, salt := rest[:keyIDSize], rest[keyIDSize:keyIDSize+saltSize]
	seal, id, err := stateKeys(secret, salt)
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(id, fileID) {
		return nil, errStateKey
	}
	rest = rest[keyIDSize+saltSize:]
	authenticated := append(slices.Clone(file[:len(file)-len(rest)]), prefix...)
	plain, err := seal.Open(nil, rest[:12], rest[12:], authenticated)
	if err != nil {
		return nil, errStateDamaged
	}
	s, err := readState(bytes.NewReader(plain))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errStateDamaged, err)
	}
	return s, nil
}

func readState(from io.Reader) (*state, error) {
	packed, err := gzip.NewReader(from)
	if err != nil {
		return nil, err
	}
	r := bufio.NewReader(io.LimitReader(packed, maxStateBytes))
	line, err := r.ReadBytes('\n')
	if err != nil {
		return nil, err
	}
	var header stateHeader
	if err := json.Unmarshal(line, &header); err != nil {
		return nil, err
	}
	part := func() ([]byte, error) {
		length, err := binary.ReadUvarint(r)
		if err != nil {
			return nil, err
		}
		if length > maxStateBytes {
			return nil, errors.New("a value is too long")
		}
		value := make([]byte, length)
		_, err = io.ReadFull(r, value)
		return value, err
	}
	s := &state{at: header.Time, ranges: header.Ranges, values: make(map[string][]byte, min(header.Keys, 1<<20))}
	for range header.Keys {
		key, err := part()
		if err != nil {
			return nil, err
		}
		if s.values[string(key)], err = part(); err != nil {
			return nil, err
		}
	}
	if _, err := r.ReadByte(); !errors.Is(err, io.EOF) {
		return nil, errors.New("it goes on after its end")
	}
	return s, nil
}

// readStateFile reads a state that is not older than maxAge.
func readStateFile(c *StateSnapshotConfig, prefix string, now time.Time) (*state, error) {
	info, err := os.Stat(c.File)
	if err != nil {
		return nil, err
	}
	if info.Size() > maxStateBytes {
		return nil, errStateDamaged
	}
	if err := pki.CheckPrivate(c.File); err != nil {
		return nil, err
	}
	data, err := os.ReadFile(c.File)
	if err != nil {
		return nil, err
	}
	s, err := decodeState(data, c.Secret, prefix)
	if err != nil {
		return nil, err
	}
	switch age := now.Sub(s.at); {
	case age > c.MaxAge:
		return nil, fmt.Errorf("it is of %s, %s old, and at most %s is allowed", s.at.UTC().Format(time.RFC3339), age.Round(time.Second), c.MaxAge)
	case age < -maxClockStep:
		return nil, fmt.Errorf("it is of %s, which is in the future: correct the clock of this machine", s.at.UTC().Format(time.RFC3339))
	}
	// A range omitted by another release must not count as empty.
	for _, start := range c.ranges(prefix) {
		if !slices.Contains(s.ranges, start) {
			return nil, fmt.Errorf("%w: it does not have %s", errStateFormat, start)
		}
	}
	return s, nil
}

// ranges returns the key prefixes of all keys in a state.
func (c *StateSnapshotConfig) ranges(prefix string) (all []string) {
	for _, directory := range slices.Concat(c.Objects, c.Frequent) {
		all = append(all, strings.TrimSuffix(prefix, "/")+"/"+directory+"/")
	}
	for _, own := range c.Own {
		all = append(all, ownRoot(prefix)+own)
	}
	return all
}
