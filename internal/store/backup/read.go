package backup

import (
	"archive/zip"
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"filippo.io/age"
)

// Archive is an open backup.
type Archive struct {
	Manifest Manifest
	files    map[string]*zip.File
	close    func() error
}

const encryptedPrefix = "age-encryption.org/"

// Open reads the manifest of a backup file, and decrypts it with identities if necessary. It returns an error if the file is
// not a backup, is incomplete, or has an unknown version. Entries are verified when they are read.
func Open(file string, identities []age.Identity) (*Archive, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	a, err := open(f, identities)
	if err != nil {
		_ = f.Close() // the file was only read
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	a.close = f.Close
	return a, nil
}

func open(f *os.File, identities []age.Identity) (*Archive, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	var content io.ReaderAt = f
	size := info.Size()
	begin := make([]byte, len(encryptedPrefix))
	if _, err := f.ReadAt(begin, 0); err == nil && bytes.Equal(begin, []byte(encryptedPrefix)) {
		if len(identities) == 0 {
			return nil, errors.New("it is encrypted; give what opens it with --passphrase-file or --identity-file")
		}
		if content, size, err = age.DecryptReaderAt(f, size, identities...); err != nil {
			return nil, fmt.Errorf("decrypt: %w", err)
		}
	}
	a, err := openArchive(content, size)
	if err != nil {
		return nil, err
	}
	return a, a.Manifest.check()
}

func openArchive(content io.ReaderAt, size int64) (*Archive, error) {
	archive, err := zip.NewReader(content, size)
	if err != nil {
		return nil, fmt.Errorf("it is no backup, or not all of one: %w", err)
	}
	if len(archive.File) > maxFiles {
		return nil, fmt.Errorf("it has more than %d entries", maxFiles)
	}
	a := &Archive{files: make(map[string]*zip.File, len(archive.File)), close: func() error { return nil }}
	for _, f := range archive.File {
		if a.files[f.Name] != nil {
			return nil, fmt.Errorf("it has two entries %q", f.Name)
		}
		a.files[f.Name] = f
	}
	f := a.files[manifestName]
	if f == nil {
		return nil, errors.New("it is no backup: it has no manifest")
	}
	r, err := f.Open()
	if err != nil {
		return nil, fmt.Errorf("its manifest: %w", err)
	}
	defer r.Close()
	text, err := io.ReadAll(io.LimitReader(r, maxManifest))
	if err != nil {
		return nil, fmt.Errorf("its manifest: %w", err)
	}
	if err := json.Unmarshal(text, &a.Manifest); err != nil {
		return nil, fmt.Errorf("its manifest: %w", err)
	}
	return a, a.checkNames()
}

// checkNames compares the manifest with the zip central directory, and rejects names outside of the directory.
func (a *Archive) checkNames() error {
	if len(a.Manifest.Files)+1 != len(a.files) {
		return fmt.Errorf("its manifest lists %d entries, and it has %d", len(a.Manifest.Files)+1, len(a.files))
	}
	listed := map[string]bool{}
	for _, f := range a.Manifest.Files {
		if a.files[f.Name] == nil || listed[f.Name] {
			return fmt.Errorf("its manifest lists %q, which is not there once", f.Name)
		}
		listed[f.Name] = true
		if f.Name == etcdName {
			continue
		}
		rest, isKey := strings.CutPrefix(f.Name, "keys/")
		if !isKey || !filepath.IsLocal(rest) || path.Clean(rest) != rest || strings.Contains(rest, `\`) {
			return fmt.Errorf("it has an entry %q, which is none of a backup", f.Name)
		}
		if parts := strings.Split(rest, "/"); !(len(parts) == 2 && parts[0] == "pki" || len(parts) == 3 && parts[0] == "flags") {
			return fmt.Errorf("it has an entry %q, which is none of a backup", f.Name)
		}
		if f.Size > maxKeyFile {
			return fmt.Errorf("its entry %q has more than %d bytes", f.Name, maxKeyFile)
		}
	}
	if !listed[etcdName] {
		return errors.New("it has no snapshot of etcd")
	}
	return nil
}

func (a *Archive) Close() error { return a.close() }

// copy writes one entry to w, and verifies it against the manifest.
func (a *Archive) copy(w io.Writer, f File) error {
	r, err := a.files[f.Name].Open()
	if err != nil {
		return fmt.Errorf("%s in the backup: %w", f.Name, err)
	}
	defer r.Close()
	sum := sha256.New()
	// One byte more than expected, to detect a longer entry.
	n, err := io.Copy(io.MultiWriter(w, sum), io.LimitReader(bufio.NewReader(r), f.Size+1))
	if err != nil {
		return fmt.Errorf("%s in the backup: %w", f.Name, err)
	}
	if n != f.Size || hex.EncodeToString(sum.Sum(nil)) != f.SHA256 {
		return fmt.Errorf("%s in the backup is not what its manifest says: the backup was changed, or the disk is damaged; use another", f.Name)
	}
	return nil
}

// Verify reads the whole backup and returns an error if it differs from its manifest.
func (a *Archive) Verify() error {
	for _, f := range a.Manifest.Files {
		if err := a.copy(io.Discard, f); err != nil {
			return err
		}
	}
	return nil
}
