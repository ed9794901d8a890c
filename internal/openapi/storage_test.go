package openapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"portico.dev/internal/discovery/remote"
	"portico.dev/internal/discovery/remote/remotetest"
)

// memory is a LastKnown without etcd.
type memory struct {
	mu     sync.Mutex
	values map[string][]byte
}

func newMemory() *memory { return &memory{values: map[string][]byte{}} }

func (s *memory) Load(context.Context) (map[string][]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.values), nil
}

func (s *memory) Save(_ context.Context, name string, value []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.values[name] = value
	return nil
}

func (s *memory) Delete(_ context.Context, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.values, name)
	return nil
}

func (s *memory) get(name string) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.values[name]
}

func (s *memory) put(name string, value []byte) { _ = s.Save(context.Background(), name, value) }

func TestDocumentsSurviveRestart(t *testing.T) {
	keep := newMemory()
	b := remotetest.NewTLS(t, "ns/gadgets:443", remotetest.Paths{"/openapi/v3": index3(gadgetsPath + "#1"), "/openapi/v3/" + gadgetsPath: json3(v3("kept", "/apis/example.com/v1/gadgets"))})
	first := openWithStorage(t, keep, nil, routeTo(b))
	first.until(t, gadgetsPath, "kept")
	etag := first.get("/openapi/v3/" + gadgetsPath).Header().Get("ETag")
	waitFor(t, "the document to be kept", func() bool { return keep.get("v1.example.com") != nil })
	first.stop()

	b.Become(remotetest.Hangs())
	second := openWithStorage(t, keep, nil, routeTo(b))
	if w := second.get("/openapi/v3/" + gadgetsPath); w.Code != 200 || w.Header().Get("ETag") != etag || !strings.Contains(w.Body.String(), "kept") {
		t.Errorf("GET after a restart = %d %s, want 200 with the stored document", w.Code, w.Body)
	}
	second.change(func(table *remote.Table) { table.Routes = nil })
	waitFor(t, "the document to go with its registration", func() bool { return keep.get("v1.example.com") == nil })
}

// sharedMemory is a memory that can be followed.
type sharedMemory struct {
	*memory
	puts chan string
}

func (l *sharedMemory) Save(ctx context.Context, name string, value []byte) error {
	err := l.memory.Save(ctx, name, value)
	l.puts <- name
	return err
}

func (l *sharedMemory) Follow(ctx context.Context, saved func(name string, value []byte)) {
	for {
		select {
		case <-ctx.Done():
			return
		case name := <-l.puts:
			saved(name, l.get(name))
		}
	}
}

func TestStoredDocumentOfOtherReplicaIsServed(t *testing.T) {
	keep := &sharedMemory{memory: newMemory(), puts: make(chan string, 10)}
	h := openWithStorage(t, keep, nil, routeTo(remotetest.NewTLS(t, "ns/gadgets:443", remotetest.Hangs())))
	save := func(title string, uid types.UID) {
		value, err := encodeRecord(uid, document(t, gadgetsPath, v3(title, "/apis/example.com/v1/gadgets")))
		if err != nil {
			t.Fatal(err)
		}
		_ = keep.Save(t.Context(), "v1.example.com", value)
	}
	save("of another registration", "other")
	_ = keep.Save(t.Context(), "v1.example.com", []byte("nonsense"))
	_ = keep.Save(t.Context(), "v1.unknown.example.com", []byte("nonsense"))
	save("heard", "uid")
	h.until(t, gadgetsPath, "heard")
}

func TestInvalidStoredDocumentsAreIgnored(t *testing.T) {
	d := document(t, gadgetsPath, v3("kept", "/apis/example.com/v1/gadgets"))
	value, err := encodeRecord("uid", d)
	if err != nil {
		t.Fatal(err)
	}
	other, err := encodeRecord("uid", document(t, "api/v1", v3("kept", "/api/v1/pods")))
	if err != nil {
		t.Fatal(err)
	}
	newer := bytes.Replace(value, []byte(`"version":1`), []byte(`"version":2`), 1)
	if _, err := decodeRecord(newer); !errors.Is(err, remote.ErrNewerRelease) {
		t.Errorf("decodeRecord() of a newer release: error = %v, want %v", err, remote.ErrNewerRelease)
	}
	if _, err := decodeRecord(bytes.Replace(value, []byte(`"version":1,`), nil, 1)); err != nil {
		t.Errorf("decodeRecord() of a release without versions failed: %v, want no error", err)
	}
	for name, c := range map[string]struct {
		value []byte
		uid   types.UID
	}{
		"of a newer release":                   {newer, "uid"},
		"of a registration that was made anew": {value, "another"},
		"cut short":                            {value[:len(value)-1], "uid"},
		"no document":                          {[]byte(`{"uid":"uid"}`), "uid"},
		"not ours":                             {[]byte("hello\nworld"), "uid"},
		"of another group-version":             {other, "uid"},
	} {
		t.Run(name, func(t *testing.T) {
			keep := newMemory()
			keep.put("v1.example.com", c.value)
			keep.put("v1.gone.example.com", value)
			route := routeTo(remotetest.NewTLS(t, "ns/gadgets:443", remotetest.Hangs()))
			route.UID = c.uid
			h := openWithStorage(t, keep, nil, route)
			h.until(t, gadgetsPath, "")
			waitFor(t, "what nobody registered to go", func() bool { return keep.get("v1.gone.example.com") == nil })
		})
	}
}

func TestLargeDocumentsAreNotStored(t *testing.T) {
	keep := newMemory()
	h := openWithStorage(t, keep, nil)
	save := func(name string, d Document, total int) { h.save(name, record{uid: "uid", document: &d}, total) }
	small := Document{Path: "a", Packed: []byte("x")}
	save("small", small, 1)
	save("large", Document{Path: "b", Packed: bytes.Repeat([]byte("x"), maxStored)}, maxStored)
	save("too many", small, maxStoredTotal+1)
	save("last", small, 1)
	waitFor(t, "the last to be kept", func() bool { return keep.get("last") != nil && keep.get("small") != nil })
	if keep.get("large") != nil || keep.get("too many") != nil {
		t.Error("a document over the size limit was stored, want none")
	}
}

func FuzzDecodeRecord(f *testing.F) {
	value, err := encodeRecord("uid", Document{Path: "a", Hash: "B", Packed: []byte("c\nd")})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(value)
	f.Add([]byte("{}\n"))
	f.Fuzz(func(t *testing.T, value []byte) {
		h, err := decodeRecord(value)
		if err != nil {
			return
		}
		again, err := encodeRecord(h.uid, *h.document)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := decodeRecord(again); err != nil || fmt.Sprint(*back.document) != fmt.Sprint(*h.document) {
			t.Errorf("decodeRecord() of an encoded record = %v, error %v, want %v", back, err, h)
		}
	})
}
