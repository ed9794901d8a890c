package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"filippo.io/age"
	"github.com/spf13/cobra"
	"golang.org/x/term"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/discovery"

	"portico.dev/internal/logging"
	"portico.dev/internal/request"
	"portico.dev/internal/store"
	"portico.dev/internal/store/backup"
	"portico.dev/internal/tools/cli"
)

type backupOptions struct {
	cli.ClientFlags
	includeKeys                bool
	recipients, recipientFiles []string
	passphraseFile             string
	output                     cli.Output

	dataDir, encryptionConfig string
	etcd                      store.Config
}

func backupCommand() *cobra.Command {
	o := backupOptions{ClientFlags: cli.ClientFlags{Timeout: time.Minute}}
	cmd := &cobra.Command{
		Use:   "backup FILE",
		Short: "Back up the data of a front door to a file",
		Long: `Back up the data of a front door to a file: a consistent snapshot of its etcd, taken while it is in use, and with
--include-keys its CA certificates, certificates and keys.

The backup comes from the API of a running front door. The caller needs the group system:masters or the verb post
on the non-resource path /backup (and /backup/keys, for --include-keys). With --etcd-servers the backup comes from
an external etcd; with --data-dir, from the data directory of a front door that is not running.

FILE is written with mode 0600 under a temporary name in its directory, and renamed when it is complete. It is as
sensitive as etcd itself: encrypt it with --recipient or --passphrase-file before it leaves the machine. Restore it
with aggregator restore.`,
		Example: `  aggregator backup portico.backup
  aggregator backup portico.backup --include-keys --recipient age1...
  aggregator backup portico.backup --data-dir /var/lib/portico`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.run(cmd.Context(), args[0], cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	fs := cmd.Flags()
	o.Add(fs)
	fs.BoolVar(&o.includeKeys, "include-keys", false, "include the front door's CA certificates, certificates and keys, and the key files that its flags name")
	fs.StringArrayVar(&o.recipients, "recipient", nil, "encrypt to this age public key; may be repeated")
	fs.StringArrayVar(&o.recipientFiles, "recipients-file", nil, "encrypt to the age public keys in this file, one per line; may be repeated")
	fs.StringVar(&o.passphraseFile, "passphrase-file", "", "encrypt with the passphrase in the first line of this file")
	o.output.Add(fs)
	fs.StringVar(&o.dataDir, "data-dir", "", "back up the data directory of a front door that is not running")
	fs.StringSliceVar(&o.etcd.Servers, "etcd-servers", nil, "back up this external etcd directly")
	fs.StringVar(&o.etcd.CAFile, "etcd-cafile", "", "CA certificates of the external etcd")
	fs.StringVar(&o.etcd.CertFile, "etcd-certfile", "", "client certificate for the external etcd")
	fs.StringVar(&o.etcd.KeyFile, "etcd-keyfile", "", "key of the client certificate for the external etcd")
	fs.StringVar(&o.etcd.Prefix, "etcd-prefix", store.DefaultPrefix, "prefix of the keys of API objects in etcd, with --etcd-servers or --data-dir")
	fs.StringVar(&o.encryptionConfig, "encryption-provider-config", "", "the front door's EncryptionConfiguration, with --etcd-servers or --data-dir")
	return cmd
}

func (o *backupOptions) check() error {
	switch {
	case o.Timeout <= 0:
		return errors.New("--timeout: a time is needed")
	case o.dataDir != "" && len(o.etcd.Servers) > 0:
		return errors.New("--data-dir and --etcd-servers: give one of them")
	case o.includeKeys && len(o.etcd.Servers) > 0:
		return errors.New("--include-keys: an etcd has no keys of the front door; leave out --etcd-servers to ask the front door, or copy its keys yourself")
	case o.encryptionConfig != "" && o.dataDir == "" && len(o.etcd.Servers) == 0:
		return errors.New("--encryption-provider-config: the front door knows its own; give it only with --data-dir or --etcd-servers")
	}
	return o.output.Check()
}

// written is the output of `-o json`.
type written struct {
	File      string          `json:"file"`
	Bytes     int64           `json:"bytes"`
	Encrypted bool            `json:"encrypted"`
	Manifest  backup.Manifest `json:"manifest"`
}

func (o *backupOptions) run(ctx context.Context, file string, out, errOut io.Writer) error {
	if err := o.check(); err != nil {
		return err
	}
	recipients, err := backup.Recipients(o.recipients, o.recipientFiles, o.passphraseFile)
	if err != nil {
		return err
	}
	manifest, size, err := o.write(ctx, file, recipients, errOut)
	if err != nil {
		return fmt.Errorf("back up to %s: %w", file, err)
	}
	if !o.output.Is("text") {
		return o.output.Print(out, written{file, size, len(recipients) > 0, manifest})
	}
	if manifest.IncludesKeys && len(recipients) == 0 {
		fmt.Fprintf(errOut, "warning: %s contains private keys and is not encrypted: anyone who can read it has administrator rights\n", file)
	}
	_, err = fmt.Fprintf(out, "%s: %s, etcd at revision %d%s%s\n", file, bytesText(size), manifest.Etcd.Revision,
		either(manifest.IncludesKeys, ", with keys", ""), either(len(recipients) > 0, ", encrypted", ""))
	return err
}

func either(condition bool, yes, no string) string {
	if condition {
		return yes
	}
	return no
}

func bytesText(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%d bytes", n)
}

func (o *backupOptions) write(ctx context.Context, file string, recipients []age.Recipient, errOut io.Writer) (backup.Manifest, int64, error) {
	shown := newProgress(errOut)
	defer shown.end()
	if o.dataDir == "" && len(o.etcd.Servers) == 0 {
		// Send the request before creating a file, because most errors concern the connection to the front door.
		from, err := o.start(ctx)
		if err != nil {
			return backup.Manifest{}, 0, err
		}
		defer from.Close()
		return backup.WriteFile(file, recipients, func(w io.Writer) error {
			_, err := io.Copy(io.MultiWriter(w, shown), from)
			return err
		})
	}
	contents, stop, err := o.withoutFrontDoor(ctx)
	if err != nil {
		return backup.Manifest{}, 0, err
	}
	manifest, size, err := backup.WriteFile(file, recipients, func(w io.Writer) error {
		_, err := backup.Write(io.MultiWriter(w, shown), contents)
		return err
	})
	return manifest, size, errors.Join(err, stop())
}

// start starts a backup through the API.
func (o *backupOptions) start(ctx context.Context) (io.ReadCloser, error) {
	config, err := o.Config()
	if err != nil {
		return nil, err
	}
	config.Timeout = 0 // a backup may take long; only inactivity is limited
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("client of the front door: %w", err)
	}
	path := either(o.includeKeys, request.BackupKeysPath, request.BackupPath)
	ctx, cancel := context.WithCancelCause(ctx)
	silent := time.AfterFunc(o.Timeout, func() { cancel(fmt.Errorf("the front door sent nothing for %s (--timeout)", o.Timeout)) })
	body, err := client.RESTClient().Post().AbsPath(path).MaxRetries(0).Stream(ctx)
	if err != nil {
		silent.Stop()
		defer cancel(nil)
		switch {
		case context.Cause(ctx) != nil && errors.Is(err, context.Canceled):
			return nil, context.Cause(ctx)
		case apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err):
			return nil, errors.New("this API server makes no backups: it is not a Portico front door, or one of an older version")
		}
		return nil, err
	}
	return &streamed{body: body, ctx: ctx, cancel: cancel, silent: silent, timeout: o.Timeout}, nil
}

