package httpmsg

import (
	"io"
	"net"
	"testing"
	"time"
)

// accepts opens a connection and returns both ends.
func accepts(t *testing.T, l net.Listener) (client, server net.Conn) {
	t.Helper()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	if server, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	return client, server
}

// isClosed waits until the other end of a connection has closed it.
func isClosed(t *testing.T, c net.Conn) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := c.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("read = %v, want %v", err, io.EOF)
	}
}

// echoes checks that both ends of a connection are open.
func echoes(t *testing.T, client, server net.Conn) {
	t.Helper()
	if _, err := server.Write([]byte("x")); err != nil {
		t.Errorf("write = %v, want nil", err)
	}
	_ = client.SetReadDeadline(time.Now().Add(time.Minute))
	if n, err := client.Read(make([]byte, 1)); n != 1 {
		t.Errorf("read = %d, %v, want 1 byte", n, err)
	}
}

func TestA52NewConnectionReplacesOldestUntrustedOne(t *testing.T) {
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	l := NewBoundedListener(plain, 3)
	trusted, trustedEnd := accepts(t, l)
	TrustConn(trustedEnd)
	oldest, _ := accepts(t, l)
	older, olderEnd := accepts(t, l)
	newest, newestEnd := accepts(t, l)
	isClosed(t, oldest)
	for _, ends := range [][2]net.Conn{{trusted, trustedEnd}, {older, olderEnd}, {newest, newestEnd}} {
		echoes(t, ends[0], ends[1])
	}

	// A closed connection makes space for a new one.
	_ = olderEnd.Close()
	next, nextEnd := accepts(t, l)
	echoes(t, newest, newestEnd)
	echoes(t, next, nextEnd)

	// If all connections are trusted, a further connection is not accepted.
	TrustConn(newestEnd)
	TrustConn(nextEnd)
	further, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer further.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		if c, err := l.Accept(); err == nil {
			_ = c.Close()
			t.Error("Accept returned a connection, want none while all are trusted")
		}
	}()
	isClosed(t, further)
	_ = plain.Close()
	<-done
	echoes(t, trusted, trustedEnd)
}
