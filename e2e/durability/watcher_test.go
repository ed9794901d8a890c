package durability

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"portico.dev/internal/simulation/consistency"
)

// watcher follows all objects, from where it stopped whenever it can.
type watcher struct {
	*recorder
	name string
	// initial requests the initial objects as events, instead of a list.
	initial bool
	// at is the version at which the watch stopped, or "" if it must start again.
	at string
}

func (r *recorder) watch(name string, initial bool) {
	w := &watcher{recorder: r, name: name, initial: initial}
	for w.ctx.Err() == nil {
		if w.follow() != nil {
			pause(w.ctx, lookAgain)
		}
	}
}

// follow is one watch, until it ends.
func (w *watcher) follow() error {
	options := metav1.ListOptions{LabelSelector: "durability", ResourceVersion: w.at, AllowWatchBookmarks: true}
	start := w.now()
	switch {
	case w.at == "" && w.initial:
		options.SendInitialEvents, options.ResourceVersionMatch = new(true), metav1.ResourceVersionMatchNotOlderThan
	case w.at == "":
		at, err := w.begin()
		if err != nil {
			return err
		}
		w.at, options.ResourceVersion = at, at
	}
	ctx, cancel := context.WithCancel(w.ctx)
	defer cancel()
	stream, err := w.client().CoreV1().ConfigMaps(namespace).Watch(ctx, options)
	if err != nil {
		return w.lost(err)
	}
	defer stream.Stop()
	if w.at == "" {
		if err := w.first(consistency.List{Start: start}, stream); err != nil {
			return w.lost(err)
		}
	}
	return w.lost(w.rest(stream))
}

// begin lists, to watch from there.
func (w *watcher) begin() (string, error) {
	start := w.now()
	ctx, cancel := context.WithTimeout(w.ctx, requestTimeout)
	defer cancel()
	found, err := w.client().CoreV1().ConfigMaps(namespace).List(ctx, metav1.ListOptions{LabelSelector: "durability"})
	if err != nil {
		return "", err
	}
	w.addList(consistency.List{Start: start}, found.ResourceVersion, found.Items)
	return found.ResourceVersion, nil
}

// first collects the initial events, up to the bookmark at their end, as a list.
func (w *watcher) first(l consistency.List, stream watch.Interface) error {
	var items []corev1.ConfigMap
	for e := range stream.ResultChan() {
		if e.Type == watch.Error {
			return apierrors.FromObject(e.Object)
		}
		c := e.Object.(*corev1.ConfigMap)
		if e.Type == watch.Bookmark {
			if c.Annotations[metav1.InitialEventsAnnotationKey] != "true" {
				continue
			}
			w.at = c.ResourceVersion
			w.addList(l, w.at, items)
			return nil
		}
		items = append(items, *c)
	}
	return nil
}

// rest records events until the stream ends.
func (w *watcher) rest(stream watch.Interface) error {
	if w.at == "" {
		return nil
	}
	seen := consistency.Watch{Name: w.name, From: number(w.at), Until: number(w.at)}
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.all.Watches = append(w.all.Watches, seen)
	}()
	for e := range stream.ResultChan() {
		if e.Type == watch.Error {
			return apierrors.FromObject(e.Object)
		}
		c := e.Object.(*corev1.ConfigMap)
		w.at = c.ResourceVersion
		seen.Until = version(c)
		if e.Type != watch.Bookmark {
			w.seen.Add(1)
			seen.Events = append(seen.Events, consistency.Event{
				Kind: consistency.Kind(e.Type), Key: c.Name, Version: version(c), Value: c.Data["value"], After: c.Data["after"], Torn: torn(c),
			})
		}
	}
	return nil
}

// lost starts again when the changes after the last event are not available any more.
func (w *watcher) lost(err error) error {
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		w.at = ""
	}
	return err
}
