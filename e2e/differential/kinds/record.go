package kinds

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"
)

// script is an ordered list of questions in a separate namespace.
type script struct {
	namespace string
	questions []question
	// alone is true if the script must not run concurrently with other scripts.
	alone bool
}

// record runs scripts, at most atOnce concurrently. It stops at the first error.
func (s *server) record(ctx context.Context, all []script, atOnce int) (recording, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var (
		lock  sync.Mutex // guards r
		r     = recording{}
		turns = make(chan struct{}, atOnce)
		done  sync.WaitGroup
	)
	for _, one := range all {
		select {
		case turns <- struct{}{}:
		case <-ctx.Done():
		}
		if ctx.Err() != nil { // both channels may be ready
			break
		}
		done.Go(func() {
			defer func() { <-turns }()
			said, err := s.play(ctx, one)
			if err != nil {
				stop(err) // only the first cause is kept
				return
			}
			lock.Lock()
			defer lock.Unlock()
			maps.Copy(r, said)
		})
	}
	done.Wait()
	return r, context.Cause(ctx)
}

func (s *server) play(ctx context.Context, one script) (recording, error) {
	if err := s.settle(ctx, one.namespace); err != nil {
		return nil, fmt.Errorf("%s: namespace %s: %w", s.host, one.namespace, err)
	}
	r := recording{}
	for _, q := range one.questions {
		a, err := s.until(ctx, q)
		if err != nil {
			if ctx.Err() != nil || !s.breaks {
				return nil, fmt.Errorf("%s: %w", q.Name, err)
			}
			a = answer{Body: "no answer"}
		}
		if _, twice := r[q.Name]; twice {
			return nil, fmt.Errorf("two questions are called %q", q.Name)
		}
		r[q.Name] = a.fields(!strings.Contains(q.Name, " with "))
	}
	return r, nil
}

// settle creates a namespace and waits for the objects that pods in it need.
func (s *server) settle(ctx context.Context, namespace string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	made, err := s.answerTo(ctx, question{Method: http.MethodPost, Path: "/api/v1/namespaces",
		Body: map[string]any{"metadata": map[string]any{"name": namespace}}})
	if err != nil {
		return err
	}
	if made.Code != http.StatusCreated {
		return fmt.Errorf("answered with %d: %v", made.Code, made.Body)
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		account, err := s.answerTo(ctx, question{Method: http.MethodGet, Path: "/api/v1/namespaces/" + namespace + "/serviceaccounts/default"})
		if err != nil || account.Code == http.StatusOK {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
