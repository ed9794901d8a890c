package backup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"go.uber.org/zap"

	"portico.dev/internal/store"
)

// Target specifies where a backup is restored.
type Target struct {
	// DataDir is the data directory of a front door that is not running. The restored directories must not exist in it, or must
	// be empty.
	DataDir string
	// SkipKeys excludes the keys of the backup.
	SkipKeys bool
	Log      *zap.Logger
}

// Restored lists the restored files.
type Restored struct {
	// Etcd is the directory of etcd.
	Etcd string `json:"etcd"`
	// Keys is the directory of the keys; empty if none were restored.
	Keys string `json:"keys,omitempty"`
	// Flags maps each flag to the restored files that it named.
	Flags map[string][]string `json:"flags,omitempty"`
}

// flagFiles is the directory, below the data directory, for restored files that were outside of it.
const flagFiles = "restored-keys"

// Restore creates a data directory from a backup. etcd is restored last and atomically: if it exists, the restore is complete.
func (a *Archive) Restore(t Target) (r Restored, err error) {
	r.Etcd = filepath.Join(t.DataDir, "etcd")
	if err := mustBeFree(r.Etcd); err != nil {
		return r, err
	}
	keys := filepath.Join(t.DataDir, "pki")
	restoresKeys := a.Manifest.IncludesKeys && !t.SkipKeys
	if restoresKeys {
		for _, dir := range []string{keys, filepath.Join(t.DataDir, flagFiles)} {
			if err := mustBeFree(dir); err != nil {
				return r, fmt.Errorf("%w; or keep the keys that are there with --skip-keys", err)
			}
		}
	}
	if err := os.MkdirAll(t.DataDir, 0o700); err != nil {
		return r, err
	}
	making, err := os.MkdirTemp(t.DataDir, ".restore-")
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(making)) }()
	snapshot := filepath.Join(making, etcdName)
	if err := a.extract(a.Manifest.Snapshot(), snapshot); err != nil {
		return r, err
	}
	if restoresKeys {
		if err := a.restoreKeys(making, t.DataDir, &r); err != nil {
			return r, err
		}
	}
	if err := os.Remove(r.Etcd); err != nil && !errors.Is(err, fs.ErrNotExist) { // it is empty
		return r, err
	}
	return r, store.RestoreSnapshot(snapshot, r.Etcd, t.Log)
}

// mustBeFree returns an error with a remedy if a directory is not empty.
func mustBeFree(dir string) error {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case len(entries) == 0:
		return nil
	case store.InUse(dir):
		return fmt.Errorf("%s is in use by a front door that runs; stop it first", dir)
	}
	return fmt.Errorf("%s is not empty, and nothing is written over; move it away with: mv %s %s.before-restore", dir, dir, dir)
}

func (a *Archive) restoreKeys(making, dataDir string, r *Restored) error {
	r.Flags = map[string][]string{}
	pki, flags := filepath.Join(making, "pki"), filepath.Join(making, flagFiles)
	for _, f := range a.Manifest.Files {
		var to string
		if name, ok := strings.CutPrefix(f.Name, pkiPrefix); ok {
			to = filepath.Join(pki, name)
			r.Keys = filepath.Join(dataDir, "pki")
		} else if name, ok := strings.CutPrefix(f.Name, flagsPrefix); ok {
			to = filepath.Join(flags, filepath.FromSlash(name))
			flag, _, _ := strings.Cut(name, "/")
			r.Flags[flag] = append(r.Flags[flag], filepath.Join(dataDir, flagFiles, filepath.FromSlash(name)))
		} else {
			continue
		}
		if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
			return err
		}
		if err := a.extract(f, to); err != nil {
			return err
		}
	}
	for made, to := range map[string]string{pki: filepath.Join(dataDir, "pki"), flags: filepath.Join(dataDir, flagFiles)} {
		if _, err := os.Stat(made); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err := os.Rename(made, to); err != nil { // an empty directory is replaced
			return err
		}
	}
	return syncDirectory(dataDir)
}

func (a *Archive) extract(f File, to string) error {
	file, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	err = a.copy(file, f)
	if err == nil {
		err = file.Sync()
	}
	return errors.Join(err, file.Close())
}
