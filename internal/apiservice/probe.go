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

	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico.dev/internal/transport"
)

const (
	// probeTimeout is kube-aggregator's; backends are written to answer within it.
	probeTimeout = 5 * time.Second
	// ProbeTimeout is how long a probe waits for the discovery document of a backend.
	ProbeTimeout = probeTimeout
	// HungTimeout is how long a backend that was available may leave all requests unanswered.
	HungTimeout = hungTimeout
	// hedgeDelay is how long an attempt may take before another endpoint is probed as well.
	hedgeDelay = time.Second
	// maxAttempts is the number that kube-aggregator makes, always and in parallel. Ours follow one another until one
	// succeeds.
	maxAttempts = 5
	// maxProbes bounds the concurrent attempts of all backends.
	maxProbes = 256
	// maxProbeBody and drainTimeout bound what is read of a response so that its connection can be reused.
	maxProbeBody = 1 << 20
	drainTimeout = 250 * time.Millisecond
)

// prober probes group-versions as kube-aggregator does: GET of the discovery document as a user who may read it anywhere.
// A response of 200 to 299 succeeds, whatever its body.
type prober struct {
	slots chan struct{}
	seed  maphash.Seed
}

func newProber() *prober {
	return &prober{slots: make(chan struct{}, maxProbes), seed: maphash.MakeSeed()}
}

// probeTarget is one group-version to probe.
type probeTarget struct {
	transport http.RoundTripper
	// url is https, the Service's DNS name, and the path; the transport picks the endpoint.
	url string
	// endpoints is how many endpoints the transport picks from.
	endpoints int
	// hang ends the wait early for a backend that answers nobody. Nil: the probe waits until its timeout.
	hang *hangDetector
}

// DiscoveryPath is the path that every server must answer for a group-version it serves.
func DiscoveryPath(gv schema.GroupVersion) string {
	if gv.Group == "" {
		return "/api/" + gv.Version
	}
	return "/apis/" + gv.Group + "/" + gv.Version
}

// probe makes attempts until one succeeds or all have failed: the next one when the last has failed, or has taken
// hedgeDelay. One endpoint that serves is enough.
func (p *prober) probe(ctx context.Context, t probeTarget) outcome {
	start := time.Now()
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	// Two attempts with one endpoint too: the first may have met a connection that was being closed.
	attempts := min(max(t.endpoints, 2), maxAttempts)
	results := make(chan outcome, attempts)
	launched, finished := 0, 0
	launch := func() {
		launched++
		wg.Go(func() { results <- p.attempt(ctx, t) })
	}
	hedge := time.NewTimer(hedgeDelay)
	defer hedge.Stop()
	var looks <-chan time.Time
	if t.hang != nil {
		ticker := time.NewTicker(hangCheckInterval)
		defer ticker.Stop()
		looks = ticker.C
	}
	launch()
	var worst *failure
	for {
		select {
		case o := <-results:
			finished++
			if o.failure == nil {
				o.at, o.duration = time.Now(), time.Since(start)
				return o
			}
			worst = worst.merge(o.failure)
			// The only endpoint would give the same response again.
			final := o.failure.status != 0 && t.endpoints <= 1
			switch {
			case launched < attempts && !final:
				launch()
			case finished == launched:
				return outcome{at: time.Now(), duration: time.Since(start), failure: worst}
			}
		case <-hedge.C:
			if launched < attempts {
				launch()
				hedge.Reset(hedgeDelay)
			}
		case <-looks:
			if f := t.hang.check(time.Now()); f != nil {
				return outcome{at: time.Now(), duration: time.Since(start), failure: f}
			}
		}
	}
}

// attempt is one request. It ends with its context.
func (p *prober) attempt(ctx context.Context, t probeTarget) outcome {
	select {
	case p.slots <- struct{}{}:
		defer func() { <-p.slots }()
	case <-ctx.Done():
		return outcome{failure: failureFromError(ctx.Err())}
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	req, err := newProbe(ctx, t.url)
	if err != nil {
		return outcome{failure: failureFromError(err)}
	}
	// RoundTrip follows no redirect: a 3xx response fails the probe (CVE-2022-3172).
	resp, err := t.transport.RoundTrip(req)
	if err != nil {
		return outcome{failure: failureFromError(err)}
	}
	digest := p.hashBody(resp.Body, cancel)
	var o outcome
	if resp.TLS != nil && len(resp.TLS.PeerCertificates) > 0 {
		o.certificateExpires = resp.TLS.PeerCertificates[0].NotAfter
	}
	if resp.StatusCode < http.StatusOK || resp.StatusCode >= http.StatusMultipleChoices {
		o.failure = failureFromStatus(resp.StatusCode)
	} else {
		o.digest = digest
	}
	return o
}

// newProbe is the request of a probe.
func newProbe(ctx context.Context, url string) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	// The transport sets the Host that fits the endpoint it picks.
	r.Host = ""
	r.Header.Set("X-Remote-User", "system:kube-aggregator")
	r.Header.Set("X-Remote-Group", "system:masters")
	return r, nil
}

