package durability

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"portico.dev/internal/simulation/consistency"
)

// versions are some that clients have seen, old ones too.
type versions struct {
	mu   sync.Mutex
	some [64]int64
	n    int
	last int64
}

func (v *versions) saw(version int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.some[v.n%len(v.some)] = version
	v.n++
	v.last = max(v.last, version)
}

// pick returns a past version and the newest one, or 0 if there is none.
func (v *versions) pick(random *rand.Rand) (past, newest int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.n == 0 {
		return 0, 0
	}
	return v.some[random.IntN(min(v.n, len(v.some)))], v.last
}

// state is one combination of read options. kubernetes/kubernetes#141652 proposes a model for all of them.
type state struct {
	verb    string // get, list or watch
	version string // what resourceVersion names: nothing, "0", or a version that is past, the newest known, or of the future
	match   metav1.ResourceVersionMatch
	pages   bool // by limit and continue
	// initial and bookmarks are for watches: sendInitialEvents and allowWatchBookmarks.
	initial, bookmarks bool
}

var versionNames = []string{"", "0", "past", "newest", "future"}

// readStates are all states except watches with initial objects and without a bookmark after them: the test cannot check
// their objects.
var readStates = func() (all []state) {
	for _, version := range versionNames {
		all = append(all, state{verb: "get", version: version})
		for _, match := range []metav1.ResourceVersionMatch{"", metav1.ResourceVersionMatchNotOlderThan, metav1.ResourceVersionMatchExact} {
			for _, pages := range []bool{false, true} {
				all = append(all, state{verb: "list", version: version, match: match, pages: pages})
			}
			all = append(all, state{verb: "watch", version: version, match: match, initial: true, bookmarks: true})
		}
		if version == "past" || version == "newest" {
			for _, bookmarks := range []bool{false, true} {
				all = append(all, state{verb: "watch", version: version, bookmarks: bookmarks})
			}
		}
	}
	return all
}()

func (s state) String() string {
	return fmt.Sprintf("%s version=%q match=%q pages=%t initial=%t bookmarks=%t", s.verb, s.version, s.match, s.pages, s.initial, s.bookmarks)
}

// legal reports whether a request in this state may succeed.
func (s state) legal() bool {
	switch {
	case s.version == "future":
		return false
	case s.initial:
		return s.match == metav1.ResourceVersionMatchNotOlderThan
	case s.match != "" && s.version == "", s.match == metav1.ResourceVersionMatchExact && s.version == "0":
		return false
	}
	return true
}

// asked returns how recent the result must be.
func (s state) asked() consistency.Asked {
	switch {
	case s.version == "":
		return consistency.Latest
	case s.version == "0":
		return consistency.Any
	case s.match == metav1.ResourceVersionMatchExact, s.match == "" && s.pages:
		return consistency.Exactly
	}
	return consistency.AtLeast
}

// readAll is one reader: it reads in all states, in no order.
func (r *recorder) readAll(random *rand.Rand) {
	for r.ctx.Err() == nil {
		past, newest := r.versions.pick(random)
		if newest == 0 {
			pause(r.ctx, lookAgain)
			continue
		}
		s := readStates[random.IntN(len(readStates))]
		at := map[string]int64{"past": past, "newest": newest, "future": newest + 1_000_000}[s.version]
		version := s.version
		if at != 0 {
			version = strconv.FormatInt(at, 10)
		}
		began := time.Now()
		err := r.readIn(random, s, version, at)
		r.answered(time.Since(began), err)
		if err == nil {
			r.mu.Lock()
			r.states[s.String()]++
			r.mu.Unlock()
			if !s.legal() {
				r.t.Errorf("read succeeded: %s, version %s; want an error", s, version)
			}
		}
		pause(r.ctx, lookAgain)
	}
}

func (r *recorder) readIn(random *rand.Rand, s state, version string, at int64) error {
	ctx, cancel := context.WithTimeout(r.ctx, requestTimeout+5*time.Second)
	defer cancel()
	switch s.verb {
	case "get":
		return r.getIn(ctx, fmt.Sprintf("k-%d", random.IntN(keys)), s, version, at)
	case "list":
		return r.listIn(ctx, s, version, at)
	}
	return r.watchIn(ctx, random, s, version, at)
}

func (r *recorder) getIn(ctx context.Context, name string, s state, version string, at int64) error {
	op := consistency.Op{Verb: consistency.Get, Key: name, Start: r.now(), Asked: s.asked(), At: at, Outcome: consistency.Acknowledged}
	var found corev1.ConfigMap
	err := r.client().CoreV1().RESTClient().Get().Namespace(namespace).Resource("configmaps").Name(name).
		VersionedParams(&metav1.GetOptions{ResourceVersion: version}, scheme.ParameterCodec).MaxRetries(0).Do(ctx).Into(&found)
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	if err == nil {
		op.Value, op.Version = found.Data["value"], number(found.ResourceVersion)
	}
	op.End = r.now()
	r.add(op)
	return nil
}

func (r *recorder) listIn(ctx context.Context, s state, version string, at int64) error {
	l := consistency.List{Start: r.now(), Asked: s.asked(), At: at}
	options := metav1.ListOptions{LabelSelector: "durability", ResourceVersion: version, ResourceVersionMatch: s.match}
	if s.pages {
		options.Limit = 2
	}
	var items []corev1.ConfigMap
	var first string
	for {
		var page corev1.ConfigMapList
		err := r.client().CoreV1().RESTClient().Get().Namespace(namespace).Resource("configmaps").
			VersionedParams(&options, scheme.ParameterCodec).MaxRetries(0).Do(ctx).Into(&page)
		if err != nil {
			return err
		}
		items = append(items, page.Items...)
		if first == "" {
			first = page.ResourceVersion
		}
		if page.ResourceVersion != first {
			r.t.Errorf("%s: page with the version %s after one of %s, want the same", s, page.ResourceVersion, first)
		}
		if page.Continue == "" {
			r.addList(l, first, items)
			return nil
		}
		// The next page is requested from another front door.
		options = metav1.ListOptions{LabelSelector: "durability", Limit: 2, Continue: page.Continue}
	}
}

// watchIn is a watch for some events.
func (r *recorder) watchIn(ctx context.Context, random *rand.Rand, s state, version string, at int64) error {
	w := &watcher{recorder: r, name: "reader in " + s.String(), at: version}
	options := metav1.ListOptions{LabelSelector: "durability", ResourceVersion: version, ResourceVersionMatch: s.match, AllowWatchBookmarks: s.bookmarks}
	if s.initial {
		options.SendInitialEvents = new(true)
	}
	l := consistency.List{Start: r.now(), Asked: s.asked(), At: at}
	short, cancel := context.WithTimeout(ctx, time.Duration(500+random.IntN(3000))*time.Millisecond)
	defer cancel()
	stream, err := r.client().CoreV1().ConfigMaps(namespace).Watch(short, options)
	if err != nil {
		return err
	}
	defer stream.Stop()
	if s.initial {
		w.at = ""
		if err := w.first(l, stream); err != nil {
			return err
		}
		if w.at == "" {
			return errNoBookmark
		}
	}
	return w.rest(stream)
}

// errNoBookmark is a stream that ended, or was too slow, before the mark that all is there.
var errNoBookmark = apierrors.NewTimeoutError("the initial events did not end", 0)
