package simulation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A client that lists and watches builds its state only from events. An event that a front door or a shared watch skips is lost for
// it forever, and no error reports that.
const ruleWatch = "no watch skips or reorders events of its collection; resumption is exact or 410"

// ruleInTime exists because a buffered event arrives only with later ones, or when the watch ends.
const ruleInTime = "without faults, a watch sends an event at once"

const (
	// eventBound bounds the time from a write to its event. The watch may have ended, and begin again after watchPause with a list.
	eventBound = 10 * time.Second
	// probeRounds is the number of rounds of writes at rest.
	probeRounds = 2
	// watchPause is the time between two attempts of a watch.
	watchPause = time.Second
	// beginTimeout bounds the time to the header of a watch, and to the bookmark that ends initial events. A server that ignores
	// sendInitialEvents sends none.
	beginTimeout = 20 * time.Second
	// shortestWatch and watchRange bound timeoutSeconds, so that watches end without a fault, too.
	shortestWatch, watchRange = 10, 50
)

// watches are watches of users, and the writes that they observe.
func watches() []action {
	return []action{
		{name: "write", weight: 11, begin: write},
		{name: "watch", weight: 9, begin: watch},
	}
}

// watchesAtRest compares the watches and ends them, because the conditions that follow concern front doors without requests.
var watchesAtRest = []condition{{ruleWatch, func(h *history, ctx context.Context) error {
	if err := h.checkWatches(ctx); err != nil {
		return err
	}
	h.endWatches()
	return nil
}}}

// watching are the watches of a history.
type watching struct {
	mu       sync.Mutex // guards watchers
	watchers []*watcher
	running  sync.WaitGroup
	probes   int       // rounds of writes at rest
	probed   time.Time // end of the latest round
}

// watcher is a user who watches a collection from a step until the history is at rest.
type watcher struct {
	history    *history
	cancel     context.CancelFunc
	name       string
	user       string
	collection *watchedCollection
	step       step
	front      int // number of the front door of the next attempt
	// streams is set while the user begins with sendInitialEvents, and not with a list. Like other clients, it lists if the server
	// rejects or ignores that parameter.
	streams bool

	mu    sync.Mutex // guards state
	state observed
}

// watch begins a watch.
func watch(h *history, s step) {
	ctx, cancel := context.WithCancel(h.ctx)
	w := &watcher{history: h, cancel: cancel, user: users[s.choice%uint64(len(users))], collection: h.collection(s), step: s, front: s.target, streams: s.choice>>8%2 == 0}
	w.state.forget()
	h.watching.mu.Lock()
	defer h.watching.mu.Unlock()
	w.name = fmt.Sprintf("watch %d of %s", len(h.watching.watchers), w.collection.path)
	h.watching.watchers = append(h.watching.watchers, w)
	h.watching.running.Go(func() { w.run(ctx) })
}

// endWatches ends all watches, and returns when their goroutines have ended. Writers have ended before.
func (h *history) endWatches() {
	h.watching.mu.Lock()
	for _, w := range h.watching.watchers {
		w.cancel()
	}
	h.watching.watchers = nil
	h.watching.mu.Unlock()
	h.watching.running.Wait()
	for _, c := range h.collections {
		c.acknowledged = nil
		for _, o := range c.objects {
			o.doubtful = false
		}
	}
}

// run watches, and resumes through the next front door when the watch has ended.
func (w *watcher) run(ctx context.Context) {
	w.history.progress("watch", 1)
	defer w.history.progress("watch", -1)
	for ctx.Err() == nil {
		c := w.history.client(w.user, w.history.front(w.front))
		events, err := w.attempt(ctx, c)
		w.front++
		w.history.log.addf("%s of %s through %s ended at resourceVersion %d after %d events: %v", w.name, w.user, c.front.name, w.state.last, events, err)
		if errors.Is(err, errGone) {
			w.forget()
		}
		pause(ctx, watchPause)
	}
}

// errGone means that the user must list again.
var errGone = errors.New("410")

// attempt lists if necessary, and watches until the watch ends. It returns the number of events.
func (w *watcher) attempt(ctx context.Context, c *client) (events int, err error) {
	query := "watch=1&allowWatchBookmarks=true&timeoutSeconds=" + strconv.FormatUint(shortestWatch+w.step.choice>>16%watchRange, 10)
	switch {
	case w.state.synced:
		query += "&resourceVersion=" + strconv.FormatInt(w.state.last, 10)
	case w.streams:
		w.forget()
		query += "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
	default:
		objects, revision, err := w.collection.list(ctx, c)
		if err != nil {
			return 0, err
		}
		w.mu.Lock()
		w.state.begin(objects, revision)
		w.mu.Unlock()
		query += "&resourceVersion=" + strconv.FormatInt(revision, 10)
	}
	return w.stream(ctx, c, query)
}

func (w *watcher) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.state.forget()
}

// list returns the objects of a collection, and the resourceVersion of the list.
func (c *watchedCollection) list(ctx context.Context, by *client) (map[string]version, int64, error) {
	var list metav1.PartialObjectMetadataList
	if err := by.do(ctx, http.MethodGet, c.path, nil).decode(&list); err != nil {
		return nil, 0, err
	}
	revision, err := strconv.ParseInt(list.ResourceVersion, 10, 64)
	if err != nil {
		return nil, 0, fmt.Errorf("resourceVersion of the list %s: %w", c.path, err)
	}
	objects, err := versionsOf(&list)
	return objects, revision, err
}

