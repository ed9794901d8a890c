package transport

import (
	"net"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"
)

// There is no moment in which half a record is neither the kernel's nor the reader's.
func TestSocketConnIsNotEmptyWithinARecord(t *testing.T) {
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
				t.Fatalf("record %d, cut at %d: nothing is there, it says", n, cut)
			}
		}
		send(record[cut:])
		for deadline := time.Now().Add(30 * time.Second); !k.empty(); runtime.Gosched() {
			if time.Now().After(deadline) {
				t.Fatal("a whole record is never dealt with")
			}
		}
	}
	_ = far.Close()
	reader.Wait()
}

// pair are both ends of a connection where what is written is there when Write returns.
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
