package declared

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico.dev/pkg/extension"
)

// faulty is a source that answers, fails or hangs as configured by the test.
type faulty struct {
	fetch         atomic.Pointer[fetch]
	asked, within atomic.Int32
}

type fetch func(ctx context.Context) (any, error)

func (f *faulty) now(fetch fetch) { f.fetch.Store(&fetch) }

func (f *faulty) Fetch(ctx context.Context) (any, error) {
	f.asked.Add(1)
	defer f.within.Add(-1)
	if f.within.Add(1) > 1 {
		panic("asked twice at a time")
	}
	return (*f.fetch.Load())(ctx)
}

func good(context.Context) (any, error) {
	return []any{map[string]any{"id": "a"}}, nil
}

// alive runs a resource of a faulty source in synthetic time.
func alive(t *testing.T, more string, test func(l *liveResource, f *faulty)) {
	file := filepath.Join(t.TempDir(), "f.yaml")
	write(t, file, head+minimal+more)
	synctest.Test(t, func(t *testing.T) {
		s, err := New(Config{Paths: []string{file}})
		must(t, err)
		f := &faulty{}
		f.now(good)
		d := s.lives[0].definition
		d.origin, d.timeout = f, time.Minute
		l := newLiveResource(d, zap.NewNop(), func() {})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			l.run(ctx)
			close(done)
		}()
		synctest.Wait()
		test(l, f)
		cancel()
		<-done
	})
}

func TestResponseOlderThanMaxAgeIsNotServed(t *testing.T) {
	alive(t, "  every: 10s\n  maxAge: 1m\n", func(l *liveResource, f *faulty) {
		f.now(func(context.Context) (any, error) { return nil, errors.New("gone away") })
		time.Sleep(30 * time.Second)
		synctest.Wait()
		objects, err := l.List(context.Background(), extension.Query{})
		if err != nil || len(objects) != 1 {
			t.Errorf("List 30 seconds after the source failed = %v, error %v, want 1 object and no error", objects, err)
		}
		if err := l.LastError(); err == nil || !strings.Contains(err.Error(), "gone away") {
			t.Errorf("LastError after the source failed = %v, want an error that contains \"gone away\"", err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if _, err = l.List(context.Background(), extension.Query{}); !apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), "longer than maxAge (1m0s)") {
			t.Errorf("List after maxAge: error = %v, want ServiceUnavailable that names maxAge", err)
		}
		f.now(good)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if _, err = l.List(context.Background(), extension.Query{}); err != nil || l.LastError() != nil {
			t.Errorf("List after the source recovered: error = %v, LastError %v, want no errors", err, l.LastError())
		}
	})
}

func TestSlowSourceIsFetchedOnceAtATime(t *testing.T) {
	alive(t, "  every: 1s\n", func(l *liveResource, f *faulty) {
		f.now(func(ctx context.Context) (any, error) {
			<-ctx.Done() // after the timeout and the grace period
			return nil, ctx.Err()
		})
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if f.asked.Load() > 12 {
			t.Errorf("source fetched %d times in ten minutes, want at most 12", f.asked.Load())
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if _, err := l.List(ctx, extension.Query{}); err != nil {
			t.Errorf("List while the source is slow: error = %v, want no error", err)
		}
	})
}

func TestMismatchedResponseIsReportedAsError(t *testing.T) {
	alive(t, "  items: .data[*]\n", func(l *liveResource, _ *faulty) {
		if err := l.LastError(); err == nil || !strings.Contains(err.Error(), "never answered: items: ") {
			t.Errorf("LastError of a source with another format = %v, want an error that contains \"never answered: items: \"", err)
		}
	})
}
