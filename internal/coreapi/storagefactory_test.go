package coreapi

import (
	"context"
	"errors"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"
)

// pages is a storage with a number of objects. One of them may fail.
type pages struct {
	storage.Interface
	objects int
	fails   int // -1: no object fails
	with    error
	largest int // the largest limit of a list
	read    int
}

func (p *pages) GetList(_ context.Context, _ string, opts storage.ListOptions, into runtime.Object) error {
	from, _ := strconv.Atoi(opts.Predicate.Continue)
	to := p.objects
	if limit := int(opts.Predicate.Limit); limit > 0 {
		to = min(to, from+limit)
	}
	if p.fails >= from && p.fails < to {
		return p.with
	}
	list := into.(*corev1.ConfigMapList)
	list.Items = make([]corev1.ConfigMap, to-from)
	if to < p.objects {
		list.Continue = strconv.Itoa(to)
	}
	p.largest, p.read = max(p.largest, to-from), p.read+to-from
	return nil
}

// A cache that is being filled can take all available memory, so the diagnosis of a slow cache must use little.
func TestStoredObjectsAreReadInPages(t *testing.T) {
	broken := errors.New("cannot be decoded")
	for name, c := range map[string]struct {
		objects, fails int
		with           error
		want           error
		read           int
	}{
		"none":                      {objects: 0, fails: -1, read: 0},
		"a page":                    {objects: diagnosedAtOnce, fails: -1, read: diagnosedAtOnce},
		"many":                      {objects: 10*diagnosedAtOnce + 7, fails: -1, read: 10*diagnosedAtOnce + 7},
		"one of the last is broken": {objects: 10 * diagnosedAtOnce, fails: 10*diagnosedAtOnce - 1, with: broken, want: broken, read: 9 * diagnosedAtOnce},
		"compacted in the meantime": {objects: 3 * diagnosedAtOnce, fails: diagnosedAtOnce, with: apierrors.NewResourceExpired("compacted"), read: diagnosedAtOnce},
	} {
		t.Run(name, func(t *testing.T) {
			p := &pages{objects: c.objects, fails: c.fails, with: c.with}
			err := readThrough(t.Context(), p, "/configmaps", func() runtime.Object { return &corev1.ConfigMapList{} })
			if !errors.Is(err, c.want) || p.read != c.read || p.largest > diagnosedAtOnce {
				t.Errorf("readThrough: %v, %d objects read, largest page %d, want %v, %d and at most %d", err, p.read, p.largest, c.want, c.read, diagnosedAtOnce)
			}
		})
	}
}
