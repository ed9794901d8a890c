package backup

import (
	"archive/zip"
	"bytes"
	"compress/flate"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"portico.dev/internal/store"
	"portico.dev/internal/version"
)

// Contents contains the parts of a backup.
type Contents struct {
	Snapshot        *store.Snapshot
	EtcdPrefix      string
	EncryptedAtRest bool
	Keys            []KeyFile
}

// KeyFile is one of the files that are included only with --include-keys.
type KeyFile struct {
	// Flag is the flag that names the file; empty for a file in the data directory's pki.
	Flag string
	Name string
	Data []byte
}

func (k KeyFile) entry() string {
	if k.Flag == "" {
		return pkiPrefix + k.Name
	}
	return flagsPrefix + k.Flag + "/" + k.Name
}

// DirectoryKeys reads the files of a data directory's pki.
func DirectoryKeys(dir string) ([]KeyFile, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read the keys: %w", err)
	}
	var keys []KeyFile
	for _, e := range entries {
		if !e.Type().IsRegular() || e.Name()[0] == '.' { // temporary files begin with a dot
			continue
		}
		key, err := ReadKey("", filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// ReadKey reads one file.
func ReadKey(flag, file string) (KeyFile, error) {
	f, err := os.Open(file)
	if err != nil {
		return KeyFile{}, fmt.Errorf("read the keys: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxKeyFile+1))
	if err == nil && len(data) > maxKeyFile {
		err = fmt.Errorf("%s has more than %d bytes", file, maxKeyFile)
	}
	if err != nil {
		return KeyFile{}, fmt.Errorf("read the keys: %w", err)
	}
	return KeyFile{Flag: flag, Name: filepath.Base(file), Data: data}, nil
}

// Write writes a backup and returns its manifest. If it returns an error, the written data is not a valid backup.
func Write(w io.Writer, c Contents) (Manifest, error) {
	info := version.Get()
	m := Manifest{
		FormatVersion: formatVersion, Time: time.Now().UTC().Truncate(time.Second),
		Portico: version.Portico, Kubernetes: info.GitVersion,
		Etcd: Etcd{
			ClusterID: strconv.FormatUint(c.Snapshot.ClusterID, 16), Revision: c.Snapshot.Revision, Prefix: c.EtcdPrefix,
			ServerVersion: c.Snapshot.ServerVersion, StorageVersion: c.Snapshot.StorageVersion,
		},
		EncryptedAtRest: c.EncryptedAtRest, IncludesKeys: len(c.Keys) > 0,
	}
	archive := zip.NewWriter(w)
	archive.RegisterCompressor(zip.Deflate, func(w io.Writer) (io.WriteCloser, error) { return flate.NewWriter(w, flate.BestSpeed) })
	entry := func(name string, method uint16, content io.Reader, also io.Writer) (File, error) {
		header := &zip.FileHeader{Name: name, Method: method, Modified: m.Time}
		header.SetMode(0o600)
		to, err := archive.CreateHeader(header)
		if err != nil {
			return File{}, err
		}
		sum := sha256.New()
		n, err := io.Copy(io.MultiWriter(to, sum, also), content)
		return File{Name: name, Size: n, SHA256: hex.EncodeToString(sum.Sum(nil))}, err
	}
	etcd := checksum{body: sha256.New()}
	file, err := entry(etcdName, zip.Deflate, c.Snapshot, &etcd)
	if err == nil {
		err = etcd.verify()
	}
	if err != nil {
		return m, fmt.Errorf("snapshot of etcd: %w", err)
	}
	m.Files = append(m.Files, file)
	for _, key := range c.Keys {
		if file, err = entry(key.entry(), zip.Deflate, bytes.NewReader(key.Data), io.Discard); err != nil {
			return m, err
		}
		m.Files = append(m.Files, file)
	}
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return m, err
	}
	if _, err := entry(manifestName, zip.Store, bytes.NewReader(append(text, '\n')), io.Discard); err != nil {
		return m, err
	}
	return m, archive.Close()
}

// checksum verifies etcd's checksum, which is the last part of the written data.
type checksum struct {
	body hash.Hash
	end  []byte
}

func (c *checksum) Write(p []byte) (int, error) {
	c.end = append(c.end, p...)
	if more := len(c.end) - sha256.Size; more > 0 {
		c.body.Write(c.end[:more])
		c.end = slices.Delete(c.end, 0, more)
	}
	return len(p), nil
}

var errCutOff = errors.New("it is not as etcd sent it, or not all of it; back up again")

func (c *checksum) verify() error {
	if !bytes.Equal(c.body.Sum(nil), c.end) {
		return errCutOff
	}
	return nil
}
