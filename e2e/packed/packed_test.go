package packed

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

func TestWrittenContentIsRead(t *testing.T) {
	content := bytes.Repeat([]byte("a line of a recording\n"), 10_000)
	for name, smaller := range map[string]bool{"a.jsonl": false, "a.jsonl.zst": true} {
		file := filepath.Join(t.TempDir(), name)
		if err := Write(file, content); err != nil {
			t.Fatal(err)
		}
		if got, err := Read(file); err != nil || !bytes.Equal(got, content) {
			t.Errorf("Read(%s) = %d bytes, %v, want the %d bytes that were written", name, len(got), err, len(content))
		}
		if info, err := os.Stat(file); err != nil || (info.Size() < int64(len(content))/10) != smaller {
			t.Errorf("size of %s = %v, %v, want it packed: %t", name, info.Size(), err, smaller)
		}
	}
}

func TestDamagedFileIsNotRead(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.zst")
	if err := Write(file, []byte("content")); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, whole[:len(whole)-3], 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := Read(file); err == nil {
		t.Errorf("Read of a truncated file = %q, want an error", got)
	}
}
