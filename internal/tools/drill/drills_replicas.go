package drill

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico.dev/internal/run"
)

// partitionLength is how long one server is cut off from the subject.
const partitionLength = 15 * time.Second

// settledIn is the time allowed to detect the cut. After it, the partition must have no visible effect.
const settledIn = 5 * time.Second

const (
	// Measures of the drills with several servers.
	goneWhileFirstIsCut  = "namespace gone, one server cut off"
	goneWhileSecondIsCut = "namespace gone, the other one cut off"
	objectsGoneMeanwhile = "its objects gone while both were cut off in turn"
	slowestFirst         = "slowest first request"
	slowestListed        = "slowest discovery at the other server"
)

// replicaDrills returns the drills about several servers over one etcd.
func replicaDrills() []Drill {
	return []Drill{
		{
			Name: "partial-partition", Title: "one of several front doors cannot reach the extension server any more, the others can",
			About: partitionLength + 8*time.Second, Limit: 90 * time.Second, Stores: true, Replicas: 1, Partition: true,
			script: partition,
			Expect: []Expectation{
				servedAgainIn(settledIn, "get", "list", "create", "delete", "watch"), staysAvailable(),
				discoveryShows("discovery lists its resources all the time", listed), recoversWithin(5 * time.Second),
			},
		},
		{
			Name: "partial-partition-namespace", Title: "namespaces are deleted while each of two front doors in turn cannot reach the extension server",
			About: 30 * time.Second, Limit: 3 * time.Minute, Stores: true, Replicas: 1, Partition: true,
			script: deleteDuringPartitions,
			Expect: []Expectation{
				within(20*time.Second, goneWhileFirstIsCut, "a namespace with objects there goes while one server is cut off"),
				within(20*time.Second, goneWhileSecondIsCut, "another one goes while the other server is cut off"),
				within(time.Second, objectsGoneMeanwhile, "no object of theirs is left"),
				staysAvailable(), recoversWithin(5 * time.Second),
			},
		},
		{
			Name: "registered-at-another-replica", Title: "an APIService becomes available at one of several front doors, and is asked for at another one at once",
			About: 15 * time.Second, Limit: 2 * time.Minute, Replicas: 1, Unregisters: true,
			script: registerAndAsk,
			Expect: []Expectation{
				{Text: "no first request at the other server fails", check: func(h *History) error {
					first := h.requestsTo(Subject, firstVerb)
					if len(first) < registrations {
						return fmt.Errorf("there were %d of %d", len(first), registrations)
					}
					return noneFails(h, first)
				}},
				within(2*time.Second, slowestFirst, "each is answered"),
				within(time.Second, slowestListed, "discovery at the other server lists the resources"),
				recoversWithin(5 * time.Second),
			},
		},
	}
}

