package backup

import (
	"fmt"
	"time"

	etcdversion "go.etcd.io/etcd/api/v3/version"
	utilversion "k8s.io/apimachinery/pkg/util/version"

	"portico.dev/internal/version"
)

const (
	formatVersion = 1

	etcdName     = "etcd.db"
	manifestName = "manifest.json"
	pkiPrefix    = "keys/pki/"
	flagsPrefix  = "keys/flags/"

	// maxManifest and maxKeyFile bound what is read into memory, maxFiles how many entries there may be.
	maxManifest = 1 << 20
	maxKeyFile  = 1 << 20
	maxFiles    = 1000
)

// Manifest is what a backup says of itself.
type Manifest struct {
	// FormatVersion is raised when older programs could not restore a backup any more.
	FormatVersion int `json:"formatVersion"`
	// Time is when the backup began.
	Time time.Time `json:"time"`
	// Portico and Kubernetes are the versions of the program that wrote it.
	Portico    string `json:"porticoVersion"`
	Kubernetes string `json:"kubernetesVersion"`
	Etcd       Etcd   `json:"etcd"`
	// EncryptedAtRest says that objects were stored by an EncryptionConfiguration, without which they cannot be read.
	EncryptedAtRest bool `json:"encryptedAtRest"`
	// IncludesKeys says that there are files below keys/.
	IncludesKeys bool   `json:"includesKeys"`
	Files        []File `json:"files"`
}

// Etcd is where the snapshot is from.
type Etcd struct {
	// ClusterID is in hexadecimal digits, as in etcd's log.
	ClusterID string `json:"clusterID"`
	// Revision was etcd's just before: all that was written until then is in the backup.
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

// Snapshot is the entry that etcd is restored from.
func (m *Manifest) Snapshot() File {
	for _, f := range m.Files {
		if f.Name == etcdName {
			return f
		}
	}
	return File{}
}

// check refuses what this program cannot restore, or would read wrongly.
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
