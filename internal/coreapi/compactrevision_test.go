package coreapi

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// compacted is an etcd whose last compacted revision is this number.
type compacted int64

func (c compacted) CompactRevision() int64 { return int64(c) }

func TestCompactRevisionLagsTenSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var away atomic.Bool
		h := &compactRevision{Compactor: compacted(3), now: func(context.Context) (int64, error) {
			if away.Load() {
				return 0, errors.New("no leader")
			}
			return 10 + int64(time.Since(began)/time.Second), nil // one write per second
		}}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			h.run(ctx)
		}()
		at := func(second int, want int64) {
			t.Helper()
			time.Sleep(time.Until(began.Add(time.Duration(second)*time.Second + time.Millisecond))) // in the time of the bubble
			synctest.Wait()
			if got := h.CompactRevision(); got != want {
				t.Errorf("CompactRevision() after %d s = %d, want %d", second, got, want)
			}
		}
		at(0, 3)
		at(9, 3)
		at(10, 10)
		at(14, 10)
		at(15, 15)
		away.Store(true)
		at(40, 15) // revisions known before are still served
		away.Store(false)
		at(45, 20)
		h.Compactor = compacted(60)
		at(46, 60) // etcd itself compacted more
		cancel()
		<-done
	})
}

// k8s.io/apiserver's cacher reads the compact revision from the storage behind each cache. The storage returns the horizon.
func TestStoragesReturnTheCompactRevision(t *testing.T) {
	h := start(t)
	s := newStorageFactory(h.store.Client(), "/elsewhere", h.codec, Storage{})
	defer s.close()
	for range revisionSteps + 1 {
		s.compactRevision.move(t.Context())
	}
	revision, err := h.store.Client().KV.Get(within(t), "any")
	if err != nil {
		t.Fatal(err)
	}
	o := s.plain(corev1.Resource("configmaps"), h.codec.storage(corev1.SchemeGroupVersion), "configmaps")
	raw, closeRaw, err := s.openRaw(o.StorageConfig, o.ResourcePrefix,
		func() runtime.Object { return &corev1.ConfigMap{} }, func() runtime.Object { return &corev1.ConfigMapList{} })
	if err != nil {
		t.Fatal(err)
	}
	defer closeRaw()
	if got := raw.CompactRevision(); got == 0 || got > revision.Header.Revision {
		t.Errorf("CompactRevision() = %d at the revision %d, want between 1 and the revision", got, revision.Header.Revision)
	}
}
