package apiservice

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	corelisters "k8s.io/client-go/listers/core/v1"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"
	"k8s.io/client-go/tools/cache"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico.dev/internal/transport"
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

const (
	// hungAfter is how long a backend may say nothing at all, to requests and to probes, while its connections are alive.
	// It must be longer than a slow answer: one that comes after three seconds is late, and an outage would be worse.
	hungAfter = 3500 * time.Millisecond
	// deadAfter is the same where pings are not answered either, or new connections not served: no load of an application
	// explains that.
	deadAfter = 2500 * time.Millisecond
	// leastWait is how long a probe must have waited, so that it had its chance.
	leastWait = 1500 * time.Millisecond
	// lookEvery is how often a probe that waits looks at the silence.
	lookEvery = 250 * time.Millisecond
	// slowness is how many times its usual time a backend may be silent.
	slowness = 2
)

// suspicion watches the silence of a backend that was well, while a probe waits for it. Two probes that time out would
// say the same after twelve seconds. Nobody else's requests are waiting for that verdict, but all of the backend's are.
type suspicion struct {
	silence func() transport.Silence
	// usual is how long the backend took for probes lately.
	usual time.Duration
	began time.Time
	last  time.Time
	// ran is how much of the time since began this process is known to have run: what was not looked at does not count,
	// or an overloaded machine would find every backend silent.
	ran time.Duration
}

func newSuspicion(silence func() transport.Silence, usual time.Duration) *suspicion {
	now := time.Now()
	return &suspicion{silence: silence, usual: usual, began: now, last: now}
}

// look returns a failure when the silence has been too long, else nil.
func (s *suspicion) look(now time.Time) *failure {
	s.ran += min(now.Sub(s.last), 2*lookEvery)
	s.last = now
	heard := s.silence()
	if heard.Since.IsZero() || s.ran < leastWait {
		return nil
	}
	limit, cause := hungAfter, "requests are taken and none is answered"
	if heard.Broken {
		limit, cause = deadAfter, "connections are taken and nothing comes from them"
	}
	lost := now.Sub(s.began) - s.ran
	if now.Sub(heard.Since)-lost < max(limit, slowness*s.usual) {
		return nil
	}
	return &failure{cause: cause, silent: true, unreachable: true}
}

// maxDescription bounds what a backend can put into a status by choosing its words (GOAWAY debug data, certificate
// names).
const maxDescription = 512

// describe says what went wrong so that the same fault always gives the same words. The incumbent prints the error as
// it comes: with the address of whichever endpoint was last, an ephemeral port, a stream number or the time of day in
// it, each message differs from the one before, is written to the status, and wakes every watcher of APIServices.
// It names no endpoint either: the status of an APIService is readable by more people than pods are.
func describe(err error) string {
	return plain(scrub(words(err)))
}

// plain makes one line of bounded length of a text that a backend may have had a hand in.
func plain(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
	if len(text) > maxDescription {
		text = strings.ToValidUTF8(text[:maxDescription], "") + "..."
	}
	return text
}

func words(err error) string {
	var (
		ours      *transport.Error
		forbidden *transport.ForbiddenAddressError
		op        *net.OpError
		dns       *net.DNSError
		invalid   x509.CertificateInvalidError
	)
	switch {
	case errors.As(err, &forbidden):
		return "the Service leads to an address that must not be dialled: " + forbidden.Why
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired && invalid.Cert != nil:
		// The standard text holds the current time, to the second.
		return fmt.Sprintf("x509: certificate has expired or is not yet valid: it is valid from %s to %s",
			invalid.Cert.NotBefore.UTC().Format(time.RFC3339), invalid.Cert.NotAfter.UTC().Format(time.RFC3339))
	case errors.As(err, &dns):
		if dns.IsNotFound {
			return "lookup " + dns.Name + ": no such host"
		}
		return "lookup " + dns.Name + ": " + dns.Err
	case errors.As(err, &op) && op.Err != nil:
		return strings.TrimSpace(op.Op+" "+op.Net) + ": " + words(op.Err)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return "context deadline exceeded"
	case errors.As(err, &ours) && ours.Err != nil:
		return words(ours.Err)
	}
	// Transport names the step that failed, and crypto/tls names itself.
	return strings.Replace(err.Error(), "tls: tls: ", "tls: ", 1)
}

