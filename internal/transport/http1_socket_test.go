package transport

import (
	"bytes"
	"io"
	"net"
	"testing"
	"time"
)

// streams returns both ends of a TCP connection.
func streams(t testing.TB) (near, far net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if near, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if far, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = near.Close(), far.Close() })
	return near, far
}

// Bytes in the kernel's buffer count even if the reader has not been woken up yet.
func TestSocketConnSeesUnreadBytes(t *testing.T) {
	for name, come := range map[string]func(net.Conn) error{
		"bytes":   func(c net.Conn) error { _, err := c.Write([]byte("x")); return err },
		"the end": net.Conn.Close,
	} {
		t.Run(name, func(t *testing.T) {
			near, far := streams(t)
			k := newSocketConn(near)
			if k.empty() {
				t.Error("empty() before the first read = true, want false")
			}
			k.idle.Store(true) // as if a reader waited
			if !k.empty() {
				t.Error("empty() of an idle connection without bytes = false, want true")
			}
			if err := come(far); err != nil {
				t.Fatal(err)
			}
			eventually(t, time.Minute, "it is seen", func() bool { return !k.empty() })
		})
	}
}

// A reader is idle only at the beginning of a record.
func TestSocketConnTracksRecords(t *testing.T) {
	record := append([]byte{23, 3, 3, 1, 2}, make([]byte, 258)...)
	for cut := range len(record) + 1 {
		var k socketConn
		k.trackRecords(record)
		k.trackRecords(record[:cut])
		if rests := k.got == 0 && k.remaining == 0; rests != (cut == 0 || cut == len(record)) {
			t.Fatalf("idle after %d of %d bytes of a record = %v, want it only at the ends", cut, len(record), rests)
		}
		k.trackRecords(record[cut:])
		if k.got != 0 || k.remaining != 0 {
			t.Fatalf("rest of a record cut at %d leaves %d header bytes and %d of the body, want 0 and 0", cut, k.got, k.remaining)
		}
	}
}

func TestUnsolicitedBytesAreRejected(t *testing.T) {
	for name, c := range map[string]struct {
		conn *http1Conn
		want error
	}{
		"before any request":  {&http1Conn{}, errUnrequested},
		"between two of them": {&http1Conn{responded: true}, io.EOF}, // as if it had been closed while it was idle
	} {
		if good, err := c.conn.inspect([]byte("HTTP/1.1 200 OK\r\n")); good != 0 || err != c.want {
			t.Errorf("inspect of unsolicited bytes %s = %d with the error %v, want 0 and %v", name, good, err, c.want)
		}
	}
}

// crypto/tls keeps the largest buffer that it has needed, which is as large as a single read may be.
func TestSocketConnReadsInChunks(t *testing.T) {
	near, far := streams(t)
	k := newSocketConn(near)
	k.chunk = 100
	record := append([]byte{23, 3, 3, 1, 2}, make([]byte, 258)...)
	sent := bytes.Repeat(record, 3)
	if _, err := far.Write(sent); err != nil {
		t.Fatal(err)
	}
	room, got := make([]byte, 4096), 0
	for got < len(sent) {
		left := k.remaining
		n, err := k.Read(room)
		if err != nil {
			t.Fatal(err)
		}
		if n > left+k.chunk {
			t.Errorf("bytes of one read = %d with %d left of a record, want at most %d", n, left, left+k.chunk)
		}
		got += n
	}
}