// probeBuffers are what responses to probes are read into: those of io.Copy have 32 KiB, and most responses less than one.
var probeBuffers = sync.Pool{New: func() any { return new([4 << 10]byte) }}

// hashBody reads a response, for drainTimeout at most, and returns its hash, or 0 if it was not read to its end.
func (p *prober) hashBody(body io.ReadCloser, cancel func()) uint64 {
	stop := time.AfterFunc(drainTimeout, cancel)
	defer stop.Stop()
	defer func() { _ = body.Close() }() // nothing was written
	var h maphash.Hash
	h.SetSeed(p.seed)
	buffer := probeBuffers.Get().(*[4 << 10]byte)
	defer probeBuffers.Put(buffer)
	if n, err := io.CopyBuffer(&h, io.LimitReader(body, maxProbeBody), buffer[:]); err != nil || n == maxProbeBody {
		return 0
	}
	return max(h.Sum64(), 1)
}

// merge combines the failures of several attempts into one that does not depend on their order. A backend is as good as
// its best endpoint: slow if one is slow, unreachable or forbidden only if all are.
func (f *failure) merge(other *failure) *failure {
	if f == nil {
		return other
	}
	kept, dropped := f, other
	switch {
	case f.tunnel && other.slow && other.status == 0: // the tunnel explains the connection that was lost too
	case other.tunnel && f.slow && f.status == 0:
		kept, dropped = other, f
	case other.slow != f.slow:
		if other.slow {
			kept, dropped = other, f
		}
	case other.text("") < f.text(""):
		kept, dropped = other, f
	}
	merged := *kept
	merged.unreachable = kept.unreachable && dropped.unreachable
	merged.forbidden = kept.forbidden && dropped.forbidden
	return &merged
}

const (
	// hungTimeout is how long a backend may answer neither requests nor probes while its connections are alive. It is
	// longer than slow responses take: a response after three seconds is better than an outage.
	hungTimeout = 3500 * time.Millisecond
	// deadTimeout is the same where pings are not answered either, or new connections not served, which application load
	// does not explain.
	deadTimeout = 2500 * time.Millisecond
	// minProbeWait is how long a probe must have waited.
	minProbeWait = 1500 * time.Millisecond
	// hangCheckInterval is how often a waiting probe checks for a hang.
	hangCheckInterval = 250 * time.Millisecond
	// slowFactor is how many times its usual duration a backend may take.
	slowFactor = 2
)

// hangDetector decides early that a backend which was available hangs, while a probe waits for it. Two probes that time out
// would show the same after twelve seconds, during which every request to the backend waits too.
type hangDetector struct {
	silence func() transport.Silence
	// usualDuration is how long recent probes took.
	usualDuration time.Duration
	started       time.Time
	lastCheck     time.Time
	// running is how much of the time since started this process is known to have run. Time without checks does not count:
	// on an overloaded machine every backend would seem to hang.
	running time.Duration
}

func newHangDetector(silence func() transport.Silence, usual time.Duration) *hangDetector {
	now := time.Now()
	return &hangDetector{silence: silence, usualDuration: usual, started: now, lastCheck: now}
}

// check returns a failure when the backend has answered nobody for too long, else nil.
func (s *hangDetector) check(now time.Time) *failure {
	s.running += min(now.Sub(s.lastCheck), 2*hangCheckInterval)
	s.lastCheck = now
	silence := s.silence()
	if silence.Since.IsZero() || s.running < minProbeWait {
		return nil
	}
	limit, cause := hungTimeout, "requests are taken and none is answered within "
	if silence.Broken {
		limit, cause = deadTimeout, "connections are taken and nothing comes from them"
	}
	limit = max(limit, slowFactor*s.usualDuration)
	if !silence.Broken { // rounded, so that the message of the same backend stays the same
		cause += limit.Round(500 * time.Millisecond).String()
	}
	if silence.Tunnel != "" {
		cause = "nothing comes through the tunnel to the " + silence.Tunnel + " network: its server or its agents hang, or the backend does"
	}
	lost := now.Sub(s.started) - s.running
	if now.Sub(silence.Since)-lost < limit {
		return nil
	}
	return &failure{message: cause, silent: true, unreachable: true}
}

// deadlineExceeded is the text of a step that took too long. A dial that did has the step before these words.
const deadlineExceeded = "context deadline exceeded"

