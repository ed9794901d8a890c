package apiservice

import (
	"context"
	"hash/maphash"
	"io"
	"net/http"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	// probeTimeout is the incumbent's; backends are written to answer within it.
	probeTimeout = 5 * time.Second
	// hedgeDelay is how long an attempt may be silent before another endpoint is asked as well.
	hedgeDelay = time.Second
	// maxAttempts is how many the incumbent makes, always and at once; ours are made only while none has passed.
	maxAttempts = 5
	// maxProbes bounds the attempts under way at one time, all backends together.
	maxProbes = 256
	// maxDrain and drainTimeout bound what is read of an answer so that its connection can be used again.
	maxDrain     = 1 << 20
	drainTimeout = 250 * time.Millisecond
)

// prober asks backends whether they serve a group-version, as the incumbent does: GET of its discovery document, as a
// user who may read it anywhere. An answer of 200 to 299 passes, whatever it says.
type prober struct {
	slots chan struct{}
	seed  maphash.Seed
}

func newProber() *prober {
	return &prober{slots: make(chan struct{}, maxProbes), seed: maphash.MakeSeed()}
}

// target is one thing to ask.
type target struct {
	lane http.RoundTripper
	// url is https, the Service's DNS name, and the path; the lane picks the endpoint.
	url string
	// endpoints is how many the lane has to pick from.
	endpoints int
	// suspicion ends the wait for a backend that is silent to everybody. Nil: it is waited for to the end.
	suspicion *suspicion
}

// discoveryPath is what every server must answer for a group-version it serves.
func discoveryPath(gv schema.GroupVersion) string {
	if gv.Group == "" {
		return "/api/" + gv.Version
	}
	return "/apis/" + gv.Group + "/" + gv.Version
}

// ask makes attempts until one passes or all have failed: the next one when the last has failed, or has been silent for
// a while. One endpoint that serves is enough, however many do not.
func (p *prober) ask(ctx context.Context, t target) outcome {
	start := time.Now()
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	// A second attempt is worth it with one endpoint too: the first may have met a connection that was going away.
	attempts := min(max(t.endpoints, 2), maxAttempts)
	results := make(chan outcome, attempts)
	launched, heard := 0, 0
	launch := func() {
		launched++
		wg.Go(func() { results <- p.attempt(ctx, t) })
	}
	hedge := time.NewTimer(hedgeDelay)
	defer hedge.Stop()
	var looks <-chan time.Time
	if t.suspicion != nil {
		ticker := time.NewTicker(lookEvery)
		defer ticker.Stop()
		looks = ticker.C
	}
	launch()
	var worst *failure
	for {
		select {
		case o := <-results:
			heard++
			if o.failure == nil {
				o.at, o.took = time.Now(), time.Since(start)
				return o
			}
			worst = worst.merge(o.failure)
			// An answer is an answer: the only endpoint would give it again.
			final := o.failure.status != 0 && t.endpoints <= 1
			switch {
			case launched < attempts && !final:
				launch()
			case heard == launched:
				return outcome{at: time.Now(), took: time.Since(start), failure: worst}
			}
		case <-hedge.C:
			if launched < attempts {
				launch()
				hedge.Reset(hedgeDelay)
			}
		case <-looks:
			if f := t.suspicion.look(time.Now()); f != nil {
				return outcome{at: time.Now(), took: time.Since(start), failure: f}
			}
		}
	}
}

// attempt is one request. It ends with its context, which the lane honours.
func (p *prober) attempt(ctx context.Context, t target) outcome {
	select {
	case p.slots <- struct{}{}:
		defer func() { <-p.slots }()
	case <-ctx.Done():
		return outcome{failure: failureOf(ctx.Err())}
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, t.url, nil)
	if err != nil {
		return outcome{failure: failureOf(err)}
	}
	// The lane sets the Host that fits the endpoint it picks.
	req.Host = ""
	req.Header.Set("X-Remote-User", "system:kube-aggregator")
	req.Header.Set("X-Remote-Group", "system:masters")
	// RoundTrip follows no redirect: a 3xx is an answer, and not one that passes (CVE-2022-3172).
	resp, err := t.lane.RoundTrip(req)
	if err != nil {
		return outcome{failure: failureOf(err)}
	}
	said := p.drain(resp.Body, cancel)
	var o outcome
	if resp.TLS != nil && len(resp.TLS.PeerCertificates) > 0 {
		o.certificateExpires = resp.TLS.PeerCertificates[0].NotAfter
	}
	if resp.StatusCode < http.StatusOK || resp.StatusCode >= http.StatusMultipleChoices {
		o.failure = failureOfStatus(resp.StatusCode)
	} else {
		o.said = said
	}
	return o
}

// drain reads what there is of an answer, not for long, and returns its hash, 0 for one that was not read to its end.
func (p *prober) drain(body io.ReadCloser, cancel func()) uint64 {
	stop := time.AfterFunc(drainTimeout, cancel)
	defer stop.Stop()
	defer func() { _ = body.Close() }() // nothing was written
	var h maphash.Hash
	h.SetSeed(p.seed)
	if n, err := io.Copy(&h, io.LimitReader(body, maxDrain)); err != nil || n == maxDrain {
		return 0
	}
	return max(h.Sum64(), 1)
}

// merge folds the failures of several attempts into one that does not depend on their order. The backend is as good as
// its best endpoint: slow if one is slow, unreachable or forbidden only if all are.
func (f *failure) merge(other *failure) *failure {
	if f == nil {
		return other
	}
	kept, dropped := f, other
	if other.slow != f.slow {
		if other.slow {
			kept, dropped = other, f
		}
	} else if other.message("") < f.message("") {
		kept, dropped = other, f
	}
	merged := *kept
	merged.unreachable = kept.unreachable && dropped.unreachable
	merged.forbidden = kept.forbidden && dropped.forbidden
	return &merged
}
