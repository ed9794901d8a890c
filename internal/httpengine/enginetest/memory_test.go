package enginetest_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"portico.dev/internal/httpengine/enginetest"
)

func TestPipe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := enginetest.Listen()
		go func() {
			c, err := l.Accept()
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = io.Copy(c, c)
			_ = c.Close()
		}()
		c, err := l.Dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		sent := bytes.Repeat([]byte("0123456789"), 100_000)
		go func() {
			_, _ = c.Write(sent)
		}()
		got := make([]byte, len(sent))
		if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, sent) {
			t.Errorf("read %q..., error %v, want the %d bytes sent", got[:10], err, len(sent))
		}
		began := time.Now()
		_ = c.SetReadDeadline(began.Add(time.Hour))
		if n, err := c.Read(got); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) != time.Hour {
			t.Errorf("Read = %d, %v after %v, want the deadline after an hour", n, err, time.Since(began))
		}
		_ = c.Close()
		if _, err := c.Read(got); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Read after Close = %v, want %v", err, net.ErrClosed)
		}
		if _, err := c.Write(sent); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Write after Close = %v, want %v", err, net.ErrClosed)
		}
		_ = l.Close()
		if c, err := l.Dial(t.Context()); err == nil {
			t.Errorf("Dial after Close = %v, want an error", c)
		}
	})
}

func TestPipeWaitsForItsReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := enginetest.Pipe()
		_ = near.SetWriteDeadline(time.Now().Add(time.Hour))
		n, err := near.Write(make([]byte, 10<<20))
		if n == 0 || n == 10<<20 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("Write without a reader = %d, %v, want a part and the deadline", n, err)
		}
		_ = near.Close()
		if rest, err := io.ReadAll(far); len(rest) != n || err != nil {
			t.Errorf("%d bytes were read, %v, want %d", len(rest), err, n)
		}
		if _, err := far.Write([]byte("x")); err != nil {
			t.Errorf("first Write to a closed side: %v, want none, as with TCP", err)
		}
		if _, err := far.Write([]byte("x")); err == nil {
			t.Error("second Write to a closed side: error = nil, want an error")
		}
		if _, err := far.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("Read = %v, want %v", err, syscall.ECONNRESET)
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := enginetest.Listen().Dial(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Dial = %v, want %v", err, context.Canceled)
	}
}
