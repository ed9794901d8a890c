package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"portico.dev/internal/logging"
	"portico.dev/internal/store"
	"portico.dev/internal/store/backup"
	"portico.dev/internal/tools/cli"
)

type restoreOptions struct {
	dataDir        string
	identityFiles  []string
	passphraseFile string
	skipKeys       bool
	verifyOnly     bool
	output         cli.Output
}

func restoreCommand() *cobra.Command {
	var o restoreOptions
	cmd := &cobra.Command{
		Use:   "restore FILE --data-dir DIR",
		Short: "Restore the data directory of a front door from a backup",
		Long: `Restore the data directory of a front door from a backup: its etcd, and its keys if the backup has them.

Nothing is overwritten: DIR must have no etcd, and no keys if the backup has some. The whole backup is verified
first. Resource versions continue far above the backup's, and all lower ones count as compacted: watches and informers
at a resource version later than the backup get 410 Gone, and list again.

For an external etcd, extract etcd.db from the backup and restore it with etcdutl: see docs/backup.md.`,
		Example: `  aggregator restore portico.backup --data-dir /var/lib/portico
  aggregator restore portico.backup --data-dir /var/lib/portico --identity-file key.txt
  aggregator restore portico.backup --verify-only`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.run(args[0], cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&o.dataDir, "data-dir", "", "data directory to create")
	fs.StringArrayVar(&o.identityFiles, "identity-file", nil, "decrypt with the age private keys in this file, as written by age-keygen; may be repeated")
	fs.StringVar(&o.passphraseFile, "passphrase-file", "", "decrypt with the passphrase in the first line of this file")
	fs.BoolVar(&o.skipKeys, "skip-keys", false, "do not restore the keys in the backup")
	fs.BoolVar(&o.verifyOnly, "verify-only", false, "verify the whole backup and write nothing")
	o.output.Add(fs)
	return cmd
}

func (o *restoreOptions) run(file string, out, errOut io.Writer) error {
	if o.dataDir == "" && !o.verifyOnly {
		return errors.New("--data-dir: say which directory is to be made, or give --verify-only")
	}
	if err := o.output.Check(); err != nil {
		return err
	}
	identities, err := backup.Identities(o.identityFiles, o.passphraseFile)
	if err != nil {
		return err
	}
	archive, err := backup.Open(file, identities)
	if err != nil {
		return fmt.Errorf("read the backup: %w", err)
	}
	defer archive.Close()
	result := struct {
		backup.Restored
		Verified bool            `json:"verified"`
		Manifest backup.Manifest `json:"manifest"`
	}{Verified: true, Manifest: archive.Manifest}
	if o.verifyOnly {
		err = archive.Verify()
	} else {
		logs := logging.Default()
		log, logErr := logs.New()
		if logErr != nil {
			return logErr
		}
		defer func() { _ = log.Sync() }() // flush buffered lines
		result.Restored, err = archive.Restore(backup.Target{DataDir: o.dataDir, SkipKeys: o.skipKeys, Log: log})
	}
	if err != nil {
		return fmt.Errorf("restore %s: %w", file, err)
	}
	if !o.output.Is("text") {
		return o.output.Print(out, result)
	}
	m := archive.Manifest
	fmt.Fprintf(out, "%s is complete: created %s, etcd at revision %d, Portico %s%s\n", file, m.Time.Format(time.RFC3339), m.Etcd.Revision, m.Portico,
		either(m.IncludesKeys, ", with keys", ""))
	if o.verifyOnly {
		return nil
	}
	return o.next(result.Restored, m, out, errOut)
}

// next prints the restored parts and the next steps.
func (o *restoreOptions) next(r backup.Restored, m backup.Manifest, out, errOut io.Writer) error {
	fmt.Fprintf(out, "created %s; resource versions continue above %d\n", r.Etcd, m.Etcd.Revision+store.RevisionBump)
	start := "aggregator serve --data-dir " + o.dataDir
	if m.Etcd.Prefix != store.DefaultPrefix {
		start += " --etcd-prefix " + m.Etcd.Prefix
	}
	if r.Keys != "" {
		fmt.Fprintf(out, "created %s\n", r.Keys)
	}
	for _, flag := range slices.Sorted(maps.Keys(r.Flags)) {
		for _, file := range r.Flags[flag] {
			start += " --" + flag + " " + file
		}
	}
	if m.EncryptedAtRest && len(r.Flags["encryption-provider-config"]) == 0 {
		fmt.Fprintln(errOut, "warning: its objects are encrypted at rest; they cannot be read without the previous --encryption-provider-config")
	}
	_, err := fmt.Fprintf(out, "start it with its other previous flags: %s\n", start)
	return err
}
