package backup

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"portico.dev/internal/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 5 * time.Minute

// running returns a running store with some keys.
func running(t *testing.T) *store.Store {
	t.Helper()
	s, err := store.New(store.Config{DataDir: filepath.Join(t.TempDir(), "etcd")})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	select {
	case <-s.Ready():
	case err := <-ended:
		t.Fatal(err)
	case <-time.After(patience):
		t.Fatalf("etcd is not ready after %v, want Ready closed", patience)
	}
	if err := s.Put(ctx, "color", []byte("blue")); err != nil {
		t.Fatal(err)
	}
	return s
}

func contentsOf(t *testing.T, s *store.Store, keys ...KeyFile) Contents {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	snapshot, err := s.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = snapshot.Close() })
	return Contents{Snapshot: snapshot, EtcdPrefix: "/registry", Keys: keys}
}

func writeFile(t *testing.T, file string, recipients []age.Recipient, c Contents) Manifest {
	t.Helper()
	m, size, err := WriteFile(file, recipients, func(w io.Writer) error {
		_, err := Write(w, c)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 || info.Size() != size {
		t.Fatalf("backup file has mode %v and %d bytes, error %v, want mode 0600 and %d bytes", info.Mode(), info.Size(), err, size)
	}
	return m
}

var someKeys = []KeyFile{
	{Name: "ca.key", Data: []byte("a secret key")},
	{Flag: "service-account-key-file", Name: "sa.key", Data: []byte("another secret")},
}

// The restored state equals the written state, encrypted or not, and with or without the keys.
func TestRestoredStateEqualsBackup(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	s := running(t)
	passphraseFile, identityFile := filepath.Join(t.TempDir(), "passphrase"), filepath.Join(t.TempDir(), "identity")
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	for file, text := range map[string]string{passphraseFile: "correct horse\n", identityFile: identity.String() + "\n"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		recipients     []string
		passphraseFile string
		identityFiles  []string
		keys           []KeyFile
		skip           bool
	}{
		"in the clear":                {},
		"with keys":                   {keys: someKeys},
		"with keys that are left out": {keys: someKeys, skip: true},
		"with a passphrase":           {passphraseFile: passphraseFile, keys: someKeys},
		"for a recipient":             {recipients: []string{identity.Recipient().String()}, identityFiles: []string{identityFile}, keys: someKeys},
	} {
		t.Run(name, func(t *testing.T) {
			recipients, err := Recipients(c.recipients, nil, c.passphraseFile)
			if err != nil {
				t.Fatal(err)
			}
			file, dir := filepath.Join(t.TempDir(), "b"), filepath.Join(t.TempDir(), "data")
			manifest := writeFile(t, file, recipients, contentsOf(t, s, c.keys...))
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if encrypted := bytes.HasPrefix(text, []byte(encryptedPrefix)); encrypted != (len(recipients) > 0) {
				t.Errorf("file is encrypted = %v, want %v", encrypted, len(recipients) > 0)
			}
			if len(recipients) > 0 {
				if _, err := Open(file, nil); err == nil || !strings.Contains(err.Error(), "--passphrase-file") {
					t.Errorf("Open() of an encrypted backup without a key: error = %v, want one that contains %q", err, "--passphrase-file")
				}
				other, err := age.GenerateX25519Identity()
				if err != nil {
					t.Fatal(err)
				}
				if _, err := Open(file, []age.Identity{other}); err == nil {
					t.Error("Open() with another key succeeded, want an error")
				}
			}
			identities, err := Identities(c.identityFiles, c.passphraseFile)
			if err != nil {
				t.Fatal(err)
			}
			a, err := Open(file, identities)
			if err != nil {
				t.Fatal(err)
			}
			defer a.Close()
			if !reflect.DeepEqual(a.Manifest, manifest) || manifest.Etcd.Revision == 0 || manifest.IncludesKeys != (len(c.keys) > 0) {
				t.Errorf("manifest = %+v, want %+v with a revision and the keys %v", a.Manifest, manifest, len(c.keys) > 0)
			}
			if err := a.Verify(); err != nil {
				t.Error(err)
			}
			r, err := a.Restore(Target{DataDir: dir, SkipKeys: c.skip, Log: zap.NewNop()})
			if err != nil {
				t.Fatal(err)
			}
			if !store.HoldsEtcd(r.Etcd) {
				t.Errorf("HoldsEtcd(%s) = false after Restore, want true", r.Etcd)
			}
			hasKeys := len(c.keys) > 0 && !c.skip
			for path, want := range map[string]string{"pki/ca.key": "a secret key", "restored-keys/service-account-key-file/sa.key": "another secret"} {
				got, err := os.ReadFile(filepath.Join(dir, path))
				if hasKeys && string(got) != want || !hasKeys && !errors.Is(err, os.ErrNotExist) {
					t.Errorf("%s = %q, error %v, want %q if keys are restored (%v)", path, got, err, want, hasKeys)
				}
				if info, err := os.Stat(filepath.Join(dir, path)); hasKeys && (err != nil || info.Mode().Perm() != 0o600) {
					t.Errorf("Stat(%s) = %v, error %v, want mode 0600", path, info, err)
				}
			}
			if (r.Keys != "") != hasKeys || (len(r.Flags) > 0) != hasKeys {
				t.Errorf("Restore() = %+v, want keys and flags %v", r, hasKeys)
			}
			left, err := filepath.Glob(filepath.Join(dir, ".*"))
			if err != nil || len(left) > 0 {
				t.Errorf("temporary files after Restore = %v, error %v, want none", left, err)
			}
			// Existing files are never overwritten, and the error gives the next step.
			if _, err := a.Restore(Target{DataDir: dir, Log: zap.NewNop()}); err == nil || !strings.Contains(err.Error(), "mv "+r.Etcd+" ") {
				t.Errorf("second Restore(): error = %v, want one that contains %q", err, "mv "+r.Etcd)
			}
			if err := os.Rename(r.Etcd, r.Etcd+".before-restore"); err != nil {
				t.Fatal(err)
			}
			_, err = a.Restore(Target{DataDir: dir, Log: zap.NewNop()})
			if hasKeys && (err == nil || !strings.Contains(err.Error(), "mv "+r.Keys+" ") || !strings.Contains(err.Error(), "--skip-keys")) {
				t.Errorf("Restore() over keys: error = %v, want one that contains %q and --skip-keys", err, "mv "+r.Keys)
			}
			if !hasKeys && len(c.keys) == 0 && err != nil {
				t.Errorf("Restore() after the directory was moved failed: %v, want no error", err)
			}
		})
	}
}

func TestRestoreIntoDirectoryInUseIsRefused(t *testing.T) {
	dir := t.TempDir()
	s, err := store.New(store.Config{DataDir: filepath.Join(dir, "etcd")})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	<-s.Ready()
	file := filepath.Join(t.TempDir(), "b")
	writeFile(t, file, nil, contentsOf(t, s))
	a, err := Open(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if _, err := a.Restore(Target{DataDir: dir, Log: zap.NewNop()}); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("Restore() into a directory in use: error = %v, want one that contains %q", err, "in use")
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A damaged backup, or a file that was never one, is refused, and no directory is created.
func TestInvalidBackupIsRefused(t *testing.T) {
	s := running(t)
	file := filepath.Join(t.TempDir(), "b")
	writeFile(t, file, nil, contentsOf(t, s, someKeys...))
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	encrypted := filepath.Join(t.TempDir(), "e")
	writeFile(t, encrypted, []age.Recipient{identity.Recipient()}, contentsOf(t, s, someKeys...))
	sealed, err := os.ReadFile(encrypted)
	if err != nil {
		t.Fatal(err)
	}
	flipped := func(of []byte, at int) []byte {
		out := bytes.Clone(of)
		out[at] ^= 1
		return out
	}
	for name, c := range map[string]struct {
		content []byte
		says    string
	}{
		"nothing":                 {nil, "no backup"},
		"text":                    {[]byte("apiVersion: v1\nkind: Config\n"), "no backup"},
		"half of one":             {whole[:len(whole)/2], "not all of one"},
		"all but a byte":          {whole[:len(whole)-1], "not all of one"},
		"a bit of the snapshot":   {damaged(t, whole), ""},
		"a bit that is encrypted": {flipped(sealed, len(sealed)/3), ""},
		"half that is encrypted":  {sealed[:len(sealed)/2], ""},
		"a newer format":          {rewritten(t, whole, func(m *Manifest) { m.FormatVersion = 2; m.Portico = "v9.9.9" }, nil), "Portico v9.9.9 or later"},
		"a newer Kubernetes":      {rewritten(t, whole, func(m *Manifest) { m.Kubernetes = "v1.99.0+portico-v9" }, nil), "v1.99.0"},
		"a newer etcd":            {rewritten(t, whole, func(m *Manifest) { m.Etcd.StorageVersion = "3.99.0" }, nil), "3.99.0"},
		"an older patch":          {rewritten(t, whole, func(m *Manifest) { m.Files[0].SHA256 = strings.Repeat("0", 64) }, nil), "not what its manifest says"},
		"a file that is longer":   {rewritten(t, whole, func(m *Manifest) { m.Files[1].Size-- }, nil), "not what its manifest says"},
		"a file that leads away":  {rewritten(t, whole, func(m *Manifest) { m.Files[1].Name = "keys/pki/../../../evil" }, map[string]string{"keys/pki/ca.key": "keys/pki/../../../evil"}), "none of a backup"},
		"an absolute file":        {rewritten(t, whole, func(m *Manifest) { m.Files[1].Name = "/etc/passwd" }, map[string]string{"keys/pki/ca.key": "/etc/passwd"}), "none of a backup"},
		"a file that is deeper":   {rewritten(t, whole, func(m *Manifest) { m.Files[1].Name = "keys/pki/a/b" }, map[string]string{"keys/pki/ca.key": "keys/pki/a/b"}), "none of a backup"},
		"a file that is not told": {rewritten(t, whole, func(m *Manifest) { m.Files = m.Files[:2] }, nil), "lists 3 entries"},
		"no snapshot":             {rewritten(t, whole, func(m *Manifest) { m.Files[0].Name = "keys/pki/x" }, map[string]string{etcdName: "keys/pki/x"}), "no snapshot"},
	} {
		t.Run(name, func(t *testing.T) {
			bad, dir := filepath.Join(t.TempDir(), "bad"), filepath.Join(t.TempDir(), "data")
			if err := os.WriteFile(bad, c.content, 0o600); err != nil {
				t.Fatal(err)
			}
			a, err := Open(bad, []age.Identity{identity})
			if err == nil {
				defer a.Close()
				if err = a.Verify(); err == nil {
					t.Error("Verify() succeeded, want an error")
				}
				_, err = a.Restore(Target{DataDir: dir, Log: zap.NewNop()})
			}
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("error = %v, want one that contains %q", err, c.says)
			}
			if _, err := os.Stat(filepath.Join(dir, "etcd")); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("Stat of etcd after a refused backup: error = %v, want %v", err, os.ErrNotExist)
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(filepath.Dir(dir)), "evil")); err == nil {
				t.Error("a file was written outside the data directory, want none")
			}
		})
	}
}

// damaged flips a bit of the snapshot that changes its content; some bits of a compressed file do not.
func damaged(t *testing.T, whole []byte) []byte {
	t.Helper()
	before := snapshotIn(whole)
	if before == nil {
		t.Fatal("the backup has no readable snapshot, want one to damage")
	}
	for at := len(whole) / 3; at < len(whole)/2; at++ {
		out := bytes.Clone(whole)
		out[at] ^= 1
		if !bytes.Equal(snapshotIn(out), before) {
			return out
		}
	}
	t.Fatal("no flipped bit changed the snapshot, want one that does")
	return nil
}

// snapshotIn returns the snapshot of a backup, or nil if it cannot be read.
func snapshotIn(whole []byte) []byte {
	from, err := zip.NewReader(bytes.NewReader(whole), int64(len(whole)))
	if err != nil {
		return nil
	}
	f, err := from.Open(etcdName)
	if err != nil {
		return nil
	}
	defer f.Close()
	content, err := io.ReadAll(f)
	if err != nil {
		return nil
	}
	return content
}

// rewritten returns a backup with a changed manifest and renamed entries.
func rewritten(t *testing.T, whole []byte, change func(*Manifest), names map[string]string) []byte {
	t.Helper()
	from, err := zip.NewReader(bytes.NewReader(whole), int64(len(whole)))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	to := zip.NewWriter(&out)
	for _, f := range from.File {
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		name := f.Name
		if other, ok := names[name]; ok {
			name = other
		}
		if name == manifestName {
			var m Manifest
			if err := json.Unmarshal(content, &m); err != nil {
				t.Fatal(err)
			}
			change(&m)
			if content, err = json.Marshal(m); err != nil {
				t.Fatal(err)
			}
		}
		w, err := to.Create(name)
		if err == nil {
			_, err = w.Write(content)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := to.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// A backup that cannot be written leaves the former file unchanged, and no other file.
func TestFailedWriteKeepsPreviousFile(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "b")
	if err := os.WriteFile(file, []byte("of yesterday"), 0o600); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("no space left on device")
	for name, produce := range map[string]func(io.Writer) error{
		"an error":         func(io.Writer) error { return broken },
		"too little":       func(w io.Writer) error { _, err := w.Write([]byte("PK")); return err },
		"an error halfway": func(w io.Writer) error { _, err := w.Write(make([]byte, 5*tailSize)); return errors.Join(err, broken) },
	} {
		if _, _, err := WriteFile(file, nil, produce); err == nil {
			t.Errorf("%s: WriteFile() succeeded, want an error", name)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("files after failed writes = %v, error %v, want only the former backup", entries, err)
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "of yesterday" {
		t.Errorf("file after failed writes = %q, error %v, want %q", text, err, "of yesterday")
	}
}

// An etcd that ends early, or that sends different data, produces no backup.
func TestTruncatedSnapshotIsRejected(t *testing.T) {
	c := contentsOf(t, running(t))
	whole, err := io.ReadAll(c.Snapshot)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range [][]byte{nil, whole[:40], whole[:len(whole)-32], append(bytes.Clone(whole), 0)} {
		c.Snapshot.Reader = bytes.NewReader(part)
		if _, err := Write(io.Discard, c); !errors.Is(err, errCutOff) {
			t.Errorf("Write() of %d bytes: error = %v, want %v", len(part), err, errCutOff)
		}
	}
	c.Snapshot.Reader = bytes.NewReader(whole)
	if _, err := Write(io.Discard, c); err != nil {
		t.Error(err)
	}
}

func TestInvalidPassphrasesAndKeysAreRejected(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
		return file
	}
	good := write("good", "secret\r\n", 0o600)
	if got, err := readPassphrase(good); err != nil || got != "secret" {
		t.Errorf("readPassphrase() = %q, error %v, want %q", got, err, "secret")
	}
	for name, try := range map[string]func() error{
		"open to everybody": func() error { _, err := Recipients(nil, nil, write("open", "secret", 0o644)); return err },
		"empty":             func() error { _, err := Recipients(nil, nil, write("empty", "\nsecret", 0o600)); return err },
		"too long": func() error {
			_, err := Recipients(nil, nil, write("long", strings.Repeat("x", 5000), 0o600))
			return err
		},
		"missing":     func() error { _, err := Identities(nil, filepath.Join(dir, "none")); return err },
		"both":        func() error { _, err := Recipients([]string{"age1x"}, nil, good); return err },
		"no key":      func() error { _, err := Recipients([]string{"age1x"}, nil, ""); return err },
		"no keys":     func() error { _, err := Recipients(nil, []string{good}, ""); return err },
		"no identity": func() error { _, err := Identities([]string{good}, ""); return err },
	} {
		if try() == nil {
			t.Errorf("%s: accepted, want an error", name)
		}
	}
}
