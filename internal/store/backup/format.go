package backup

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"filippo.io/age"
	etcdversion "go.etcd.io/etcd/api/v3/version"
	utilversion "k8s.io/apimachinery/pkg/util/version"

	"portico.dev/internal/version"
)

// WriteFile writes the backup from produce to a file with mode 0600, encrypted if there are recipients. It replaces an existing
// file after the new one is complete.
func WriteFile(name string, recipients []age.Recipient, produce func(io.Writer) error) (m Manifest, size int64, err error) {
	dir := filepath.Dir(name)
	f, err := os.CreateTemp(dir, "."+filepath.Base(name)+".*") // with mode 0600
	if err != nil {
		return m, 0, err
	}
	kept := false
	defer func() {
		if !kept {
			err = errors.Join(err, f.Close(), os.Remove(f.Name()))
		}
	}()
	var to io.WriteCloser = f
	if len(recipients) > 0 {
		if to, err = age.Encrypt(f, recipients...); err != nil {
			return m, 0, fmt.Errorf("encrypt: %w", err)
		}
	}
	var end tail
	if err := produce(io.MultiWriter(to, &end)); err != nil {
		return m, 0, err
	}
	if m, err = end.manifest(); err != nil {
		return m, 0, err
	}
	if len(recipients) > 0 {
		if err := to.Close(); err != nil {
			return m, 0, fmt.Errorf("encrypt: %w", err)
		}
	}
	if err := f.Sync(); err != nil {
		return m, 0, err
	}
	if info, err := f.Stat(); err == nil {
		size = info.Size()
	}
	if err := os.Rename(f.Name(), name); err != nil {
		return m, 0, err
	}
	kept = true
	return m, size, errors.Join(f.Close(), syncDirectory(dir))
}

func syncDirectory(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// tailSize is enough for the manifest and the zip central directory, which are at the end.
const tailSize = 2 * maxManifest

// tail keeps the end of the written data. It shows whether a backup is complete, and contains its manifest, even if this
// process cannot decrypt the backup.
type tail struct {
	kept []byte
	size int64
}

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	t.size += int64(len(p))
	t.kept = append(t.kept, p...)
	if more := len(t.kept) - tailSize; more > tailSize {
		t.kept = t.kept[:copy(t.kept, t.kept[more:])]
	}
	return len(p), nil
}

// ReadAt implements io.ReaderAt.
func (t *tail) ReadAt(p []byte, at int64) (int, error) {
	first := t.size - int64(len(t.kept))
	switch {
	case at < first:
		return 0, errors.New("it is not at the end")
	case at >= t.size:
		return 0, io.EOF
	}
	n := copy(p, t.kept[at-first:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (t *tail) manifest() (Manifest, error) {
	archive, err := openArchive(t, t.size)
	if err != nil {
		return Manifest{}, fmt.Errorf("the backup did not arrive as a whole: %w", err)
	}
	return archive.Manifest, nil
}

const (
	formatVersion = 1

	etcdName     = "etcd.db"
	manifestName = "manifest.json"
	pkiPrefix    = "keys/pki/"
	flagsPrefix  = "keys/flags/"

	// maxManifest and maxKeyFile bound the data read into memory. maxFiles bounds the number of entries.
	maxManifest = 1 << 20
	maxKeyFile  = 1 << 20
	maxFiles    = 1000
)

// Manifest describes a backup.
type Manifest struct {
	// FormatVersion is incremented when older programs can no longer restore a backup.
	FormatVersion int `json:"formatVersion"`
	// Time is when the backup began.
	Time time.Time `json:"time"`
	// Portico and Kubernetes are the versions of the program that wrote the backup.
	Portico    string `json:"porticoVersion"`
	Kubernetes string `json:"kubernetesVersion"`
	Etcd       Etcd   `json:"etcd"`
	// EncryptedAtRest reports that objects were stored with an EncryptionConfiguration, and cannot be read without it.
	EncryptedAtRest bool `json:"encryptedAtRest"`
	// IncludesKeys reports that there are files below keys/.
	IncludesKeys bool   `json:"includesKeys"`
	Files        []File `json:"files"`
}

// Etcd describes the etcd of the snapshot.
type Etcd struct {
	// ClusterID is in hexadecimal, as in etcd's log.
	ClusterID string `json:"clusterID"`
	// Revision is etcd's revision immediately before the snapshot. The backup contains all writes up to this revision.
	Revision       int64  `json:"revision"`
	Prefix         string `json:"prefix"`
	ServerVersion  string `json:"serverVersion"`
	StorageVersion string `json:"storageVersion"`
}

// File is one entry of the archive.
type File struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// Snapshot returns the entry that contains the snapshot of etcd.
func (m *Manifest) Snapshot() File {
	for _, f := range m.Files {
		if f.Name == etcdName {
			return f
		}
	}
	return File{}
}

// check rejects backups that this program cannot restore.
func (m *Manifest) check() error {
	if m.FormatVersion < 1 || m.FormatVersion > formatVersion {
		return fmt.Errorf("it has format version %d, and this program knows versions up to %d: restore it with Portico %s or later", m.FormatVersion, formatVersion, m.Portico)
	}
	for _, v := range []struct{ what, theirs, ours string }{
		{"the API of Kubernetes", m.Kubernetes, version.Get().GitVersion},
		{"etcd's storage", m.Etcd.StorageVersion, etcdversion.Version},
	} {
		if v.theirs == "" {
			continue
		}
		theirs, err := utilversion.ParseGeneric(v.theirs)
		if err != nil {
			return fmt.Errorf("it says %q of %s, which is no version", v.theirs, v.what)
		}
		ours, err := utilversion.ParseGeneric(v.ours)
		if err != nil {
			return err
		}
		if theirs.WithPatch(0).GreaterThan(ours.WithPatch(0)) {
			return fmt.Errorf("it is of version %s of %s, and this program has %s: restore it with Portico %s or later", v.theirs, v.what, v.ours, m.Portico)
		}
	}
	return nil
}
