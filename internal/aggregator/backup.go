package aggregator

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"filippo.io/age"
	"github.com/spf13/pflag"
	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico.dev/internal/respond"
	"portico.dev/internal/store/backup"
)

// BackupConfig configures scheduled backups.
type BackupConfig struct {
	// Dir is the directory of backups. Default none: no backups are made.
	Dir string
	// Interval is the time between two backups. Default 12 hours.
	Interval time.Duration
	// Retention is the number of backups to keep. Default 5.
	Retention int
	// IncludeKeys includes the keys in backups, which are then encrypted for RecipientsFile.
	IncludeKeys bool
	// RecipientsFile contains the age public keys that backups are encrypted for. Default none: they are not
	// encrypted.
	RecipientsFile string
}

func defaultBackup() BackupConfig { return BackupConfig{Interval: 12 * time.Hour, Retention: 5} }

func (c *BackupConfig) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&c.Dir, "backup-dir", c.Dir, "directory for scheduled backups, written by the leading replica; default no backups")
	fs.DurationVar(&c.Interval, "backup-interval", c.Interval, "time between the backups in --backup-dir")
	fs.IntVar(&c.Retention, "backup-retention", c.Retention, "number of backups to keep in --backup-dir")
	fs.BoolVar(&c.IncludeKeys, "backup-include-keys", c.IncludeKeys, "include the front door's keys in backups; needs --backup-recipients-file")
	fs.StringVar(&c.RecipientsFile, "backup-recipients-file", c.RecipientsFile, "file of age public keys, one per line, to which backups in --backup-dir are encrypted; default no encryption")
}

func (c *Config) validateBackup(bad func(flag, format string, args ...any)) {
	b := &c.Backup
	if b.Dir == "" {
		if *b != defaultBackup() {
			bad("backup-dir", "is needed by the other flags that begin with --backup")
		}
		return
	}
	if b.Interval < backup.MinInterval {
		bad("backup-interval", "%s is too short; use at least %s", b.Interval, backup.MinInterval)
	}
	if b.Retention < 1 {
		bad("backup-retention", "%d backups cannot be kept; use at least 1", b.Retention)
	}
	if b.IncludeKeys && b.RecipientsFile == "" {
		bad("backup-include-keys", "needs --backup-recipients-file: scheduled backups with keys are always encrypted")
	}
	if inside, err := filepath.Rel(filepath.Join(c.DataDir, "etcd"), b.Dir); err == nil && filepath.IsLocal(inside) {
		bad("backup-dir", "%s is in the directory of etcd; choose one outside, better on another disk", b.Dir)
	}
}

// wireBackup builds the handler of backups, and the schedule if one is configured.
func (h *parts) wireBackup() error {
	h.backups = &backups{parts: h}
	c := h.cfg.Backup
	if c.Dir == "" {
		return nil
	}
	var recipients []age.Recipient
	if c.RecipientsFile != "" {
		var err error
		if recipients, err = backup.Recipients(nil, []string{c.RecipientsFile}, ""); err != nil {
			return fmt.Errorf("--backup-recipients-file: %w", err)
		}
	}
	h.schedule = &backup.Schedule{
		Dir: c.Dir, Interval: c.Interval, Retention: c.Retention, Recipients: recipients,
		Contents: func(ctx context.Context) (backup.Contents, error) { return h.backups.contents(ctx, c.IncludeKeys) },
		Leads: func() bool {
			leads, _ := h.election()
			return leads
		},
		Metrics: h.Metrics.Backup, Log: h.log.Named("backup"),
	}
	return nil
}

// backups serves backups of this front door.
type backups struct {
	parts *parts
	mu    sync.Mutex // held while a backup is served: each pins pages of etcd, and reads all of it
}

const (
	// backupTimeout limits one response, and backupStall the time in which its client reads nothing, because etcd
	// keeps the pages of the snapshot until the response ends.
	backupTimeout = time.Hour
	backupStall   = time.Minute
)

