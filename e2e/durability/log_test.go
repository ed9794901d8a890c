package durability

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// A kill may interrupt a write to etcd's log, so that the last record is incomplete. It was not acknowledged, and must not
// prevent a start of the front door.
func TestAHalfWrittenLog(t *testing.T) {
	d := newFrontDoor(t, "--etcd-compaction-interval", "0", "--etcd-unix-socket", "etcd.sock")
	d.start()
	r := record(t, d.client(), 3, 2)
	r.until(40)
	for _, half := range [][]byte{
		frame(20_000, 9_000),     // the record is longer than its written part
		frame(20_000, 0),         // only its length
		{0x10, 0x27, 0x00, 0x00}, // half of its length
	} {
		d.kill()
		tearLog(t, filepath.Join(d.dir, "data", "etcd", "member", "wal"), half)
		d.start()
		r.until(20)
	}
	r.verdict("unix://" + filepath.Join(d.dir, "etcd.sock"))
	d.stop()
}

// frame is the beginning of a record of the log: its length, and as much as was written of the rest.
func frame(length, written int) []byte {
	return append(binary.LittleEndian.AppendUint64(nil, uint64(length)), bytes.Repeat([]byte{7}, written)...)
}

// tearLog puts half of a record behind the last whole one. A segment of the log may
// have been made in its full size, of zeros.
func tearLog(t *testing.T, dir string, half []byte) {
	t.Helper()
	segments, err := filepath.Glob(filepath.Join(dir, "*.wal"))
	if err != nil || len(segments) == 0 {
		t.Fatalf("log segments in %s: error %v, want at least one segment", dir, err)
	}
	last := slices.Max(segments)
	content, err := os.ReadFile(last)
	if err != nil {
		t.Fatal(err)
	}
	end := 0
	for end+8 <= len(content) {
		field := binary.LittleEndian.Uint64(content[end:])
		if field == 0 {
			break
		}
		// The low 56 bits are the length of the record. The top byte contains the length of the padding.
		size := int(field &^ (0xff << 56))
		if field>>63 == 1 {
			size += int(field>>56) & 0x7
		}
		end += 8 + size
	}
	if end == 0 {
		t.Fatal("the log has no record, want at least one")
	}
	file, err := os.OpenFile(last, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteAt(half, int64(end)); err != nil {
		t.Fatal(err)
	}
}
