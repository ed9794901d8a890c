package transport

import (
	"net"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"
)

// At any time, a partial record is either in the kernel or in the reader.
func TestSocketConnIsNotEmptyWithinRecord(t *testing.T) {
	near, far := pair(t)
	k := newSocketConn(near)
	var reader sync.WaitGroup
	reader.Go(func() {
		room := make([]byte, 1<<10)
		for {
			if _, err := k.Read(room); err != nil {
				return
			}
		}
	})
	send := func(b []byte) {
		if _, err := far.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	record := append([]byte{23, 3, 3, 0, 10}, make([]byte, 10)...)
	for n := range 5000 {
		cut := 1 + n%(len(record)-1)
		send(record[:cut])
		for range 20 {
			if k.empty() {
				t.Fatalf("empty() with a part of record %d, cut at %d = true, want false", n, cut)
			}
		}
		send(record[cut:])
		for deadline := time.Now().Add(30 * time.Second); !k.empty(); runtime.Gosched() {
			if time.Now().After(deadline) {
				t.Fatalf("record %d was not read within 30 seconds, want empty() to be true", n)
			}
		}
	}
	_ = far.Close()
	reader.Wait()
}

// pair returns both ends of a connection on which written bytes are readable when Write returns.
func pair(t *testing.T) (near, far net.Conn) {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if near, err = net.Dial("unix", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if far, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = near.Close(), far.Close() })
	return near, far
}
