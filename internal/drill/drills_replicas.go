package drill

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/client-go/rest"
)

// partitionLength is how long one server is cut off from the subject.
const partitionLength = 15 * time.Second

// settledIn is from when on a partition may not be noticed any more: until then the cut has to be detected.
const settledIn = 5 * time.Second

// replicaDrills are about several servers over one etcd.
func replicaDrills() []Drill {
	return []Drill{{
		Name: "partial-partition", Title: "one of several front doors cannot reach the extension server any more, the others can",
		About: partitionLength + 8*time.Second, Limit: 90 * time.Second, Stores: true, Replicas: 1,
		script: partition,
		Expect: []Expectation{
			servedAgainIn(settledIn, "get", "list", "create", "delete", "watch"), staysAvailable(),
			discoveryShows("discovery lists its resources all the time", listed), recoversWithin(5 * time.Second),
		},
	}}
}

// partition cuts the server that the traffic goes to off from the subject. The subject knows each server by the certificate that
// it presents.
func partition(ctx context.Context, s *Stage) error {
	if err := s.wait(ctx, baseline); err != nil {
		return err
	}
	cut, err := s.clientOf(ctx, s.target.Replicas[0])
	if err != nil {
		return err
	}
	other, err := s.clientOf(ctx, s.target.Config)
	if err != nil {
		return err
	}
	if cut == other {
		return errors.New("the servers present the same certificate to extension servers, by which the drill tells them apart: give each its own --proxy-client-cert-file")
	}
	s.record.mark(func(t *Times) { t.Broke = time.Now() })
	s.progress("one server is cut off")
	s.subject.Partition(cut)
	s.record.mark(func(t *Times) { t.Broken = time.Now() })
	if err := s.wait(ctx, partitionLength); err != nil {
		return err
	}
	return s.mend(ctx)
}

// clientOf is the certificate with which a server of the target sends requests to the subject.
func (s *Stage) clientOf(ctx context.Context, server *rest.Config) (string, error) {
	agent := fmt.Sprintf("%s %s", s.drill.userAgent(), server.Host)
	client, base, err := s.target.connect(server, agent)
	if err != nil {
		return "", err
	}
	defer client.CloseIdleConnections()
	t := &traffic{client: client, base: base, record: &recorder{}}
	r := t.send(ctx, s.read(Subject, "list", s.subject.collection(s.Namespace)))
	found := s.subject.ClientOf(agent)
	if !r.OK() || found == "" {
		return "", fmt.Errorf("%s does not reach the extension server with a client certificate: %s", server.Host, r.describe())
	}
	return found, nil
}

// servedAgainIn: so long after the fault began, no request of these verbs fails any more, and no watch stands still.
func servedAgainIn(limit time.Duration, verbs ...string) Expectation {
	return Expectation{
		Text: fmt.Sprintf("from %s after the cut on, none of its requests fails, and no watch of before stands still", limit),
		check: func(h *History) error {
			var late []Request
			for _, r := range h.duringFault(h.of(Subject, verbs...)) {
				if r.Start.Sub(h.Broken) >= limit {
					late = append(late, r)
				}
			}
			if len(late) == 0 {
				return errors.New("no request was made")
			}
			for _, r := range h.of(Subject, "watch") {
				if lasted := r.Start.Add(r.Took).Sub(h.Broken); r.Start.Before(h.Broken) && lasted > limit {
					return fmt.Errorf("a watch was open for %s after the cut", lasted.Round(100*time.Millisecond))
				}
			}
			return noneFails(h, late)
		},
	}
}