// stream sends one watch, and reads its events until it ends.
func (w *watcher) stream(ctx context.Context, c *client, query string) (events int, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	late := time.AfterFunc(beginTimeout, cancel)
	defer late.Stop()
	response, _, err := c.send(ctx, http.MethodGet, w.collection.path+"?"+query, nil, nil)
	if err != nil {
		return 0, err
	}
	defer func() { _ = response.Body.Close() }()
	switch response.StatusCode {
	case http.StatusOK:
	case http.StatusGone:
		return 0, errGone
	default:
		w.streams = w.streams && response.StatusCode != http.StatusUnprocessableEntity
		text, _ := io.ReadAll(io.LimitReader(response.Body, 300))
		return 0, fmt.Errorf("%d: %s", response.StatusCode, text)
	}
	decoder := json.NewDecoder(response.Body)
	for {
		if w.state.synced {
			late.Stop()
		}
		if err := w.next(decoder); err != nil {
			if !w.state.synced && ctx.Err() != nil {
				w.streams = false
			}
			return events, err
		}
		events++
	}
}

// next reads one event, and checks it.
func (w *watcher) next(decoder *json.Decoder) error {
	var event struct {
		Type   string
		Object json.RawMessage
	}
	if err := decoder.Decode(&event); err != nil {
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			w.history.violate(ruleWatch, "%s after resourceVersion %d: got an event that is not JSON (%v)", w.name, w.state.last, err)
		}
		return err
	}
	if event.Type == "ERROR" {
		var status metav1.Status
		if err := json.Unmarshal(event.Object, &status); err != nil {
			return err
		}
		if status.Code == http.StatusGone {
			return errGone
		}
		return fmt.Errorf("ERROR event: %d: %s", status.Code, status.Message)
	}
	var object metav1.PartialObjectMetadata
	if err := json.Unmarshal(event.Object, &object); err != nil {
		return err
	}
	v, err := versionOf(&object)
	if err == nil {
		err = w.take(event.Type, v, object.Annotations[metav1.InitialEventsAnnotationKey] == "true")
	}
	if err != nil {
		w.history.violate(ruleWatch, "%s: %v", w.name, err)
	}
	return err
}

// take adds an event to the state.
func (w *watcher) take(kind string, v version, endsInitial bool) error {
	acknowledged := w.history.acknowledgedIn(w.collection)
	w.mu.Lock()
	defer w.mu.Unlock()
	if kind == "BOOKMARK" {
		if err := w.state.bookmark(v.revision, endsInitial); err != nil {
			return err
		}
	} else if err := w.state.apply(kind, v); err != nil {
		return err
	}
	return w.state.checkSeen(acknowledged, w.state.last)
}

func (h *history) acknowledgedIn(c *watchedCollection) []version {
	h.world.mu.Lock()
	defer h.world.mu.Unlock()
	return slices.Clone(c.acknowledged)
}

// checkWatches writes the watched collections in two rounds, and returns an error while a watch does not have their state. A watch that
// a fault has interrupted has begun again when it has received the first round. Only the second round has a bound.
func (h *history) checkWatches(ctx context.Context) error {
	if h.watching.probes == 0 {
		if err := h.probe(ctx); err != nil {
			return err
		}
	}
	err := h.compareWatches(ctx)
	late := time.Since(h.watching.probed)
	switch {
	case err != nil:
		if h.watching.probes == probeRounds && late > eventBound && h.ctx.Err() == nil {
			h.violate(ruleInTime, "%s after a write: %v", late, err)
		}
		return err
	case h.watching.probes < probeRounds:
		if err := h.probe(ctx); err != nil {
			return err
		}
		return errors.New("the events of the second round have not been compared")
	}
	return nil
}

// compareWatches returns an error if a watch does not have the state of its collection, or a front door lists another one.
func (h *history) compareWatches(ctx context.Context) error {
	for _, c := range h.watched() {
		for _, f := range h.fronts {
			listed, _, err := c.list(ctx, h.client(admin, f))
			if err == nil {
				err = c.checkWritten(listed)
			}
			if err != nil {
				return fmt.Errorf("%s: %s: %w", f.name, c.path, err)
			}
			if err := h.compare(c, listed); err != nil {
				return fmt.Errorf("%w, as %s lists", err, f.name)
			}
		}
	}
	return nil
}

// watched returns the collections with a watch.
func (h *history) watched() []*watchedCollection {
	h.watching.mu.Lock()
	defer h.watching.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(h.collections), func(c *watchedCollection) bool {
		return !slices.ContainsFunc(h.watching.watchers, func(w *watcher) bool { return w.collection == c })
	})
}

// probe writes an object of each watched collection at rest. Otherwise a watch that sends nothing any more would be
// noticed only if it missed an earlier write.
func (h *history) probe(ctx context.Context) error {
	for _, c := range h.watched() {
		o := c.objects[0]
		before := o.write
		h.writeOnce(ctx, h.client(admin, h.fronts[0]), c, o, false)
		if o.write == before || !o.known {
			return fmt.Errorf("write %s %s: no answer", c.path, o.name)
		}
	}
	h.watching.probes++
	h.watching.probed = time.Now()
	return nil
}

// compare compares the state of the watches of a collection with a list.
func (h *history) compare(c *watchedCollection, listed map[string]version) error {
	acknowledged := h.acknowledgedIn(c)
	h.watching.mu.Lock()
	defer h.watching.mu.Unlock()
	for _, w := range h.watching.watchers {
		if w.collection != c {
			continue
		}
		w.mu.Lock()
		err := w.state.checkEqual(listed)
		if err == nil {
			err = w.state.checkSeen(acknowledged, math.MaxInt64)
		}
		w.mu.Unlock()
		if err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
	}
	return nil
}
