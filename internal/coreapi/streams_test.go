package coreapi

import (
	"context"
	"testing"

	"google.golang.org/grpc/metadata"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
)

// listening records the metadata by which etcd's client distinguishes streams.
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

// A cache requests progress on the stream of its watch. Streams of different caches are independent.
func TestEachCacheUsesSeparateWatchStream(t *testing.T) {
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
			t.Errorf("metadata of the watch = %v, of the progress request = %v, want %s in both", l.watches[i], l.progress[i], want)
		}
	}
}

// counting is a storage that can estimate the sizes of objects.
type counting struct {
	storage.Interface
	asked bool
}

func (c *counting) EnableResourceSizeEstimation(storage.KeysFunc) error { c.asked = true; return nil }

func TestCachesSkipObjectSizeEstimation(t *testing.T) {
	c := &counting{}
	if err := (ownStream{c, "pods"}).EnableResourceSizeEstimation(nil); err != nil || c.asked {
		t.Errorf("EnableResourceSizeEstimation: enabled in the storage = %v, error = %v, want false and no error", c.asked, err)
	}
}
