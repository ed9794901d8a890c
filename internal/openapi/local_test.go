package openapi

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap/zaptest"

	"portico.dev/internal/discovery/remote"
)

// A created or deleted definition is published at once, and local documents are not read in between.
func TestChangedLocalDocumentsArePublished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		made := func(path string) Document {
			d, err := NewDocument(path, []byte(`{"openapi":"3.0.0"}`))
			if err != nil {
				t.Fatal(err)
			}
			return d
		}
		var mu sync.Mutex
		local, changed, asked := []Document{made("api/v1")}, make(chan struct{}), 0
		config := Config{
			Local:        func() []Document { mu.Lock(); defer mu.Unlock(); asked++; return local },
			Routes:       func() remote.Table { return remote.Table{Synced: true} },
			Changed:      func() <-chan struct{} { return nil },
			LocalChanged: func() <-chan struct{} { mu.Lock(); defer mu.Unlock(); return changed },
			Logger:       zaptest.NewLogger(t),
		}
		l, err := New(config)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- l.Run(ctx) }()
		<-time.After(10 * time.Second) // of the bubble
		mu.Lock()
		if idle := asked; idle > 2 {
			t.Errorf("local documents were read %d times in ten seconds, want at most 2", idle)
		}
		local = append(local, made("apis/custom/v1"))
		close(changed)
		changed = make(chan struct{})
		mu.Unlock()
		<-time.After(time.Second)
		if _, ok := l.current.Load().documents["apis/custom/v1"]; !ok {
			t.Error("document apis/custom/v1 is missing a second after it was added, want it published")
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
