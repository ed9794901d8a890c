package coreapi

import (
	"context"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
)

// noisy adds a bookmark between two changes to every watch.
type noisy struct {
	storage.Interface
	watches []*watch.RaceFreeFakeWatcher
}

func (n *noisy) Watch(context.Context, string, storage.ListOptions) (watch.Interface, error) {
	w := watch.NewRaceFreeFake()
	w.Add(nil)
	w.Action(watch.Bookmark, nil)
	w.Delete(nil)
	n.watches = append(n.watches, w)
	return w, nil
}

func TestBookmarksAreSentOnlyOnRequest(t *testing.T) {
	yes := true
	for name, c := range map[string]struct {
		opts storage.ListOptions
		want []watch.EventType
	}{
		"nobody asked":        {want: []watch.EventType{watch.Added, watch.Deleted}},
		"bookmarks":           {storage.ListOptions{Predicate: storage.SelectionPredicate{AllowWatchBookmarks: true}}, []watch.EventType{watch.Added, watch.Bookmark, watch.Deleted}},
		"progress":            {storage.ListOptions{ProgressNotify: true}, []watch.EventType{watch.Added, watch.Bookmark, watch.Deleted}},
		"the initial objects": {storage.ListOptions{SendInitialEvents: &yes}, []watch.EventType{watch.Added, watch.Bookmark, watch.Deleted}},
	} {
		t.Run(name, func(t *testing.T) {
			from := &noisy{}
			w, err := uncachedStorage{from}.Watch(t.Context(), "/", c.opts)
			if err != nil {
				t.Fatal(err)
			}
			var got []watch.EventType
			for range c.want {
				got = append(got, (<-w.ResultChan()).Type)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("types of the events = %v, want %v", got, c.want)
			}
			w.Stop()
			w.Stop()
			for range w.ResultChan() { // until the channel is closed
			}
			if !from.watches[0].IsStopped() {
				t.Error("the underlying watch is still running after Stop, want it stopped")
			}
		})
	}
}

// A client that stops a watch does not have to read the remaining events.
func TestWatchStopsWithUnreadEvents(t *testing.T) {
	from := &noisy{}
	w, err := uncachedStorage{from}.Watch(t.Context(), "/", storage.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w.Stop()
	for range w.ResultChan() {
	}
}