// partition cuts the server that receives the traffic off from the subject.
func partition(ctx context.Context, s *Stage) error {
	if err := s.wait(ctx, baseline); err != nil {
		return err
	}
	cut, _, err := s.servers(ctx)
	if err != nil {
		return err
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

// deleteDuringPartitions cuts off one server after the other and deletes a namespace each time, so that the server
// that runs the controllers is among those cut off.
func deleteDuringPartitions(ctx context.Context, s *Stage) error {
	first, second, err := s.servers(ctx)
	if err != nil {
		return err
	}
	doomed := []string{s.Namespace + "-doomed-1", s.Namespace + "-doomed-2"}
	for _, name := range doomed {
		if err := s.createNamespaceWithWidget(ctx, name); err != nil {
			return err
		}
	}
	if err := s.wait(ctx, baseline); err != nil {
		return err
	}
	for i, cut := range []string{first, second} {
		s.record.mark(func(t *Times) {
			if i == 0 {
				t.Broke = time.Now()
			}
		})
		s.progress("a server is cut off")
		s.subject.Partition(cut)
		s.record.mark(func(t *Times) {
			if i == 0 {
				t.Broken = time.Now()
			}
		})
		if err := s.deleteNamespace(ctx, doomed[i]); err != nil {
			return err
		}
		if err := s.measure(ctx, []string{goneWhileFirstIsCut, goneWhileSecondIsCut}[i], 30*time.Second, s.namespaceGone(doomed[i])); err != nil {
			return err
		}
		s.subject.Partition("")
		if err := s.wait(ctx, settledIn); err != nil { // the second cut begins with both servers healthy
			return err
		}
	}
	nothing := func(ctx context.Context) bool {
		return s.nothingStored(doomed[0])(ctx) && s.nothingStored(doomed[1])(ctx)
	}
	if err := s.measure(ctx, objectsGoneMeanwhile, time.Second, nothing); err != nil {
		return err
	}
	return s.mend(ctx)
}

// servers returns the client certificates with which the server that receives the traffic, and the other one, send
// requests to the subject. The subject identifies the servers by them.
func (s *Stage) servers(ctx context.Context) (traffic, other string, err error) {
	if traffic, err = s.clientOf(ctx, s.target.Replicas[0]); err != nil {
		return "", "", err
	}
	if other, err = s.clientOf(ctx, s.target.Config); err != nil {
		return "", "", err
	}
	if traffic == other {
		return "", "", errors.New("the servers present the same certificate to extension servers, by which the drill tells them apart: give each its own --proxy-client-cert-file")
	}
	return traffic, other, nil
}

const (
	// registrations is the number of times the subject is registered.
	registrations = 10
	// firstVerb is the verb of a list that was the first request after a registration.
	firstVerb = "first list"
	// askInterval is the interval at which the condition is read.
	askInterval = 5 * time.Millisecond
)

// registerAndAsk registers the subject at one server, waits until that server shows it as available, and immediately
// sends a request for it to the other one.
func registerAndAsk(ctx context.Context, s *Stage) error {
	if err := s.wait(ctx, baseline); err != nil {
		return err
	}
	s.record.mark(func(t *Times) { t.Broke, t.Broken = time.Now(), time.Now() })
	var first, listing time.Duration
	never := false
	for n := range registrations {
		s.progress(fmt.Sprintf("registration %d of %d", n+1, registrations))
		if err := s.cleanAPIService(ctx, s.subject.apiService); err != nil {
			return err
		}
		list := s.subject.read(firstVerb, s.subject.collection(s.Namespace))
		_, gone, err := s.until(ctx, 10*time.Second, func(ctx context.Context) bool {
			return s.code(ctx, list) == http.StatusNotFound
		})
		if err != nil || !gone {
			return cmp.Or(err, errors.New("what was unregistered is still served by the other server after ten seconds"))
		}
		if err := s.register(ctx, s.subject); err != nil {
			return err
		}
		if err := s.awaitAvailable(ctx, s.subject.apiService); err != nil {
			return err
		}
		first = max(first, s.traffic.send(ctx, list).Took)
		took, came, err := s.until(ctx, 10*time.Second, func(ctx context.Context) bool {
			r := s.traffic.send(ctx, s.discoveryCall())
			return r.OK() && r.Saw == listed
		})
		if err != nil {
			return err
		}
		listing, never = max(listing, took), never || !came
	}
	s.record.measured(Measure{Name: slowestFirst, Seconds: Seconds(first)})
	s.record.measured(Measure{Name: slowestListed, Seconds: Seconds(listing), Never: never})
	return s.mend(ctx)
}

// code returns the status code with which the server that receives the traffic answers a request. The request is not
// recorded.
func (s *Stage) code(ctx context.Context, c call) int {
	t := &traffic{client: s.traffic.client, base: s.traffic.base, record: &recorder{}}
	return t.send(ctx, c).Code
}

// awaitAvailable waits until the server that does not receive the traffic shows an APIService as available.
func (s *Stage) awaitAvailable(ctx context.Context, name string) error {
	bounded, cancel := context.WithTimeout(ctx, openWithin)
	defer cancel()
	for {
		var a apiregistrationv1.APIService
		body, err := s.client.REST().Get().AbsPath("/apis/apiregistration.k8s.io/v1/apiservices/"+name).
			SetHeader("Accept", jsonType).Do(bounded).Raw()
		if err == nil {
			err = json.Unmarshal(body, &a)
		}
		if err != nil {
			return fmt.Errorf("read apiservice %s: %w", name, err)
		}
		for _, c := range a.Status.Conditions {
			if c.Type == apiregistrationv1.Available && c.Status == apiregistrationv1.ConditionTrue {
				return nil
			}
		}
		if !run.Pause(bounded, askInterval) {
			return fmt.Errorf("apiservice %s did not become available within %s", name, openWithin)
		}
	}
}

// clientOf returns the certificate with which a server of the target sends requests to the subject.
func (s *Stage) clientOf(ctx context.Context, server *rest.Config) (string, error) {
	agent := fmt.Sprintf("%s %s", s.drill.userAgent(), server.Host)
	client, base, err := s.target.connect(server, agent)
	if err != nil {
		return "", err
	}
	defer client.CloseIdleConnections()
	t := &traffic{client: client, base: base, record: &recorder{}}
	r := t.send(ctx, s.subject.read("list", s.subject.collection(s.Namespace)))
	found := s.subject.ClientOf(agent)
	if !r.OK() || found == "" {
		return "", fmt.Errorf("%s does not reach the extension server with a client certificate: %s", server.Host, r.describe())
	}
	return found, nil
}

// servedAgainIn checks that requests of the verbs that start at least limit after the fault succeed, and that no
// watch stalls.
func servedAgainIn(limit time.Duration, verbs ...string) Expectation {
	return Expectation{
		Text: fmt.Sprintf("from %s after the cut on, none of its requests fails, and no watch of before stands still", limit),
		check: func(h *History) error {
			var late []Request
			for _, r := range h.duringFault(h.requestsTo(Subject, verbs...)) {
				if r.Start.Sub(h.Broken) >= limit {
					late = append(late, r)
				}
			}
			if len(late) == 0 {
				return errors.New("no request was made")
			}
			for _, r := range h.requestsTo(Subject, "watch") {
				if lasted := r.Start.Add(r.Took).Sub(h.Broken); r.Start.Before(h.Broken) && lasted > limit {
					return fmt.Errorf("a watch was open for %s after the cut", lasted.Round(100*time.Millisecond))
				}
			}
			return noneFails(h, late)
		},
	}
}
