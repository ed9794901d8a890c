package openapi

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap/zaptest"
	"k8s.io/apimachinery/pkg/types"

	"portico.dev/internal/discovery/remote"
	"portico.dev/internal/discovery/remote/remotetest"
)

// shelf is a LastKnown without etcd.
type shelf struct {
	mu     sync.Mutex
	values map[string][]byte
}

func newShelf() *shelf { return &shelf{values: map[string][]byte{}} }

func (s *shelf) Load(context.Context) (map[string][]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.values), nil
}

func (s *shelf) Save(_ context.Context, name string, value []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.values[name] = value
	return nil
}

func (s *shelf) Delete(_ context.Context, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.values, name)
	return nil
}

func (s *shelf) get(name string) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.values[name]
}

func (s *shelf) put(name string, value []byte) { _ = s.Save(context.Background(), name, value) }

func TestDocumentsOutliveTheFrontDoor(t *testing.T) {
	keep := newShelf()
	b := remotetest.NewTLS(t, "ns/gadgets:443", remotetest.Paths{"/openapi/v3": index3(gadgetsPath + "#1"), "/openapi/v3/" + gadgetsPath: json3(v3("kept", "/apis/example.com/v1/gadgets"))})
	first := openKeeping(t, keep, nil, routeTo(b))
	first.until(t, gadgetsPath, "kept")
	etag := first.get("/openapi/v3/" + gadgetsPath).Header().Get("ETag")
	waitFor(t, "the document to be kept", func() bool { return keep.get("v1.example.com") != nil })
	first.stop()

	b.Become(remotetest.Hangs())
	second := openKeeping(t, keep, nil, routeTo(b))
	if w := second.get("/openapi/v3/" + gadgetsPath); w.Code != 200 || w.Header().Get("ETag") != etag || !strings.Contains(w.Body.String(), "kept") {
		t.Errorf("after a restart: answered %d %s", w.Code, w.Body)
	}
	second.change(func(table *remote.Table) { table.Routes = nil })
	waitFor(t, "the document to go with its registration", func() bool { return keep.get("v1.example.com") == nil })
}

// loud is a shelf that tells whoever follows it what is put there.
type loud struct {
	*shelf
	puts chan string
}

func (l *loud) Save(ctx context.Context, name string, value []byte) error {
	err := l.shelf.Save(ctx, name, value)
	l.puts <- name
	return err
}

func (l *loud) Follow(ctx context.Context, saved func(name string, value []byte)) {
	for {
		select {
		case <-ctx.Done():
			return
		case name := <-l.puts:
			saved(name, l.get(name))
		}
	}
}

func TestDocumentsThatAnotherReplicaHeard(t *testing.T) {
	keep := &loud{shelf: newShelf(), puts: make(chan string, 10)}
	h := openKeeping(t, keep, nil, routeTo(remotetest.NewTLS(t, "ns/gadgets:443", remotetest.Hangs())))
	save := func(title string, uid types.UID) {
		value, err := encodeHolding(uid, document(t, gadgetsPath, v3(title, "/apis/example.com/v1/gadgets")))
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

func TestWhatIsKeptAndNotBelieved(t *testing.T) {
	d := document(t, gadgetsPath, v3("kept", "/apis/example.com/v1/gadgets"))
	value, err := encodeHolding("uid", d)
	if err != nil {
		t.Fatal(err)
	}
	other, err := encodeHolding("uid", document(t, "api/v1", v3("kept", "/api/v1/pods")))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		value []byte
		uid   types.UID
	}{
		"of a registration that was made anew": {value, "another"},
		"cut short":                            {value[:len(value)-1], "uid"},
		"no document":                          {[]byte(`{"uid":"uid"}`), "uid"},
		"not ours":                             {[]byte("hello\nworld"), "uid"},
		"of another group-version":             {other, "uid"},
	} {
		t.Run(name, func(t *testing.T) {
			keep := newShelf()
			keep.put("v1.example.com", c.value)
			keep.put("v1.gone.example.com", value)
			route := routeTo(remotetest.NewTLS(t, "ns/gadgets:443", remotetest.Hangs()))
			route.UID = c.uid
			h := openKeeping(t, keep, nil, route)
			h.until(t, gadgetsPath, "")
			waitFor(t, "what nobody registered to go", func() bool { return keep.get("v1.gone.example.com") == nil })
		})
	}
}

func TestWhatIsTooLargeToKeep(t *testing.T) {
	keep := newShelf()
	k := newKeeper(keep, zaptest.NewLogger(t))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	done := make(chan struct{})
	go func() { defer close(done); k.run(ctx) }()
	small := Document{Path: "a", Packed: []byte("x")}
	k.save("small", "uid", small, 1)
	k.save("large", "uid", Document{Path: "b", Packed: bytes.Repeat([]byte("x"), maxKept)}, maxKept)
	k.save("too many", "uid", small, maxKeptAll+1)
	k.save("last", "uid", small, 1)
	waitFor(t, "the last to be kept", func() bool { return keep.get("last") != nil && keep.get("small") != nil })
	if keep.get("large") != nil || keep.get("too many") != nil {
		t.Error("kept what is too large")
	}
	cancel()
	<-done
}

func FuzzKept(f *testing.F) {
	value, err := encodeHolding("uid", Document{Path: "a", Hash: "B", Packed: []byte("c\nd")})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(value)
	f.Add([]byte("{}\n"))
	f.Fuzz(func(t *testing.T, value []byte) {
		h, err := decodeHolding(value)
		if err != nil {
			return
		}
		again, err := encodeHolding(h.uid, *h.document)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := decodeHolding(again); err != nil || fmt.Sprint(*back.document) != fmt.Sprint(*h.document) {
			t.Errorf("%v: %v", err, back)
		}
	})
}
