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

// liveResource is one declared resource while it is served: what its source said last, and how the source is.
type liveResource struct {
	definition *definition
	log        *zap.Logger
	// reshaped is told when the inferred schema has changed.
	reshaped func()
	hosted   extension.Resource

	asked chan struct{} // closed after the first answer or failure

	mu       sync.Mutex // guards what follows
	objects  []Object
	answered time.Time // when the answer in objects was asked for; zero: never
	omitted  []string
	failure  error // of the last attempt
	shape    *shape
}

func newLiveResource(d *definition, log *zap.Logger, reshaped func()) *liveResource {
	l := &liveResource{definition: d, log: log.With(zap.String("resource", d.name()), zap.String("source", d.originKind)),
		reshaped: reshaped, asked: make(chan struct{}), shape: &shape{}}
	l.hosted = d.resource(l)
	return l
}

// run asks the source again and again until ctx ends. The next question is asked when the answer to the one before has
// come and the interval is over, so that a slow source is never asked twice at a time.
func (l *liveResource) run(ctx context.Context) {
	if c, ok := l.definition.origin.(interface{ Close() }); ok {
		defer c.Close()
	}
	tick := time.NewTicker(l.definition.every)
	defer tick.Stop()
	for {
		l.ask(ctx)
		select {
		case <-l.asked:
		default:
			close(l.asked)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (l *liveResource) ask(ctx context.Context) {
	began := time.Now()
	bounded, cancel := context.WithTimeout(ctx, l.definition.timeout+grace)
	defer cancel()
	objects, omitted, err := l.fetch(bounded)
	if ctx.Err() != nil {
		return // the source was interrupted by us, which says nothing about it
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

// grace is what a source gets beyond its own timeout, for which it has the better words.
const grace = 5 * time.Second

func (l *liveResource) fetch(ctx context.Context) (objects []Object, omitted []string, err error) {
	answer, err := l.definition.origin.Fetch(ctx)
	if err != nil {
		return nil, nil, err
	}
	return l.definition.mapping.objects(answer)
}

// learn adds to the inferred schema. The caller holds mu.
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

// tell logs what has changed, and not what has stayed.
func (l *liveResource) tell(before, now error, omittedBefore []string) {
	switch {
	case now != nil && (before == nil || before.Error() != now.Error()):
		l.log.Warn("source does not answer; serving what it said last", zap.Error(now))
	case now == nil && before != nil:
		l.log.Info("source answers again")
	}
	if now == nil && !slices.Equal(omittedBefore, l.omissions()) && len(l.omissions()) > 0 {
		l.log.Warn("parts of the answer are not shown", zap.Strings("parts", l.omissions()))
	}
}

func (l *liveResource) omissions() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.omitted
}

// List answers from what the source said last, and warns when that is old or incomplete. It waits only for the very
// first answer. Who reads a resource is told how old it is; why, with addresses and paths, is for who may read
// /readyz?verbose.
func (l *liveResource) List(ctx context.Context, _ extension.Query) ([]Object, error) {
	select {
	case <-l.asked:
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

// LastError is why what is served is not what the source says now, nil when it is.
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

// resource is what the host gets: with the schema as far as it has been inferred.
func (l *liveResource) resource() extension.Resource {
	if l.definition.schema != nil {
		return l.hosted
	}
	l.mu.Lock()
	model := l.shape.schema(l.definition.docs, "")
	l.mu.Unlock()
	if model["type"] != "object" {
		model = map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true} // nothing seen yet
	}
	raw, err := json.Marshal(model)
	if err != nil {
		return l.hosted // plain maps of strings always encode
	}
	return l.hosted.WithSchema(raw)
}

func stamp(t time.Time) string { return t.UTC().Format(timeLayout) }
