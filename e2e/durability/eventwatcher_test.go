package durability

import (
	"context"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
)

// eventWatcher watches the objects that requests write, each time from where it stopped.
type eventWatcher struct {
	traffic *traffic
	client  kubernetes.Interface

	mu      sync.Mutex     // guards the following fields
	at      int64          // the version from which the next watch starts
	seen    map[int64]bool // versions of events since the last report
	doubled int            // events that were not newer than the one before
}

func (w *traffic) startWatcher(protocol string) {
	w.t.Helper()
	e := &eventWatcher{traffic: w, client: kubernetes.NewForConfigOrDie(w.configFor(protocol)), seen: map[int64]bool{}}
	if err := e.list(); err != nil {
		w.t.Fatal(err)
	}
	w.watchers = append(w.watchers, e)
	w.following.Go(func() {
		for pause(w.watching, lookAgain) {
			if err := e.watch(); err != nil {
				w.count(w.watching, watches, time.Now(), err)
			}
		}
	})
}

const trafficObjects = "traffic"

func (e *eventWatcher) list() error {
	ctx, cancel := context.WithTimeout(e.traffic.watching, answerTimeout)
	defer cancel()
	found, err := e.client.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{LabelSelector: trafficObjects})
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.at = number(found.ResourceVersion)
	return nil
}

// watch receives events until the watch ends, which is not an error. If its version is too old, the watcher starts again and
// has lost the events in between.
func (e *eventWatcher) watch() error {
	stream, err := e.client.CoreV1().ConfigMaps("default").Watch(e.traffic.watching, metav1.ListOptions{
		LabelSelector: trafficObjects, ResourceVersion: strconv.FormatInt(e.position(), 10), AllowWatchBookmarks: true,
	})
	if err != nil {
		return err
	}
	defer stream.Stop()
	for event := range stream.ResultChan() {
		switch event.Type {
		case watch.Error:
			err := apierrors.FromObject(event.Object)
			if apierrors.IsGone(err) || apierrors.IsResourceExpired(err) {
				return e.list()
			}
			return err
		case watch.Bookmark:
			e.mu.Lock()
			e.at = max(e.at, version(event.Object.(*corev1.ConfigMap)))
			e.mu.Unlock()
		default:
			e.take(version(event.Object.(*corev1.ConfigMap)))
		}
	}
	return nil
}

func (e *eventWatcher) take(at int64) {
	e.traffic.count(e.traffic.watching, watches, time.Now(), nil)
	e.mu.Lock()
	defer e.mu.Unlock()
	if at <= e.at {
		e.doubled++
	}
	e.seen[at], e.at = true, max(e.at, at)
}

func (e *eventWatcher) position() int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.at
}

// countEvents waits until the watchers have caught up with the writes, and counts the writes without an event.
func (w *traffic) countEvents() {
	w.t.Helper()
	w.mu.Lock()
	written := w.written
	w.written = nil
	w.mu.Unlock()
	var last int64
	for _, at := range written {
		last = max(last, at)
	}
	deadline, cancel := context.WithTimeout(w.watching, patience)
	defer cancel()
	for _, e := range w.watchers {
		for e.position() < last && pause(deadline, lookAgain) {
		}
		lost, doubled := e.compare(written)
		w.mu.Lock()
		r := w.result(watches)
		r.lost, r.doubled = r.lost+lost, r.doubled+doubled
		w.mu.Unlock()
	}
}

// compare returns the number of acknowledged writes without an event and of duplicate events, and resets both.
func (e *eventWatcher) compare(written []int64) (lost, doubled int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, at := range written {
		if !e.seen[at] {
			lost++
		}
		delete(e.seen, at)
	}
	doubled, e.doubled = e.doubled, 0
	return lost, doubled
}
