package declared

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico.dev/pkg/extension"
)

// liveResource serves one declared resource from the last data of its source.
type liveResource struct {
	definition *definition
	log        *zap.Logger
	// reshaped is called when the inferred schema has changed.
	reshaped func()
	hosted   extension.Resource

	fetched chan struct{} // closed after the first fetch, successful or not

	mu       sync.Mutex // guards the fields below
	objects  []Object
	answered time.Time // start of the fetch that returned objects; zero if none succeeded
	omitted  []string
	failure  error // error of the last fetch
	shape    *shape
}

func newLiveResource(d *definition, log *zap.Logger, reshaped func()) *liveResource {
	l := &liveResource{definition: d, log: log.With(zap.String("resource", d.name()), zap.String("source", d.originKind)),
		reshaped: reshaped, fetched: make(chan struct{}), shape: &shape{}}
	l.hosted = d.resource(l)
	return l
}

// run queries the source periodically until ctx ends. The next fetch starts when the previous one has returned and the
// interval is over, so that fetches never overlap.
func (l *liveResource) run(ctx context.Context) {
	if c, ok := l.definition.origin.(interface{ Close() }); ok {
		defer c.Close()
	}
	tick := time.NewTicker(l.definition.every)
	defer tick.Stop()
	for {
		l.refresh(ctx)
		select {
		case <-l.fetched:
		default:
			close(l.fetched)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (l *liveResource) refresh(ctx context.Context) {
	began := time.Now()
	bounded, cancel := context.WithTimeout(ctx, l.definition.timeout+grace)
	defer cancel()
	objects, omitted, err := l.fetch(bounded)
	if ctx.Err() != nil {
		return // canceled by the caller, not an error of the source
	}
	l.mu.Lock()
	before, omittedBefore := l.failure, l.omitted
	l.failure = err
	news := false
	if err == nil {
		l.objects, l.answered, l.omitted = objects, began, omitted
		news = l.learn(objects)
	}
	l.mu.Unlock()
	l.tell(before, err, omittedBefore)
	if news {
		l.reshaped()
	}
}

// grace is added to the timeout of the source, which returns a more specific error than the context.
const grace = 5 * time.Second

func (l *liveResource) fetch(ctx context.Context) (objects []Object, omitted []string, err error) {
	answer, err := l.definition.origin.Fetch(ctx)
	if err != nil {
		return nil, nil, err
	}
	return l.definition.mapping.objects(answer)
}

// learn extends the inferred schema. The caller holds mu.
func (l *liveResource) learn(objects []Object) (news bool) {
	if l.definition.schema != nil {
		return false
	}
	for i := range objects {
		if l.shape.learn(objects[i].Content, 0) {
			news = true
		}
	}
	return news
}

// tell logs changes of the source's state.
func (l *liveResource) tell(before, now error, omittedBefore []string) {
	switch {
	case now != nil && (before == nil || before.Error() != now.Error()):
		l.log.Warn("source does not respond; serving its last response", zap.Error(now))
	case now == nil && before != nil:
		l.log.Info("source responds again")
	}
	if now == nil && !slices.Equal(omittedBefore, l.omissions()) && len(l.omissions()) > 0 {
		l.log.Warn("parts of the response are omitted", zap.Strings("parts", l.omissions()))
	}
}

func (l *liveResource) omissions() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.omitted
}

// List returns the last data of the source, with a warning if they are outdated or incomplete. It blocks only until the first
// fetch has returned. Warnings contain the age of the data. The reason, with addresses and paths, is only available in
// /readyz?verbose.
func (l *liveResource) List(ctx context.Context, _ extension.Query) ([]Object, error) {
	select {
	case <-l.fetched:
	case <-ctx.Done():
		return nil, apierrors.NewServiceUnavailable(fmt.Sprintf("the %s source of %s has not answered yet; try again", l.definition.originKind, l.definition.name()))
	}
	l.mu.Lock()
	objects, answered, failure, omitted := l.objects, l.answered, l.failure, l.omitted
	l.mu.Unlock()
	if answered.IsZero() {
		return nil, apierrors.NewServiceUnavailable(fmt.Sprintf("the %s source of %s has never answered; /readyz?verbose of the extension server says why", l.definition.originKind, l.definition.name()))
	}
	if failure != nil {
		if most := l.definition.maxAge; most > 0 && time.Since(answered) > most {
			return nil, apierrors.NewServiceUnavailable(fmt.Sprintf("the %s source of %s has not answered since %s, longer than maxAge (%s)",
				l.definition.originKind, l.definition.name(), stamp(answered), most))
		}
		extension.Warn(ctx, fmt.Sprintf("the %s source of %s has not answered since %s: showing what it said then",
			l.definition.originKind, l.definition.name(), stamp(answered)))
	}
	for _, text := range omitted {
		extension.Warn(ctx, l.definition.name()+": "+text)
	}
	return objects, nil
}

// LastError returns the error of the last fetch, nil if it succeeded.
func (l *liveResource) LastError() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.failure == nil:
		return nil
	case l.answered.IsZero():
		return fmt.Errorf("has never answered: %w", l.failure)
	}
	return fmt.Errorf("has not answered since %s; what it said then is %s old and still served: %w",
		stamp(l.answered), time.Since(l.answered).Round(time.Second), l.failure)
}

// resource returns the extension.Resource with the current schema.
func (l *liveResource) resource() extension.Resource {
	if l.definition.schema != nil {
		return l.hosted
	}
	l.mu.Lock()
	model := l.shape.schema(l.definition.docs, "")
	l.mu.Unlock()
	if model["type"] != "object" {
		model = map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true} // no data yet
	}
	raw, err := json.Marshal(model)
	if err != nil {
		return l.hosted // maps of strings always encode
	}
	return l.hosted.WithSchema(raw)
}

func stamp(t time.Time) string { return t.UTC().Format(timeLayout) }
