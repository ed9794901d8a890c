package extension_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"portico.dev/internal/extension/hosttest"
	"portico.dev/pkg/extension"
)

type page struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
}

// book tells of its pages by notices only.
type book struct {
	extension.Changes
	lists atomic.Int64

	mu    sync.Mutex // guards what follows
	fail  bool
	pages []page
}

func (b *book) List(context.Context, extension.Query) ([]page, error) {
	b.lists.Add(1)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fail {
		return nil, errors.New("torn")
	}
	return b.pages, nil
}

func (b *book) change(f func()) {
	b.mu.Lock()
	f()
	b.mu.Unlock()
	b.Notify()
}

func expect(t *testing.T, w watch.Interface, want string) {
	t.Helper()
	timeout := time.NewTimer(30 * time.Second)
	defer timeout.Stop()
	select {
	case e := <-w.ResultChan():
		o, err := meta.Accessor(e.Object)
		if err != nil || string(e.Type)+" "+o.GetName() != want {
			t.Errorf("event %v, want %s", e, want)
		}
	case <-timeout.C:
		t.Fatalf("no event, want %s", want)
	}
}

func TestWatchesOfANotifier(t *testing.T) {
	b := &book{}
	host := hosttest.Serve(t, nil, extension.Of(extension.Definition[page]{
		Group: "books.example.com", Version: "v1", Plural: "pages", Kind: "Page", MaxAge: time.Hour,
	}, b))
	client, err := dynamic.NewForConfig(host.As("alice"))
	must(t, err)
	pages := client.Resource(schema.GroupVersionResource{Group: "books.example.com", Version: "v1", Resource: "pages"})
	first, err := pages.Watch(t.Context(), metav1.ListOptions{})
	must(t, err)
	defer first.Stop()
	second, err := pages.Watch(t.Context(), metav1.ListOptions{})
	must(t, err)
	defer second.Stop()
	b.change(func() { b.pages = append(b.pages, page{ObjectMeta: metav1.ObjectMeta{Name: "one"}}) })
	expect(t, first, "ADDED one")
	expect(t, second, "ADDED one")
	before := b.lists.Load()
	b.change(func() { b.fail = true })
	hosttest.Eventually(t, "a list fails", func() bool { return b.lists.Load() > before })
	b.change(func() {
		b.fail = false
		b.pages = nil
	})
	expect(t, first, "DELETED one")
	expect(t, second, "DELETED one")
	quiet := b.lists.Load()
	if list, err := pages.List(t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) != 0 {
		t.Errorf("%v %v", list, err)
	}
	if n := b.lists.Load(); n != quiet {
		t.Errorf("%d more lists without a notice", n-quiet)
	}
}
