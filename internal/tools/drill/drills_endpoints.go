package drill

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"portico.dev/internal/gateway/adoption"
	"portico.dev/internal/run"
	"portico.dev/internal/tools/drill/faulty"
)

// endpointDrills returns the drills about an extension server with several endpoints, of which one is unhealthy, or
// which are replaced one after the other.
func endpointDrills() []Drill {
	sick := func(name, title string, f faulty.Fault, length time.Duration, more ...Expectation) Drill {
		return Drill{
			Name: "one-endpoint-of-three-" + name, Title: title, About: length + 8*time.Second, Limit: 90 * time.Second,
			Stores: true, Endpoints: 3,
			script: oneEndpoint(f, length),
			Expect: append([]Expectation{
				subjectUnaffected("get", "list"), staysAvailable(), recoversWithin(5 * time.Second),
				within(30*time.Second, usedAgain, "the endpoint gets requests again"),
			}, more...),
		}
	}
	return []Drill{
		sick("hangs", "one of three endpoints accepts requests and answers none", faulty.Hang, 10*time.Second, fewSlow(1, "get", "list")),
		sick("slow", "one of three endpoints takes two seconds for every response", faulty.Slow, 10*time.Second, fewSlow(1, "get", "list")),
		sick("errors", "one of three endpoints answers requests for objects with 500", faulty.Errors, 8*time.Second),
		sick("other-discovery", "one of three endpoints comes back from a restart as another version of the program", faulty.OtherDiscovery, 8*time.Second,
			discoveryShows("discovery lists its resources all the time", listed)),
		sick("expired-certificate", "the serving certificate of one of three endpoints has expired", faulty.ExpiredCertificate, 8*time.Second),
		{
			Name: "disruption-seconds", Title: "the three endpoints are replaced one after the other, as in a rolling update",
			About: 15 * time.Second, Limit: 90 * time.Second, Stores: true, Endpoints: 3,
			script: rollingRestart,
			Expect: []Expectation{
				noDisruption("get"), noDisruption("list"), noDisruption("create"), noDisruption("watch"), staysAvailable(),
				recoversWithin(5 * time.Second),
			},
		},
	}
}

// usedAgain is the measure of the return of an unhealthy endpoint.
const usedAgain = "endpoint used again"

// oneEndpoint returns a script in which the first endpoint has a fault.
func oneEndpoint(f faulty.Fault, length time.Duration) func(context.Context, *Stage) error {
	return func(ctx context.Context, s *Stage) error {
		if err := s.breakWith(ctx, f); err != nil {
			return err
		}
		if err := s.wait(ctx, length); err != nil {
			return err
		}
		if err := s.endFault(); err != nil {
			return err
		}
		before := s.subject.Served()
		err := s.measure(ctx, usedAgain, recoverLimit, func(context.Context) bool { return s.subject.Served() >= before+3 })
		if err != nil {
			return err
		}
		return s.recovery(ctx)
	}
}

// slowLimit is the duration above which a response counts as slow.
const slowLimit = 1500 * time.Millisecond

// fewSlow checks that each client has at most the given number of slow responses. A client here sends the requests of
// one verb, several at a time. Requests that were in flight together count once.
func fewSlow(most int, verbs ...string) Expectation {
	return Expectation{Text: fmt.Sprintf("of each of its clients at most %d request takes more than %s (those under way together count once)", most, slowLimit), check: func(h *History) error {
		for _, verb := range verbs {
			n, until := 0, time.Time{}
			requests := slices.Clone(h.requestsTo(Subject, verb))
			slices.SortFunc(requests, func(a, b Request) int { return a.Start.Compare(b.Start) })
			for _, r := range requests {
				if r.Took <= slowLimit || h.excused(r) {
					continue
				}
				if r.Start.After(until) {
					n++
					until = r.Start.Add(r.Took)
				}
			}
			if n > most {
				return fmt.Errorf("%d of %s", n, verb)
			}
		}
		return nil
	}}
}

