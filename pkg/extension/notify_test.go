package extension_test

import (
	"context"
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"portico.dev/pkg/extension"
)

// tellingQueues is a provider that reports its changes.
type tellingQueues struct {
	queues
	extension.Changes
}

func (q *tellingQueues) change(items ...Queue) {
	q.set(items...)
	q.Notify()
}

// tellingDefinition has a poll interval so long that only notifications of the provider cause events in a test.
func tellingDefinition() extension.Definition[Queue] {
	d := queueDefinition()
	d.PollInterval = time.Hour
	return d
}

func TestNotifierChangeReachesWatchImmediately(t *testing.T) {
	t.Parallel()
	q := &tellingQueues{}
	q.set(queue("team-a", "orders", 3))
	s := start(t, nil, extension.Of(tellingDefinition(), q))
	w := s.watch(streaming)
	w.sees("ADDED orders", "BOOKMARK")
	q.change(queue("team-a", "orders", 4))
	if e := w.sees("MODIFIED orders"); e.Object.Depth != 4 {
		t.Errorf("depth in the MODIFIED event = %d, want 4", e.Object.Depth)
	}
	q.change(queue("team-a", "orders", 4), queue("team-b", "mails", 1))
	w.sees("ADDED mails")
	q.change()
	w.sees("DELETED orders", "DELETED mails")
}

func TestNotifierIsWatchableWithoutPollInterval(t *testing.T) {
	t.Parallel()
	d := tellingDefinition()
	d.PollInterval = 0
	q := &tellingQueues{}
	s := start(t, nil, extension.Of(d, q))
	w := s.watch(streaming)
	w.sees("BOOKMARK")
	q.change(queue("team-a", "orders", 1))
	w.sees("ADDED orders")
}

func TestWatchersShareOneListAfterNotification(t *testing.T) {
	t.Parallel()
	q := &tellingQueues{}
	s := start(t, nil, extension.Of(tellingDefinition(), q))
	var all []*watching
	for range 20 {
		w := s.watch(streaming)
		w.sees("BOOKMARK")
		all = append(all, w)
	}
	opened := q.count()
	q.change(queue("team-a", "orders", 1))
	for _, w := range all {
		w.sees("ADDED orders")
	}
	if lists := q.count() - opened; lists != 1 {
		t.Errorf("provider listed %d times for 20 watchers after one change, want 1", lists)
	}
}

// A change during a list is not lost. A source that fails after a notification is listed again.
func TestNotificationsDuringListAreNotLost(t *testing.T) {
	t.Parallel()
	q := &tellingQueues{}
	s := start(t, nil, extension.Of(tellingDefinition(), q))
	w := s.watch(streaming)
	w.sees("BOOKMARK")

	listing, goOn := make(chan struct{}), make(chan struct{})
	q.mu.Lock()
	q.hold = func() {
		listing <- struct{}{}
		<-goOn
	}
	q.mu.Unlock()
	q.change(queue("team-a", "orders", 1))
	<-listing // The source has read its items and not returned yet.
	q.mu.Lock()
	q.hold = nil
	q.mu.Unlock()
	q.change(queue("team-a", "orders", 2))
	close(goOn)
	w.sees("ADDED orders")
	if e := w.sees("MODIFIED orders"); e.Object.Depth != 2 {
		t.Errorf("depth in the MODIFIED event = %d, want 2", e.Object.Depth)
	}

	q.fail(errors.New("away"))
	before := q.count()
	q.change(queue("team-a", "orders", 3))
	eventually(t, "the source is asked", func() bool { return q.count() > before })
	q.fail(nil)
	if e := w.sees("MODIFIED orders"); e.Object.Depth != 3 {
		t.Errorf("depth in the MODIFIED event after the source recovered = %d, want 3", e.Object.Depth)
	}
}

func TestStore(t *testing.T) {
	t.Parallel()
	store := extension.NewStore[Queue]()
	store.Set(queue("team-a", "orders", 3))
	d := queueDefinition()
	d.PollInterval = 0
	s := start(t, nil, extension.Of(d, store))
	w := s.watch(streaming)
	w.sees("ADDED orders", "BOOKMARK")

	store.Set(queue("team-a", "orders", 4), queue("team-b", "mails", 1))
	if e := w.sees("MODIFIED orders", "ADDED mails"); e.Object.Depth != 1 {
		t.Errorf("depth in the last event = %d, want 1", e.Object.Depth)
	}
	s.get(queuesPath+"?labelSelector=").wants(t, 200, `"orders"`, `"mails"`, `"depth":4`)
	s.get("/apis/stats.example.com/v1/namespaces/team-b/queues/mails").wants(t, 200, `"depth":1`)
	s.get("/apis/stats.example.com/v1/namespaces/team-b/queues/orders").wants(t, 404)
	store.Delete("team-b", "mails")
	w.sees("DELETED mails")
	s.get("/apis/stats.example.com/v1/namespaces/team-b/queues/mails").wants(t, 404) // at once
	store.Replace([]Queue{queue("team-a", "mails", 2)})
	w.sees("ADDED mails", "DELETED orders")

	events, done := make(chan extension.Event[Queue]), make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { done <- store.Follow(ctx, events) }()
	events <- extension.Event[Queue]{Type: watch.Added, Object: queue("team-a", "orders", 1)}
	w.sees("ADDED orders")
	events <- extension.Event[Queue]{Type: watch.Modified, Object: queue("team-a", "orders", 2)}
	w.sees("MODIFIED orders")
	events <- extension.Event[Queue]{Type: watch.Deleted, Object: Queue{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "orders"}}}
	w.sees("DELETED orders")
	close(events)
	if err := <-done; err == nil {
		t.Error("error of Follow after the stream ended = nil, want an error")
	}
}

// countedStore counts its lists. A type that embeds a Store is listed for every read, like any provider.
type countedStore struct {
	*extension.Store[Queue]
	lists int
}

func (c *countedStore) List(ctx context.Context, q extension.Query) ([]Queue, error) {
	c.lists++
	return c.Store.List(ctx, q)
}

func TestTypeEmbeddingStoreIsListed(t *testing.T) {
	store := &countedStore{Store: extension.NewStore[Queue]()}
	store.Set(queue("team-a", "orders", 1))
	s := start(t, nil, extension.Of(queueDefinition(), store))
	for range 3 {
		s.get(queuesPath).wants(t, 200, `"orders"`)
	}
	if store.lists != 3 {
		t.Errorf("provider listed %d times for 3 reads, want 3", store.lists)
	}
}
