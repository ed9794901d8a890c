package coreapi

import (
	"context"
	"testing"

	"google.golang.org/grpc/metadata"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
)

// listening keeps what etcd's client tells streams apart by.
type listening struct {
	storage.Interface
	watches, progress []metadata.MD
}

func (l *listening) Watch(ctx context.Context, _ string, _ storage.ListOptions) (watch.Interface, error) {
	md, _ := metadata.FromOutgoingContext(ctx)
	l.watches = append(l.watches, md)
	return nil, nil
}

func (l *listening) RequestWatchProgress(ctx context.Context) error {
	md, _ := metadata.FromOutgoingContext(ctx)
	l.progress = append(l.progress, md)
	return nil
}

// A cache hears of progress on the stream of its own watch, and on no other: what etcd says there depends on no other
// cache.
func TestEachCacheHasItsStream(t *testing.T) {
	l := &listening{}
	ctx := metadata.AppendToOutgoingContext(t.Context(), "source", "cache")
	for _, of := range []string{"pods", "secrets"} {
		o := ownStream{l, of}
		if _, err := o.Watch(ctx, "/", storage.ListOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := o.RequestWatchProgress(ctx); err != nil {
			t.Fatal(err)
		}
	}
	text := func(md metadata.MD) string { return md.Get("source")[0] + "/" + md.Get(streamHeader)[0] }
	for i, want := range []string{"cache/pods", "cache/secrets"} {
		if text(l.watches[i]) != want || text(l.progress[i]) != want {
			t.Errorf("watch on %v, progress on %v; want %s", l.watches[i], l.progress[i], want)
		}
	}
}

// counting is a storage that would keep the sizes of objects.
type counting struct {
	storage.Interface
	asked bool
}

func (c *counting) EnableResourceSizeEstimation(storage.KeysFunc) error { c.asked = true; return nil }

func TestCachesDoNotKeepTheSizesOfObjects(t *testing.T) {
	c := &counting{}
	if err := (ownStream{c, "pods"}).EnableResourceSizeEstimation(nil); err != nil || c.asked {
		t.Errorf("asked: %v, %v", c.asked, err)
	}
}
