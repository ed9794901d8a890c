package backup

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"filippo.io/age"
)

// WriteFile writes what produce writes, a backup, to a file of that name: encrypted for recipients, if there are any, open
// to its owner alone, and either all of it or not at all. A file that was there is replaced when the new one is complete.
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

// tailSize is enough for the manifest and for the table of contents, which are last.
const tailSize = 2 * maxManifest

// tail keeps the end of what is written to it. By that it is known whether a backup is all there, and what it says of
// itself, also if it is encrypted for somebody else.
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
