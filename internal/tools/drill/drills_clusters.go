package drill

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"portico.dev/internal/fleet/v1alpha1"
	"portico.dev/internal/run"
	"portico.dev/internal/tools/drill/faulty"
)

const (
	// Measures of the drills of Clusters.
	reportedInStatus = "named in status.endpoints"
	shareAfter       = "share of the requests after a restart"
	informersCurrent = "informers current"

	// drainLength is how long an API server that stops fails /readyz before it closes its port: longer than the front door's
	// interval of probes. downLength is how long its port is closed, and startLength how long it refuses requests then.
	drainLength = 7 * time.Second
	downLength  = 2 * time.Second
	startLength = 2 * time.Second
)

// clusterDrills returns the drills about the API servers of a Cluster.
func clusterDrills() []Drill {
	return []Drill{
		{
			Name: "apiserver-dead", Title: "one of three API servers of a cluster dies: connections are refused, and those that were there are reset",
			About: 15 * time.Second, Limit: 2 * time.Minute, Cluster: true,
			script: onClusters(oneAPIServer(faulty.Refuse)),
			Expect: []Expectation{
				subjectUnaffected("get", "list"), documentsAnswer(), clusterStaysAvailable(),
				within(10*time.Second, reportedInStatus, "status.endpoints names it with the cause"),
				within(10*time.Second, usedAgain, "it gets requests again"), recoversWithin(5 * time.Second),
			},
		},
		{
			Name: "one-of-three-apiservers-hangs", Title: "one of three API servers of a cluster accepts connections and answers nothing",
			About: 20 * time.Second, Limit: 2 * time.Minute, Cluster: true,
			script: onClusters(oneAPIServer(faulty.Blackhole)),
			Expect: []Expectation{
				subjectUnaffected("get", "list"), fewSlow(1, "get", "list"), documentsAnswer(), clusterStaysAvailable(),
				within(10*time.Second, reportedInStatus, "status.endpoints names it with the cause"),
				within(10*time.Second, usedAgain, "it gets requests again"), recoversWithin(5 * time.Second),
			},
		},
		{
			Name: "apiserver-restart-under-watches", Title: "the three API servers of a cluster restart one after the other, while informers watch and clients write",
			About: 50 * time.Second, Limit: 3 * time.Minute, Cluster: true,
			script: onClusters((*clusters).restartAll),
			Expect: []Expectation{
				subjectUnaffected("get", "list", "create", "delete"), documentsAnswer(), clusterStaysAvailable(), informersListOnce(),
				within(10*time.Second, shareAfter, "each API server that has restarted gets its share of the requests"),
				within(5*time.Second, informersCurrent, "every informer has all objects, after the last write"), recoversWithin(5 * time.Second),
			},
		},
		{
			Name: "cluster-unreachable", Title: "no API server of a cluster answers",
			About: 25 * time.Second, Limit: 2 * time.Minute, Cluster: true,
			script: onClusters((*clusters).cutOff),
			Expect: []Expectation{
				detectedWithin(10 * time.Second), conditionHasReason(v1alpha1.ReasonNoReadyAPIServer),
				documentsAnswer(), documentsFromMemory(), refusedAfter(settledIn, time.Second), namesTheCluster(),
				recoversWithin(10 * time.Second),
			},
		},
	}
}

// onClusters returns the script of a drill of Clusters.
func onClusters(script func(*clusters, context.Context) error) func(context.Context, *Stage) error {
	return func(ctx context.Context, s *Stage) error { return script(s.setting.(*clusters), ctx) }
}

// oneAPIServer returns a script in which the first API server has a fault.
func oneAPIServer(f faulty.Fault) func(*clusters, context.Context) error {
	return func(s *clusters, ctx context.Context) error {
		if err := s.breakWith(ctx, f); err != nil {
			return err
		}
		if err := s.measure(ctx, reportedInStatus, recoverLimit, s.reports(s.subject.Server)); err != nil {
			return err
		}
		if err := s.wait(ctx, hold); err != nil {
			return err
		}
		if err := s.endFault(); err != nil {
			return err
		}
		first := s.relays[0]
		before := first.served.Load()
		if err := s.measure(ctx, usedAgain, recoverLimit, func(context.Context) bool { return first.served.Load() >= before+3 }); err != nil {
			return err
		}
		return s.recovery(ctx)
	}
}

// reports returns a function that checks that the status names an API server as not ready, with the cause.
func (s *clusters) reports(server *faulty.Server) func(context.Context) bool {
	return func(ctx context.Context) bool {
		var seen v1alpha1.Cluster
		if s.get(ctx, clustersPath+"/"+s.subject.cluster, &seen) != nil {
			return false
		}
		for _, e := range seen.Status.Endpoints {
			if e.Address == s.endpointOf(server) {
				return !e.Ready && e.Message != ""
			}
		}
		return false
	}
}