// contents begins a backup. The caller must close its snapshot.
func (b *backups) contents(ctx context.Context, includeKeys bool) (backup.Contents, error) {
	h := b.parts
	c := backup.Contents{EtcdPrefix: h.store.Prefix(), EncryptedAtRest: h.encryption.Enabled()}
	var err error
	if includeKeys {
		if c.Keys, err = h.keyFiles(); err != nil {
			return c, err
		}
	}
	c.Snapshot, err = h.store.Snapshot(ctx)
	return c, err
}

// keyFiles returns all files with keys and CA bundles that this front door was started with.
func (h *parts) keyFiles() ([]backup.KeyFile, error) {
	keys, err := backup.DirectoryKeys(h.cfg.pkiDir())
	if err != nil {
		return nil, err
	}
	c := h.cfg
	given := []struct{ flag, file string }{
		{"tls-cert-file", c.TLSCertFile},
		{"tls-private-key-file", c.TLSPrivateKeyFile},
		{"root-ca-file", c.RootCAFile},
		{"client-ca-file", c.ClientCAFile},
		{"token-auth-file", c.TokenAuthFile},
		{"requestheader-client-ca-file", c.RequestHeaderClientCAFile},
		{"proxy-client-cert-file", c.ProxyClientCertFile},
		{"proxy-client-key-file", c.ProxyClientKeyFile},
		{"kubelet-client-certificate", c.Kubelet.ClientCertificate},
		{"kubelet-client-key", c.Kubelet.ClientKey},
		{"kubelet-certificate-authority", c.Kubelet.CertificateAuthority},
		{"egress-selector-config-file", c.EgressSelectorConfigFile},
		{"service-account-signing-key-file", c.ServiceAccountSigningKeyFile},
		{"encryption-provider-config", c.Storage.EncryptionConfigFile},
	}
	for _, file := range c.ServiceAccountKeyFiles {
		given = append(given, struct{ flag, file string }{"service-account-key-file", file})
	}
	names := map[string]bool{}
	for _, g := range given {
		if g.file == "" {
			continue
		}
		key, err := backup.ReadKey(g.flag, g.file)
		if err != nil {
			return nil, fmt.Errorf("--%s: %w", g.flag, err)
		}
		for base, n := key.Name, 2; names[g.flag+"/"+key.Name]; n++ { // two directories may contain files of the same name
			key.Name = strconv.Itoa(n) + "-" + base
		}
		names[g.flag+"/"+key.Name] = true
		keys = append(keys, key)
	}
	return keys, nil
}

// ServeHTTP serves a backup, with keys if the path ends in /keys. It is authorized by its path. cluster-admin is the
// only default role that includes the path.
func (b *backups) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !b.mu.TryLock() {
		respond.Error(w, r, apierrors.NewTooManyRequests("another backup of this front door is under way; try again when it is done", 10))
		return
	}
	defer b.mu.Unlock()
	ctx, cancel := context.WithTimeout(r.Context(), backupTimeout)
	defer cancel()
	log := b.parts.log.Named("backup")
	contents, err := b.contents(ctx, strings.HasSuffix(r.URL.Path, "/keys"))
	if err != nil {
		log.Warn("failed to start a backup", zap.Error(err))
		respond.Error(w, r, apierrors.NewServiceUnavailable("the backup could not begin: "+err.Error()))
		return
	}
	defer contents.Snapshot.Close()
	stalled := time.AfterFunc(backupStall, func() {
		cancel()
		_ = contents.Snapshot.Close() // etcd must not keep its pages for a client that does not read
	})
	defer stalled.Stop()
	w.Header().Set("Content-Type", "application/zip")
	w.Header().Set("Cache-Control", "no-store")
	began := time.Now()
	manifest, err := backup.Write(writerFunc(func(p []byte) (int, error) {
		n, err := w.Write(p)
		stalled.Reset(backupStall)
		return n, err
	}), contents)
	if err != nil {
		log.Warn("backup aborted", zap.Error(err))
		panic(http.ErrAbortHandler) // so that the client notices
	}
	log.Info("backup sent to a client", zap.Int64("revision", manifest.Etcd.Revision),
		zap.Bool("keys", manifest.IncludesKeys), zap.Duration("took", time.Since(began)))
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