// rollingRestart replaces the endpoints like a Deployment: an endpoint leaves its EndpointSlice, drains, exits,
// starts and returns.
func rollingRestart(ctx context.Context, s *Stage) error {
	if err := s.wait(ctx, baseline); err != nil {
		return err
	}
	s.record.mark(func(t *Times) { t.Broke = time.Now() })
	s.progress("the update begins")
	s.record.mark(func(t *Times) { t.Broken = time.Now() })
	for i, server := range s.subject.servers() {
		if err := s.setReady(ctx, i, false); err != nil {
			return err
		}
		if err := s.wait(ctx, time.Second); err != nil { // like a preStop hook
			return err
		}
		if err := server.SetFault(faulty.Refuse); err != nil {
			return err
		}
		if err := s.wait(ctx, time.Second); err != nil {
			return err
		}
		if err := server.SetFault(faulty.Healthy); err != nil {
			return err
		}
		if err := s.setReady(ctx, i, true); err != nil {
			return err
		}
		if err := s.wait(ctx, time.Second); err != nil {
			return err
		}
	}
	s.record.mark(func(t *Times) { t.Mended = time.Now() })
	s.progress("the update is over")
	return s.recovery(ctx)
}

// setReady updates the conditions of an endpoint in its EndpointSlice.
func (s *Stage) setReady(ctx context.Context, endpoint int, ready bool) error {
	a := s.subject
	slices := s.client.EndpointSlices(a.home)
	found, err := slices.Get(ctx, sliceName(a, endpoint), metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read endpoint slice %s/%s: %w", a.home, sliceName(a, endpoint), err)
	}
	for i := range found.Endpoints {
		found.Endpoints[i].Conditions = discoveryv1.EndpointConditions{Ready: ptr.To(ready), Serving: ptr.To(true), Terminating: ptr.To(!ready)}
	}
	if _, err := slices.Update(ctx, found, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("update endpoint slice %s/%s: %w", a.home, sliceName(a, endpoint), err)
	}
	return nil
}

// noDisruption counts like OpenShift's CI: a second in which a request failed is a second of disruption. A watch is
// disrupted while it cannot be restarted.
func noDisruption(verb string) Expectation {
	return Expectation{Text: "0 s of disruption for " + verb, check: func(h *History) error {
		seconds := map[int64]string{}
		requests := h.requestsTo(Subject, verb)
		if len(requests) == 0 {
			return errors.New("no request was made")
		}
		for _, r := range requests {
			failed := !r.OK()
			if verb == "watch" {
				failed = r.Code != 200 // a watch that ends is restarted
			}
			if failed && !h.excused(r) {
				seconds[r.Start.Unix()] = r.describe()
			}
		}
		for _, text := range seconds {
			return fmt.Errorf("%d s: %s", len(seconds), text)
		}
		return nil
	}}
}

// rotateCertificate replaces the certificate authority of the subject as an operator would: the new authority is
// trusted, then used, and then the old one is no longer trusted.
func rotateCertificate(ctx context.Context, s *Stage) error {
	if err := s.wait(ctx, baseline); err != nil {
		return err
	}
	if err := s.subject.RotateAuthority(); err != nil {
		return err
	}
	s.record.mark(func(t *Times) { t.Broke = time.Now() })
	s.progress("the rotation begins")
	s.record.mark(func(t *Times) { t.Broken = time.Now() })
	steps := []func() error{
		func() error { return s.publishBundle(ctx) },
		s.subject.ShowRotated,
		func() error { return s.publishBundle(ctx) },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
		if !run.Pause(ctx, 2*time.Second) {
			return context.Cause(ctx)
		}
	}
	s.record.mark(func(t *Times) { t.Mended = time.Now() })
	s.progress("the rotation is over")
	return s.recovery(ctx)
}

// publishBundle writes the subject's CA certificates to its APIService.
func (s *Stage) publishBundle(ctx context.Context) error {
	bundle := base64.StdEncoding.EncodeToString(s.subject.CABundle())
	body := fmt.Sprintf(`{"spec":{"caBundle":%q}}`, bundle)
	if s.target.Gateway != nil {
		body = fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, adoption.OriginalCABundleAnnotation, bundle)
	}
	err := s.client.REST().Patch(types.MergePatchType).AbsPath("/apis/apiregistration.k8s.io/v1/apiservices/" + s.subject.apiService).
		Body([]byte(body)).Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("patch apiservice %s: %w", s.subject.apiService, err)
	}
	return nil
}