// streamed is a response body with an inactivity timeout.
type streamed struct {
	body    io.ReadCloser
	ctx     context.Context
	cancel  context.CancelCauseFunc
	silent  *time.Timer
	timeout time.Duration
}

func (s *streamed) Read(p []byte) (int, error) {
	n, err := s.body.Read(p)
	s.silent.Reset(s.timeout)
	if err != nil && !errors.Is(err, io.EOF) && s.ctx.Err() != nil {
		err = context.Cause(s.ctx)
	}
	return n, err
}

func (s *streamed) Close() error {
	s.silent.Stop()
	s.cancel(nil)
	return s.body.Close()
}

// withoutFrontDoor starts a backup of an etcd that this process reaches itself. The caller must call stop.
func (o *backupOptions) withoutFrontDoor(ctx context.Context) (contents backup.Contents, stop func() error, err error) {
	contents = backup.Contents{EtcdPrefix: o.etcd.Prefix, EncryptedAtRest: o.encryptionConfig != ""}
	config := o.etcd
	if o.dataDir != "" {
		config.DataDir = filepath.Join(o.dataDir, "etcd")
		switch {
		case !store.HoldsEtcd(config.DataDir):
			return contents, nil, fmt.Errorf("%s has no etcd of a front door", o.dataDir)
		case store.InUse(config.DataDir):
			return contents, nil, fmt.Errorf("%s is in use by a front door that runs; leave out --data-dir, and it is asked for its backup", o.dataDir)
		}
		if known, err := store.ReadMembership(config.DataDir); err != nil {
			return contents, nil, err
		} else if known != nil && len(known.Others) > 0 {
			return contents, nil, fmt.Errorf("%s has one of several members of etcd, which does not start without the others; leave out --data-dir, and ask a front door of its cluster that runs", o.dataDir)
		}
		if o.includeKeys {
			if contents.Keys, err = o.keys(); err != nil {
				return contents, nil, err
			}
		}
	}
	// The etcd client logs each failed attempt at a member. The returned error contains the cause.
	logs := logging.Default()
	logs.Level = "error"
	if config.Logger, err = logs.New(); err != nil {
		return contents, nil, err
	}
	etcd, err := store.New(config)
	if err != nil {
		return contents, nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- etcd.Run(ctx) }()
	timer := time.NewTimer(o.Timeout)
	defer timer.Stop()
	select {
	case <-etcd.Ready():
	case err := <-ended:
		cancel()
		if err == nil {
			err = ctx.Err()
		}
		return contents, nil, err
	case <-timer.C:
		cancel()
		return contents, nil, errors.Join(fmt.Errorf("etcd is not ready after %s (--timeout)", o.Timeout), <-ended)
	}
	if contents.Snapshot, err = etcd.Snapshot(ctx); err != nil {
		cancel()
		return contents, nil, errors.Join(err, <-ended)
	}
	return contents, func() error {
		err := contents.Snapshot.Close()
		cancel()
		return errors.Join(err, <-ended)
	}, nil
}

