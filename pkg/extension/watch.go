package extension

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/gorilla/websocket"
	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"portico.dev/internal/respond"
)

const (
	// bookmarkInterval is how often an idle watch gets a bookmark, as in kube-apiserver.
	bookmarkInterval = time.Minute
	// minWatch is the minimum duration of a watch without timeoutSeconds. The maximum is twice that. The random duration
	// prevents a thousand watches from ending at the same time.
	minWatch = 30 * time.Minute
	// maxWatch limits timeoutSeconds.
	maxWatch = 12 * time.Hour
	// retryTold is the delay before listing again after a source has reported a change but could not be listed.
	retryTold = time.Second
)

// watcher serves one watch request.
type watcher struct {
	view      *view
	selection selection
	options   metav1.ListOptions
	stream    *stream
	log       *zap.Logger
	gone      <-chan struct{} // closed when the resource is no longer hosted
	position  uint64          // version of the last change that has been written
}

// watch serves a watch until it times out, the client disconnects, or the server drains; all three end it cleanly. It returns
// an error only if nothing has been written. Later errors are written as an event.
func (s *resourceHandler) watch(w http.ResponseWriter, r *http.Request, info *apirequest.RequestInfo, h *Host) error {
	arrived := time.Now()
	o := offer{verb: "watch", protobuf: s.protobuf}
	rep, ok := o.negotiate(r.Header.Get("Accept"))
	if !ok {
		return respond.NotAcceptable(o.acceptable()...)
	}
	options, err := parseOptions(r, true)
	if err != nil {
		return err
	}
	sel, err := parseSelection(s.Resource, info.Namespace, options.LabelSelector, options.FieldSelector)
	if err != nil {
		return err
	}
	include, err := includePolicy(r)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), watchTime(options.TimeoutSeconds))
	defer cancel()
	defer context.AfterFunc(h.watching, cancel)()
	v := s.views.viewFor(caller(ctx))
	now, err := v.refresh(ctx, arrived)
	if err != nil {
		return err
	}
	t := &watcher{view: v, selection: sel, options: options, log: h.log, gone: s.gone.Done()}
	initial, err := t.start(now)
	if err != nil {
		return err
	}
	if r.Method == http.MethodHead {
		w.Header().Set("Content-Type", rep.contentType())
		w.WriteHeader(http.StatusOK)
		return nil
	}
	var to eventWriter = newBodyWriter(w, rep)
	if websocket.IsWebSocketUpgrade(r) {
		to = newWebSocketWriter(w, r, rep, cancel)
	}
	t.stream = &stream{eventWriter: to, resource: s.Resource, rep: rep, include: include}
	if err := to.open(rep.contentType()); err != nil {
		h.log.Debug("watch not opened", zap.Error(err))
		return nil
	}
	defer to.close()
	if err := t.run(ctx, initial); err != nil {
		h.log.Debug("watch ended", zap.Error(err))
	}
	return nil
}

func watchTime(seconds *int64) time.Duration {
	if seconds == nil || *seconds <= 0 {
		return minWatch + rand.N(minWatch)
	}
	return min(time.Duration(*seconds)*time.Second, maxWatch)
}

// start sets the position at which the watch begins and returns the objects of the initial events.
func (t *watcher) start(now snapshot) ([]object, error) {
	from, err := parseVersion(t.options.ResourceVersion)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if from > now.version {
		return nil, tooLarge(from, now.version)
	}
	asked := t.options.SendInitialEvents
	switch {
	case asked != nil && *asked, asked == nil && from == 0:
		// Without resourceVersion and sendInitialEvents, a watch starts with the existing objects.
		t.position = now.version
		return t.selection.filter(now.items), nil
	case from == 0:
		t.position = now.version
		return nil, nil
	}
	if _, _, _, err := t.view.since(from); err != nil {
		return nil, apierrors.NewResourceExpired("too old resource version: " + formatVersion(from))
	}
	t.position = from
	return nil, nil
}

func (t *watcher) run(ctx context.Context, initial []object) error {
	for _, o := range initial {
		if err := t.stream.event(watch.Added, o); err != nil {
			return err
		}
	}
	if asked := t.options.SendInitialEvents; asked != nil && *asked && t.options.AllowWatchBookmarks {
		if err := t.stream.bookmark(t.position, true); err != nil {
			return err
		}
	}
	if err := t.stream.flush(); err != nil {
		return err
	}
	poll := time.NewTicker(t.view.resource.poll)
	defer poll.Stop()
	bookmarks := time.NewTicker(bookmarkInterval)
	defer bookmarks.Stop()
	var failed <-chan time.Time // fires when to retry a source that reported a change and then failed
	for {
		changed, err := t.tell()
		if err != nil {
			return err
		}
		told := t.view.signal()
		if failed != nil {
			told = nil
		}
		select {
		case <-changed:
		case <-told:
			if !t.refreshTold(ctx, told) {
				failed = time.After(retryTold)
			}
		case <-failed:
			failed = nil
		case <-poll.C:
			t.poll(ctx)
		case <-bookmarks.C:
			err = t.bookmark()
		case <-t.gone:
			return t.stream.failure(apierrors.NewResourceExpired("this resource is not served any more as it was"))
		case <-ctx.Done():
			return t.bookmark()
		}
		if err != nil {
			return err
		}
	}
}

// tell writes the changes since the last call and returns the channel that announces more.
func (t *watcher) tell() (<-chan struct{}, error) {
	changes, version, changed, err := t.view.since(t.position)
	if errors.Is(err, errExpired) {
		return nil, errors.Join(err, t.stream.failure(apierrors.NewResourceExpired("this watch fell too far behind")))
	}
	for _, c := range changes {
		kind, o := t.selection.eventOf(c)
		if kind == "" {
			continue
		}
		if err := t.stream.event(kind, o); err != nil {
			return nil, err
		}
	}
	t.position = version
	if len(changes) == 0 {
		return changed, nil
	}
	return changed, t.stream.flush()
}

// eventOf converts a change to an event for watchers of the selection: an object that enters the selection is added, one that
// leaves it is deleted.
func (sel selection) eventOf(c change) (watch.EventType, object) {
	is := c.current != nil && sel.matches(c.current)
	was := c.previous != nil && sel.matches(c.previous)
	switch {
	case is && was:
		return watch.Modified, c.current
	case is:
		return watch.Added, c.current
	case was:
		return watch.Deleted, c.previous
	}
	return "", nil
}

// poll polls the source for changes. All watchers of a view share a poll: the first ticker to fire polls for all. If the
// source fails, the next tick retries, and until then the view is unchanged.
func (t *watcher) poll(ctx context.Context) {
	// A tolerance of half an interval lets tickers that fire at slightly different times share one poll.
	freshEnough := time.Now().Add(-t.view.resource.poll / 2)
	if _, err := t.view.refresh(ctx, freshEnough); err != nil && ctx.Err() == nil {
		t.log.Warn("failed to poll for changes", zap.String("resource", t.view.resource.gvr.String()), zap.Error(err))
	}
}

// refreshTold lists the source after it has closed told. It returns false if the source fails.
func (t *watcher) refreshTold(ctx context.Context, told <-chan struct{}) bool {
	err := t.view.refreshTold(ctx, told)
	if err != nil && ctx.Err() == nil {
		t.log.Warn("failed to list the changed objects", zap.String("resource", t.view.resource.gvr.String()), zap.Error(err))
	}
	return err == nil
}

func (t *watcher) bookmark() error {
	if !t.options.AllowWatchBookmarks {
		return nil
	}
	if err := t.stream.bookmark(t.position, false); err != nil {
		return err
	}
	return t.stream.flush()
}
