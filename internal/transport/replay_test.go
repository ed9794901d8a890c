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

// closeRecorder is a body that remembers whether it was closed.
type closeRecorder struct {
	io.Reader
	closed bool
}

func (b *closeRecorder) Close() error { b.closed = true; return nil }

func TestReplay(t *testing.T) {
	// Whatever was read before attempts were given up, the last attempt sees the whole body.
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
			t.Fatalf("got %d bytes of %d", got.Len(), len(content))
		}
		if !source.closed || pool.used.Load() != 0 {
			t.Fatalf("closed %t, %d bytes still charged", source.closed, pool.used.Load())
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
				// The attempt under way streams on all the same.
				if rest, err := io.ReadAll(first); err != nil || int64(len(rest)) != 1000-test.read {
					t.Errorf("%d bytes, %v", len(rest), err)
				}
			}
			second, err := p.newReader()
			if again := err == nil; again != test.again || !again && !errors.Is(err, errBodyGone) {
				t.Fatalf("again: %v", err)
			}
			if test.again {
				if body, err := io.ReadAll(second); err != nil || string(body) != big {
					t.Errorf("%d bytes, %v", len(body), err)
				}
				if _, err := first.Read(make([]byte, 1)); !errors.Is(err, errCut) {
					t.Errorf("the first attempt still reads: %v", err)
				}
			}
			p.abort()
			if pool.used.Load() != 0 || !source.closed {
				t.Errorf("%d bytes still charged, closed %t", pool.used.Load(), source.closed)
			}
		})
	}
}

// A read that is under way for an attempt that was given up belongs to the next one.
func TestReplayReadUnderWay(t *testing.T) {
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
			t.Errorf("first attempt read %d, %v", n, err)
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
			t.Errorf("second attempt read %q, %v", body, err)
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