// keys returns the keys in the data directory, and the encryption configuration.
func (o *backupOptions) keys() ([]backup.KeyFile, error) {
	keys, err := backup.DirectoryKeys(filepath.Join(o.dataDir, "pki"))
	if err != nil || o.encryptionConfig == "" {
		return keys, err
	}
	key, err := backup.ReadKey("encryption-provider-config", o.encryptionConfig)
	return append(keys, key), err
}

// progress prints the number of bytes written to a terminal.
type progress struct {
	to    io.Writer // nil if the output is not a terminal
	bytes int64
	last  time.Time
}

func newProgress(errOut io.Writer) *progress {
	if f, ok := errOut.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return &progress{to: f}
	}
	return &progress{}
}

// progressInterval is the minimum interval between updates of the line.
const progressInterval = 200 * time.Millisecond

func (p *progress) Write(b []byte) (int, error) {
	p.bytes += int64(len(b))
	if p.to != nil && time.Since(p.last) > progressInterval {
		p.last = time.Now()
		fmt.Fprintf(p.to, "\r\x1b[K%s", bytesText(p.bytes))
	}
	return len(b), nil
}

// end removes the line.
func (p *progress) end() {
	if p.to != nil {
		fmt.Fprint(p.to, "\r\x1b[K")
	}
}