// restartAll restarts one API server after the other, as an update of a cluster does.
func (s *clusters) restartAll(ctx context.Context) error {
	var clients sync.WaitGroup
	defer clients.Wait()
	informing, stopInformers := context.WithCancel(ctx)
	defer stopInformers()
	writing, stopWriter := context.WithCancel(ctx)
	defer stopWriter()
	all := make([]*informer, informers)
	for i := range all {
		all[i] = &informer{stage: s.Stage, collection: s.subject.collection(s.Namespace)}
		clients.Go(func() { all[i].run(informing) })
	}
	written := make(chan struct{})
	clients.Go(func() {
		defer close(written)
		s.write(writing)
	})
	if err := s.wait(ctx, baseline); err != nil {
		return err
	}
	s.record.mark(func(t *Times) { t.Broke, t.Broken = time.Now(), time.Now() })
	if err := s.restartEach(ctx); err != nil {
		return err
	}
	s.record.mark(func(t *Times) { t.Mended = time.Now() })
	s.progress("the restarts are over")
	stopWriter()
	<-written
	err := s.measure(ctx, informersCurrent, recoverLimit, func(ctx context.Context) bool { return s.haveAll(ctx, all) })
	if err != nil {
		return err
	}
	return s.recovery(ctx)
}

// restartEach restarts one API server after the other, and measures how long the slowest took to get its share of the requests.
func (s *clusters) restartEach(ctx context.Context) error {
	slowest := Measure{Name: shareAfter}
	for i, r := range s.relays {
		s.progress(fmt.Sprintf("API server %d of %d restarts", i+1, len(s.relays)))
		steps := []struct {
			phase  int32
			fault  faulty.Fault
			length time.Duration
		}{{stopping, faulty.Healthy, drainLength}, {stopping, faulty.Refuse, downLength}, {starting, faulty.Healthy, startLength}}
		for _, step := range steps {
			r.phase.Store(step.phase)
			if err := r.server.SetFault(step.fault); err != nil {
				return err
			}
			if err := s.wait(ctx, step.length); err != nil {
				return err
			}
		}
		r.phase.Store(running)
		took, came, err := s.until(ctx, recoverLimit, s.hasShare(r))
		if err != nil {
			return err
		}
		slowest.Seconds, slowest.Never = max(slowest.Seconds, Seconds(took)), slowest.Never || !came
	}
	s.record.measured(slowest)
	return nil
}

// shareWindow is the time in which requests are counted.
const shareWindow = time.Second

// hasShare returns a function that checks that an API server got at least half of its share of the requests in the last second.
func (s *clusters) hasShare(r *relay) func(context.Context) bool {
	type count struct {
		at       time.Time
		own, all int64
	}
	var counts []count
	return func(context.Context) bool {
		now := count{at: time.Now(), own: r.served.Load()}
		for _, other := range s.relays {
			now.all += other.served.Load()
		}
		counts = append(counts, now)
		for len(counts) > 1 && now.at.Sub(counts[1].at) >= shareWindow {
			counts = counts[1:]
		}
		own, all := now.own-counts[0].own, now.all-counts[0].all
		return now.at.Sub(counts[0].at) >= shareWindow && own > 0 && own*2*int64(len(s.relays)) >= all
	}
}

// write creates objects for the informers until ctx ends.
func (s *clusters) write(ctx context.Context) {
	for n := 0; run.Pause(ctx, writeInterval); n++ {
		s.traffic.send(ctx, call{
			who: Informers, verb: "create", method: http.MethodPost, path: s.subject.collection(s.Namespace) + "?timeout=" + serverPatience,
			body: s.subject.object(fmt.Sprintf("%s%d", writtenPrefix, n)),
		})
	}
}

// haveAll reports whether all informers have the objects that a list has.
func (s *clusters) haveAll(ctx context.Context, all []*informer) bool {
	var objects map[string]string
	s.traffic.send(ctx, call{who: Subject, verb: "list", method: http.MethodGet, path: s.subject.collection(s.Namespace), saw: func(_ http.Header, body []byte) string {
		objects, _ = copyOf(body)
		return ""
	}})
	if len(objects) == 0 {
		return false
	}
	for _, i := range all {
		if !i.has(objects) {
			return false
		}
	}
	return true
}