// What may still change from one occurrence to the next, in the texts of errors that have no type to ask.
var (
	address4 = regexp.MustCompile(`\b\d{1,3}(\.\d{1,3}){3}(:\d+)?(->\d{1,3}(\.\d{1,3}){3}(:\d+)?)?`)
	address6 = regexp.MustCompile(`\[[0-9a-fA-F:.]*:[0-9a-fA-F:.]*(%\w+)?\](:\d+)?(->\[[0-9a-fA-F:.%\w]*\](:\d+)?)?`)
	streamID = regexp.MustCompile(`(LastStreamID=|stream ID |stream )\d+`)
)

func scrub(text string) string {
	text = address4.ReplaceAllString(text, "<endpoint>")
	text = address6.ReplaceAllString(text, "<endpoint>")
	return streamID.ReplaceAllString(text, "${1}<n>")
}

// failureOf sorts an error of the probe lane.
func failureOf(err error) *failure {
	f := &failure{cause: describe(err)}
	var forbidden *transport.ForbiddenAddressError
	f.forbidden = errors.As(err, &forbidden)
	var timeout net.Error
	f.slow = errors.Is(err, context.DeadlineExceeded) || (errors.As(err, &timeout) && timeout.Timeout())
	var ours *transport.Error
	if errors.As(err, &ours) {
		f.unreachable = ours.Op != transport.OpRoundTrip
		// A connection that breaks under a request may be one that the backend was closing anyway.
		f.slow = f.slow || ours.Sent
	}
	return f
}

// failureOfStatus sorts an answer that is not 2xx. Overload and a server that is still starting pass; a 404 or a
// redirect does not.
func failureOfStatus(code int) *failure {
	return &failure{status: code, slow: code >= http.StatusInternalServerError || code == http.StatusTooManyRequests}
}

// message is the failure in the incumbent's form. The URL names the Service, not the endpoint.
func (f *failure) message(url string) string {
	switch {
	case f.status != 0:
		return fmt.Sprintf("failing or missing response from %s: bad status from %s: %d", url, url, f.status)
	default:
		return fmt.Sprintf("failing or missing response from %s: %s", url, f.cause)
	}
}

// The parts of a verdict, for whoever comes to one of its own by another way and should say it in the same words.

// Resolve follows spec.service of a remote APIService over objects that somebody else read: its Service, nil when there
// is none, and that Service's EndpointSlices. The condition is nil when there is something to ask; the Spec is nil when
// the Service is missing.
func Resolve(spec *apiregistrationv1.APIServiceSpec, service *corev1.Service, slices []*discoveryv1.EndpointSlice, endpointRouting bool) (*transport.Spec, *apiregistrationv1.APIServiceCondition) {
	services := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	found := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	if service != nil {
		_ = services.Add(service) // the key function has a key for every object with a name
	}
	for _, s := range slices {
		_ = found.Add(s)
	}
	r := resolver{
		services: corelisters.NewServiceLister(services), slices: discoverylisters.NewEndpointSliceLister(found),
		endpointRouting: endpointRouting,
	}
	out := r.resolve(spec)
	if out.problem == nil {
		return out.spec, nil
	}
	c := condition(out.problem.status, out.problem.reason, out.problem.message)
	return out.spec, &c
}

// BundleFault is the message about a spec.caBundle that does not parse.
func BundleFault(err error) string { return bundleMessage(err) }

// ProbeURL is what a backend is asked for a group-version, as messages name it.
func ProbeURL(ref *apiregistrationv1.ServiceReference, gv schema.GroupVersion) string {
	return "https://" + hostPort(serverName(ref), portOf(ref)) + discoveryPath(gv)
}

// DiscoveryPath is what every server must answer for a group-version it serves.
func DiscoveryPath(gv schema.GroupVersion) string { return discoveryPath(gv) }

// NoAnswer is the message about a probe of url that got no answer because of err.
func NoAnswer(url string, err error) string { return failureOf(err).message(url) }

// BadAnswer is the message about a probe of url that got an answer which does not pass.
func BadAnswer(url string, code int) string { return failureOfStatus(code).message(url) }

// Plain makes one line of bounded length, without control characters, of a text that a backend may have had a hand in.
func Plain(text string) string { return plain(text) }