// maxErrorMessage bounds what a backend can put into a status (GOAWAY debug data, certificate names).
const maxErrorMessage = 512

// errorMessage returns the same text for the same fault. kube-aggregator prints the error as it is: it contains an endpoint
// address, an ephemeral port, a stream number or the time of day, so that each message differs from the one before, is
// written to the status, and wakes every watcher of APIServices. The text names no endpoint either: more people may read
// the status of an APIService than pods.
func errorMessage(err error) string {
	return SingleLine(removeVariable(errorText(err)))
}

// SingleLine returns text as one line of bounded length, without control characters: a backend may have chosen it.
func SingleLine(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
	if len(text) > maxErrorMessage {
		text = strings.ToValidUTF8(text[:maxErrorMessage], "") + "..."
	}
	return text
}

func errorText(err error) string {
	var (
		ours      *transport.Error
		forbidden *transport.ForbiddenAddressError
		op        *net.OpError
		dns       *net.DNSError
		invalid   x509.CertificateInvalidError
		tunnel    *transport.TunnelError
	)
	switch {
	case errors.As(err, &tunnel):
		return tunnel.Text() + ": " + errorText(tunnel.Err)
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
		return strings.TrimSpace(op.Op+" "+op.Net) + ": " + errorText(op.Err)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return deadlineExceeded
	case errors.As(err, &ours) && ours.Err != nil:
		return errorText(ours.Err)
	}
	// Transport names the step that failed, and crypto/tls names itself.
	return strings.Replace(err.Error(), "tls: tls: ", "tls: ", 1)
}

// The parts of untyped error texts that differ from one occurrence to the next.
var (
	address4 = regexp.MustCompile(`\b\d{1,3}(\.\d{1,3}){3}(:\d+)?(->\d{1,3}(\.\d{1,3}){3}(:\d+)?)?`)
	address6 = regexp.MustCompile(`\[[0-9a-fA-F:.]*:[0-9a-fA-F:.]*(%\w+)?\](:\d+)?(->\[[0-9a-fA-F:.%\w]*\](:\d+)?)?`)
	streamID = regexp.MustCompile(`(LastStreamID=|stream ID |stream )\d+`)
)

func removeVariable(text string) string {
	text = address4.ReplaceAllString(text, "<endpoint>")
	text = address6.ReplaceAllString(text, "<endpoint>")
	return streamID.ReplaceAllString(text, "${1}<n>")
}

// failureFromError classifies an error of the transport.
func failureFromError(err error) *failure {
	f := &failure{message: errorMessage(err)}
	var forbidden *transport.ForbiddenAddressError
	f.forbidden = errors.As(err, &forbidden)
	var timeout net.Error
	f.slow = errors.Is(err, context.DeadlineExceeded) || (errors.As(err, &timeout) && timeout.Timeout())
	var ours *transport.Error
	if errors.As(err, &ours) {
		f.unreachable = ours.Op != transport.OpRoundTrip
		// A connection that breaks during a request may be one that the backend was closing anyway.
		f.slow = f.slow || ours.Sent
	}
	if f.message == deadlineExceeded && !f.unreachable {
		f.message += fmt.Sprintf(": no response within %s, the limit of a check", probeTimeout)
	}
	// A tunnel through which nothing passes is not slow: no other backend behind it answered meanwhile.
	f.tunnel = transport.IsTunnelError(err)
	f.slow = f.slow && !f.tunnel
	return f
}

// failureFromStatus classifies a response that is not 2xx. Overload and a server that is starting may be over soon; a 404
// or a redirect is not.
func failureFromStatus(code int) *failure {
	return &failure{status: code, slow: code >= http.StatusInternalServerError || code == http.StatusTooManyRequests}
}

// text is the failure as kube-aggregator words it. The URL names the Service, not the endpoint.
func (f *failure) text(url string) string {
	switch {
	case f.status != 0:
		return fmt.Sprintf("failing or missing response from %s: bad status from %s: %d", url, url, f.status)
	default:
		return fmt.Sprintf("failing or missing response from %s: %s", url, f.message)
	}
}

// ProbeURL is the URL of the probe of a group-version, as messages name it.
func ProbeURL(ref *apiregistrationv1.ServiceReference, gv schema.GroupVersion) string {
	return "https://" + hostPort(serverName(ref), portOf(ref)) + DiscoveryPath(gv)
}

// ProbeErrorMessage is the message about a probe of url that failed with err.
func ProbeErrorMessage(url string, err error) string { return failureFromError(err).text(url) }

// ProbeStatusMessage is the message about a probe of url that got a response with a failing status code.
func ProbeStatusMessage(url string, code int) string { return failureFromStatus(code).text(url) }
