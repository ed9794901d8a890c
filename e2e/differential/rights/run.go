package rights

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"sync"

	"k8s.io/client-go/rest"
)

// answers maps the names of questions to the answers of one persona.
type answers map[string]answer

// interview sends the requests of all personas, for at most atOnce personas concurrently. It stops at the first
// error.
func (s *server) interview(ctx context.Context, w *environment, all []persona, resources []resource, atOnce int) (map[string]answers, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var (
		lock sync.Mutex // guards out
		out  = map[string]answers{}
		next = make(chan persona)
		done sync.WaitGroup
	)
	for range atOnce {
		done.Go(func() {
			for p := range next {
				said, err := s.one(ctx, w, p, resources)
				if err != nil {
					stop(fmt.Errorf("%s: %w", p.Name, err)) // only the first cause is kept
					continue
				}
				lock.Lock()
				out[p.Name] = said
				lock.Unlock()
			}
		})
	}
	for _, p := range all {
		if !p.Untried && ctx.Err() == nil {
			next <- p
		}
	}
	close(next)
	done.Wait()
	return out, context.Cause(ctx)
}

// one sends the requests of one persona, over a separate connection.
func (s *server) one(ctx context.Context, w *environment, p persona, resources []resource) (answers, error) {
	questions, err := w.questions(resources, p)
	if err != nil {
		return nil, err
	}
	c, err := client(rest.CopyConfig(s.config))
	if err != nil {
		return nil, err
	}
	defer c.CloseIdleConnections()
	impersonate := http.Header{}
	for name, values := range p.Impersonate {
		impersonate["Impersonate-"+name] = values
	}
	out := answers{}
	for _, q := range questions {
		if _, twice := out[q.Name]; twice {
			return nil, fmt.Errorf("two questions are called %q", q.Name)
		}
		a, _, err := send(ctx, c, s.host, q, func(h http.Header) {
			maps.Copy(h, impersonate)
			p.introduce(h)
		})
		if err != nil {
			return nil, err
		}
		out[q.Name] = a.about(p.User)
	}
	return out, nil
}
