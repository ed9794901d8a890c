package transport

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"
)

// closeRecorder is a body that records whether it was closed.
type closeRecorder struct {
	io.Reader
	closed bool
}

func (b *closeRecorder) Close() error { b.closed = true; return nil }

func TestReplayServesCompleteBodyToLastAttempt(t *testing.T) {
	// The last attempt reads the whole body, regardless of how much earlier attempts have read.
	rapid.Check(t, func(t *rapid.T) {
		content := rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(t, "content")
		source := &closeRecorder{Reader: iotest.OneByteReader(bytes.NewReader(content))}
		pool := &allowance{limit: 1 << 20}
		p := newReplay(source, -1, 1<<20, pool)
		for range rapid.IntRange(0, 4).Draw(t, "failed attempts") {
			body, err := p.newReader()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.CopyN(io.Discard, body, int64(rapid.IntRange(0, len(content)).Draw(t, "read"))); err != nil {
				t.Fatal(err)
			}
			if rapid.Bool().Draw(t, "closed") {
				_ = body.Close()
			}
		}
		body, err := p.newReader()
		if err != nil {
			t.Fatal(err)
		}
		part := int64(rapid.IntRange(0, len(content)).Draw(t, "read before the headers"))
		var got bytes.Buffer
		if _, err := io.CopyN(&got, body, part); err != nil {
			t.Fatal(err)
		}
		p.commit()
		if _, err := io.Copy(&got, body); err != nil {
			t.Fatal(err)
		}
		_ = body.Close()
		if !bytes.Equal(got.Bytes(), content) {
			t.Fatalf("body of the last attempt = %d bytes, want the %d of the source", got.Len(), len(content))
		}
		if !source.closed || pool.used.Load() != 0 {
			t.Fatalf("source closed %t with %d bytes charged, want true and 0", source.closed, pool.used.Load())
		}
	})
}

func TestReplayBounds(t *testing.T) {
	big := strings.Repeat("x", 1000)
	tests := []struct {
		name        string
		limit, pool int64
		read        int64
		again       bool
	}{
		{"within both", 1000, 1000, 1000, true},
		{"too large for one, untouched", 100, 1000, 0, true},
		{"too large for one", 100, 1000, 500, false},
		{"too large for all together", 1000, 100, 500, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			pool := &allowance{limit: test.pool}
			source := &closeRecorder{Reader: strings.NewReader(big)}
			p := newReplay(source, -1, test.limit, pool)
			first, err := p.newReader()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.CopyN(io.Discard, first, test.read); err != nil {
				t.Fatal(err)
			}
			if !test.again {
				// The current attempt continues to read the stream.
				if rest, err := io.ReadAll(first); err != nil || int64(len(rest)) != 1000-test.read {
					t.Errorf("rest of the first attempt = %d bytes with the error %v, want %d", len(rest), err, 1000-test.read)
				}
			}
			second, err := p.newReader()
			if again := err == nil; again != test.again || !again && !errors.Is(err, errBodyGone) {
				t.Fatalf("second newReader error = %v, want success %t, or errBodyGone", err, test.again)
			}
			if test.again {
				if body, err := io.ReadAll(second); err != nil || string(body) != big {
					t.Errorf("body of the second attempt = %d bytes with the error %v, want %d", len(body), err, len(big))
				}
				if _, err := first.Read(make([]byte, 1)); !errors.Is(err, errCut) {
					t.Errorf("Read of the first attempt error = %v, want errCut", err)
				}
			}
			p.abort()
			if pool.used.Load() != 0 || !source.closed {
				t.Errorf("%d bytes charged and source closed %t after abort, want 0 and true", pool.used.Load(), source.closed)
			}
		})
	}
}

// The result of a read for an abandoned attempt belongs to the next attempt.
func TestPendingReplayReadServesNextAttempt(t *testing.T) {
	reader, writer := io.Pipe()
	p := newReplay(reader, -1, 1<<20, &allowance{limit: 1 << 20})
	first, err := p.newReader()
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	started := make(chan struct{})
	wg.Go(func() {
		close(started)
		if n, err := first.Read(make([]byte, 100)); n != 0 || !errors.Is(err, errCut) {
			t.Errorf("Read of the first attempt = %d with the error %v, want 0 and errCut", n, err)
		}
	})
	<-started
	second, err := p.newReader()
	if err != nil {
		t.Fatal(err)
	}
	_ = first.Close()
	wg.Go(func() {
		body, err := io.ReadAll(second)
		if err != nil || string(body) != "hello world" {
			t.Errorf("body of the second attempt = %q with the error %v, want hello world", body, err)
		}
	})
	for _, part := range []string{"hello ", "world"} {
		if _, err := io.WriteString(writer, part); err != nil {
			t.Fatal(err)
		}
	}
	_ = writer.Close()
	wg.Wait()
	p.commit()
}
