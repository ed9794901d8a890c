package aggregator

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"portico.dev/internal/coreapi"
	"portico.dev/internal/coreapi/encryption"
	"portico.dev/internal/pki"
	"portico.dev/internal/server"
	"portico.dev/internal/store"
)

// StorageConfig configures how objects are stored in etcd.
type StorageConfig struct {
	// MediaType is the format in which objects are stored: protobuf, JSON or YAML. Default protobuf.
	MediaType string
	// CompactionInterval is how often old revisions are removed from etcd. Default 5 minutes. 0 disables this, for an
	// etcd that another process compacts.
	CompactionInterval time.Duration
	// QuotaBackendBytes is the size at which the embedded etcd refuses writes. Default 8 GiB, etcd's recommended maximum.
	QuotaBackendBytes int64
	// EncryptionConfigFile is an EncryptionConfiguration, which contains keys. Default none: objects are stored
	// unencrypted.
	EncryptionConfigFile string
	// ReloadEncryptionConfig reloads that file when it changes.
	ReloadEncryptionConfig bool
}

// leastQuota is the smallest quota with which a new front door becomes ready.
const leastQuota = 4 << 20

func defaultStorage() StorageConfig {
	return StorageConfig{
		MediaType: coreapi.StorageMediaTypes()[0], CompactionInterval: 5 * time.Minute, QuotaBackendBytes: store.DefaultQuotaBytes,
	}
}

func (c *StorageConfig) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&c.MediaType, "storage-media-type", c.MediaType, "media type in which objects are stored: "+strings.Join(coreapi.StorageMediaTypes(), ", ")+"; custom resources are always JSON")
	fs.DurationVar(&c.CompactionInterval, "etcd-compaction-interval", c.CompactionInterval, "interval of etcd compaction requests; 0 disables them")
	fs.Int64Var(&c.QuotaBackendBytes, "etcd-quota-backend-bytes", c.QuotaBackendBytes, "database size at which the embedded etcd rejects writes; an external etcd has its own --quota-backend-bytes")
	fs.StringVar(&c.EncryptionConfigFile, "encryption-provider-config", c.EncryptionConfigFile, "EncryptionConfiguration of apiserver.config.k8s.io/v1: which resources are encrypted in etcd, and how; default none")
	fs.BoolVar(&c.ReloadEncryptionConfig, "encryption-provider-config-automatic-reload", c.ReloadEncryptionConfig, "reload --encryption-provider-config when the file changes")
}

func (c *Config) validateStorage(bad func(flag, format string, args ...any)) {
	s := &c.Storage
	if !slices.Contains(coreapi.StorageMediaTypes(), s.MediaType) {
		bad("storage-media-type", "%q is none of %s", s.MediaType, strings.Join(coreapi.StorageMediaTypes(), ", "))
	}
	if s.CompactionInterval < 0 {
		bad("etcd-compaction-interval", "%s is negative; use 0 to disable compaction", s.CompactionInterval)
	}
	switch {
	case len(c.EtcdServers) > 0 && s.QuotaBackendBytes != store.DefaultQuotaBytes:
		bad("etcd-quota-backend-bytes", "belongs to the embedded etcd; give the external one its own --quota-backend-bytes")
	case s.QuotaBackendBytes < leastQuota:
		bad("etcd-quota-backend-bytes", "%d is too little to work in; use at least %d", s.QuotaBackendBytes, leastQuota)
	}
	if s.ReloadEncryptionConfig && s.EncryptionConfigFile == "" {
		bad("encryption-provider-config-automatic-reload", "is only of use together with --encryption-provider-config")
	}
}

// wireStore builds etcd, the replicas, and encryption at rest.
func (h *parts) wireStore() (err error) {
	c := h.cfg
	snapshot, err := h.stateSnapshot()
	if err != nil {
		return err
	}
	h.store, err = store.New(store.Config{
		Dial: h.Egress.Etcd().Dialer(), Servers: c.EtcdServers, CAFile: c.EtcdCAFile, CertFile: c.EtcdCertFile, KeyFile: c.EtcdKeyFile,
		Prefix: c.EtcdPrefix, DataDir: c.etcdDir(), UnixSocket: c.EtcdUnixSocket, Cluster: h.member,
		QuotaBytes: c.Storage.QuotaBackendBytes, Volatile: c.Embedded.Volatile,
		StateSnapshot: snapshot, Logger: h.log.Named("store"),
	})
	if err != nil {
		return err
	}
	h.wireCluster()
	h.replicas = h.store.Replicas(h.replicaAddress())
	file := c.Storage.EncryptionConfigFile
	if file != "" {
		if err := pki.CheckPrivate(file); err != nil {
			return fmt.Errorf("--encryption-provider-config: %w", err)
		}
	}
	h.encryption = encryption.New(encryption.Config{
		File: file, Reload: c.Storage.ReloadEncryptionConfig, Replica: h.replicas.Name(), Logger: h.log.Named("encryption"),
	})
	return nil
}

// coreStorage returns the storage configuration of the local groups.
func (h *parts) coreStorage() coreapi.Storage {
	return coreapi.Storage{
		MediaType: h.cfg.Storage.MediaType, CompactionInterval: h.cfg.Storage.CompactionInterval, Encryption: h.encryption,
	}
}

// storageChecks returns the checks of /readyz for storage. /livez does not include them: a restart does not help when
// etcd is full or has no leader, or when a key service is unavailable, and would end proxied requests, which do not
// need either.
func (h *parts) storageChecks() []server.Check {
	checks := []server.Check{
		{Name: "etcd", Ask: h.store.Check, Tolerate: h.etcdLoss.tolerated},
		{Name: "etcd-space", Ask: h.store.CheckSpace},
	}
	checks = append(checks, h.stateChecks()...)
	if h.encryption.Enabled() {
		checks = append(checks,
			server.Check{Name: "kms-providers", Ask: h.encryption.Check}, // upstream's name
			server.Check{Name: "encryption-provider-config", Ask: func(context.Context) error { return h.encryption.Stale() }})
	}
	return checks
}