// cutOff lets no API server answer.
func (s *clusters) cutOff(ctx context.Context) error {
	if err := s.wait(ctx, baseline); err != nil {
		return err
	}
	s.record.mark(func(t *Times) { t.Broke = time.Now() })
	s.progress("no API server answers")
	if err := s.setFaults(faulty.Blackhole); err != nil {
		return err
	}
	s.record.mark(func(t *Times) { t.Broken = time.Now() })
	if err := s.wait(ctx, 2*settledIn); err != nil {
		return err
	}
	if err := s.setFaults(faulty.Healthy); err != nil {
		return err
	}
	s.record.mark(func(t *Times) { t.Mended = time.Now() })
	s.progress("mended")
	return s.recovery(ctx)
}

// setFaults replaces the fault of all API servers.
func (s *clusters) setFaults(f faulty.Fault) error {
	for _, server := range s.subject.servers() {
		if err := server.SetFault(f); err != nil {
			return fmt.Errorf("bring the fault about: %w", err)
		}
	}
	return nil
}

func clusterStaysAvailable() Expectation {
	e := staysAvailable()
	e.Text = "the Cluster stays available"
	return e
}

func namesTheCluster() Expectation {
	e := namesTheFailed()
	e.Text = "every 502, 503 and 504 is a Status that names the Cluster"
	return e
}

// conditionHasReason checks the reason of the condition that shows the fault.
func conditionHasReason(reason string) Expectation {
	return Expectation{Text: "the reason of the condition is " + reason, check: func(h *History) error {
		for _, o := range h.Observations {
			if at, came := h.Detected(); came && o.At.Equal(at) {
				if o.Reason != reason {
					return fmt.Errorf("%s: %s", o.Reason, o.Message)
				}
				return nil
			}
		}
		return errors.New("it never turned")
	}}
}

// documentsLimit bounds the duration of requests for documents: an API server gets 2 s before the document comes from memory.
const documentsLimit = 3 * time.Second

// documentsAnswer checks that discovery and OpenAPI of the Cluster always answer.
func documentsAnswer() Expectation {
	return Expectation{Text: fmt.Sprintf("discovery and OpenAPI of the Cluster always answer, within %s", documentsLimit), check: func(h *History) error {
		requests := h.requestsTo(Documents)
		if len(requests) == 0 {
			return errors.New("no request was made")
		}
		for _, r := range requests {
			if r.Took > documentsLimit && !h.excused(r) {
				return &limitError{
					measure: "answer of a document", took: r.Took, limit: documentsLimit,
					text: fmt.Sprintf("one answer took %s", r.Took.Round(time.Millisecond)),
				}
			}
		}
		return noneFails(h, requests)
	}}.saying(slowest(func(h *History) []Request { return h.requestsTo(Documents) }))
}

// documentsFromMemory checks the Warning of documents that no API server can have sent.
func documentsFromMemory() Expectation {
	return Expectation{Text: "while no API server answers, the documents have a Warning that they come from memory", check: func(h *History) error {
		requests := h.duringFault(h.requestsTo(Documents))
		if len(requests) == 0 {
			return errors.New("no request was made")
		}
		for _, r := range requests {
			if r.OK() && r.Saw != fromMemory {
				return fmt.Errorf("%s after the fault one came %s", r.Start.Sub(h.Broken).Round(time.Millisecond), r.Saw)
			}
		}
		return nil
	}}
}

// refusedAfter checks that requests that start at least wait after the fault get a 503 within limit.
func refusedAfter(wait, limit time.Duration) Expectation {
	late := func(h *History) (requests []Request) {
		for _, r := range h.duringFault(h.requestsTo(Subject, "get", "list", "create", "delete")) {
			if r.Start.Sub(h.Broken) >= wait {
				requests = append(requests, r)
			}
		}
		return requests
	}
	return Expectation{Text: fmt.Sprintf("from %s after the fault on, other requests get 503 within %s", wait, limit), check: func(h *History) error {
		requests := late(h)
		if len(requests) == 0 {
			return errors.New("no request was made")
		}
		for _, r := range requests {
			if (r.Code != http.StatusServiceUnavailable || r.Took > limit) && !h.excused(r) {
				return fmt.Errorf("a %s after %s: %s", r.Verb, r.Took.Round(time.Millisecond), r.describe())
			}
		}
		return nil
	}}.saying(slowest(late))
}

// informersListOnce checks that informers resume their watches.
func informersListOnce() Expectation {
	return Expectation{Text: "informers resume their watches, and list only once", check: func(h *History) error {
		lists := h.requestsTo(Informers, "list")
		if len(lists) != informers {
			return fmt.Errorf("%d informers listed %d times", informers, len(lists))
		}
		return noneFails(h, lists)
	}}.saying(func(h *History) string {
		return fmt.Sprintf("%d informers, %d watches ended, %d objects were created", informers, len(h.requestsTo(Informers, "watch")), len(h.requestsTo(Informers, "create")))
	})
}
