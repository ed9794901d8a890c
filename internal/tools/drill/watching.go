package drill

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico.dev/internal/gateway/adoption"
	"portico.dev/internal/routes/v1alpha1"
	"portico.dev/internal/run"
)

const (
	// watchRetryInterval is the pause of a client after a watch that ended.
	watchRetryInterval = 500 * time.Millisecond
	// observeInterval is the polling interval of the condition. It bounds the precision of the time to detect.
	observeInterval = 100 * time.Millisecond
	// maxEvent bounds one event of a watch.
	maxEvent = 1 << 20
)

// watch keeps a watch open and records each one that ends. The last one ends with ctx.
func (s *Stage) watch(ctx context.Context, p component) {
	for ctx.Err() == nil {
		r := Request{Who: p.who, Verb: "watch", Start: time.Now()}
		s.follow(ctx, p, p.collection(s.Namespace)+"?watch=true&resourceVersion=0", &r)
		r.Took = time.Since(r.Start)
		if ctx.Err() != nil {
			// The watch lasted until the end of the drill.
			r.Failure = ""
			if r.Code == 0 {
				return
			}
		}
		s.record.add(r)
		run.Pause(ctx, watchRetryInterval)
	}
}

func (s *Stage) follow(ctx context.Context, p component, path string, r *Request) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.traffic.base+path, nil)
	if err != nil {
		r.Failure = err.Error()
		return
	}
	req.Header.Set("Accept", jsonType)
	if p.throughHeader {
		req.Header.Set(backendHeader, OtherBackend)
	}
	resp, err := s.traffic.client.Do(req)
	if err != nil {
		r.Failure = err.Error()
		return
	}
	defer resp.Body.Close()
	r.Code = resp.StatusCode
	if resp.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(resp.Body, maxEvent))
		r.Reason, r.Message = refusal(body)
		return
	}
	events := bufio.NewScanner(resp.Body)
	events.Buffer(nil, maxEvent)
	n := 0
	for events.Scan() {
		if !json.Valid(events.Bytes()) {
			r.Failure = "broken off within an event"
			return
		}
		n++
	}
	r.Saw = fmt.Sprintf("%d events", n)
	if err := events.Err(); err != nil {
		r.Failure = "broken off: " + err.Error()
	}
}

// observe records every change of the subject's Available condition.
func (s *Stage) observe(ctx context.Context) {
	var last Observation
	for {
		now, err := s.setting.available(ctx)
		if err == nil && (now.Status != last.Status || now.Reason != last.Reason || now.Message != last.Message) {
			last = now
			s.record.observed(now)
		}
		if !run.Pause(ctx, observeInterval) {
			return
		}
	}
}

var errNoCondition = errors.New("no Available condition yet")

// available implements setting.
func (s extensionServers) available(ctx context.Context) (Observation, error) {
	return s.availableOf(ctx, s.subject.apiService)
}

func (s *Stage) availableOf(ctx context.Context, name string) (Observation, error) {
	ctx, cancel := context.WithTimeout(ctx, clientPatience)
	defer cancel()
	asked := time.Now()
	if s.target.APIRoute && name == s.subject.apiService {
		return s.backendAvailable(ctx, asked)
	}
	var a apiregistrationv1.APIService
	if err := s.get(ctx, "/apis/apiregistration.k8s.io/v1/apiservices/"+name, &a); err != nil {
		return Observation{}, err
	}
	want := apiregistrationv1.Available
	if s.target.Gateway != nil {
		want = adoption.BackendAvailable // Available is the condition of the gateway
	}
	for _, c := range a.Status.Conditions {
		if c.Type == want {
			return Observation{At: asked, Status: string(c.Status), Reason: c.Reason, Message: c.Message}, nil
		}
	}
	return Observation{}, errNoCondition
}

// backendAvailable returns the condition of the subject as a backend of its APIRoute. The APIService is available as
// long as one backend is available.
func (s *Stage) backendAvailable(ctx context.Context, asked time.Time) (Observation, error) {
	var route v1alpha1.APIRoute
	if err := s.get(ctx, apiRoutes+"/"+s.subject.apiService, &route); err != nil {
		return Observation{}, err
	}
	for _, b := range route.Status.Backends {
		if c := meta.FindStatusCondition(b.Conditions, v1alpha1.ConditionAvailable); b.Name == Subject && c != nil {
			return Observation{At: asked, Status: string(c.Status), Reason: c.Reason, Message: c.Message}, nil
		}
	}
	return Observation{}, errNoCondition
}
