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
	// probeTimeout is kube-aggregator's timeout. Backends are expected to answer within it.
	probeTimeout = 5 * time.Second
	// ProbeTimeout is how long a probe waits for the discovery document of a backend.
	ProbeTimeout = probeTimeout
	// HungTimeout is how long a backend that was available may leave all requests unanswered.
	HungTimeout = hungTimeout
	// hedgeDelay is how long an attempt may take before another endpoint is probed as well.
	hedgeDelay = time.Second
	// maxAttempts is the number of attempts. kube-aggregator always makes this number in parallel. Portico makes them one
	// after the other until one succeeds.
	maxAttempts = 5
	// maxProbes is the maximum number of concurrent attempts for all backends.
	maxProbes = 256
	// maxProbeBody and drainTimeout limit how much of a response is read so that its connection can be reused.
	maxProbeBody = 1 << 20
	drainTimeout = 250 * time.Millisecond
)

// prober probes group-versions like kube-aggregator: a GET of the discovery document, as a user who may read it on every
// server. A response of 200 to 299 succeeds, whatever its body.
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
	// url contains https, the Service's DNS name, and the path. The transport chooses the endpoint.
	url string
	// endpoints is the number of endpoints that the transport chooses from.
	endpoints int
	// hang ends the wait early for a backend that does not answer any request. If nil, the probe waits until its timeout.
	hang *hangDetector
}

// DiscoveryPath returns the path that every server must answer for a group-version it serves.
func DiscoveryPath(gv schema.GroupVersion) string {
	if gv.Group == "" {
		return "/api/" + gv.Version
	}
	return "/apis/" + gv.Group + "/" + gv.Version
}

// probe makes attempts until one succeeds or all have failed. It starts the next attempt when the last one has failed, or
// has taken hedgeDelay. A single successful endpoint is sufficient.
func (p *prober) probe(ctx context.Context, t probeTarget) outcome {
	start := time.Now()
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	// Make two attempts even with one endpoint: the first may have used a connection that was being closed.
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

// attempt sends one request, which ends with its context.
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
	// RoundTrip does not follow redirects: a 3xx response fails the probe (CVE-2022-3172).
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

// newProbe returns the request of a probe.
func newProbe(ctx context.Context, url string) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	// The transport sets the Host that matches the endpoint it chooses.
	r.Host = ""
	r.Header.Set("X-Remote-User", "system:kube-aggregator")
	r.Header.Set("X-Remote-Group", "system:masters")
	return r, nil
}

// probeBuffers are the buffers for probe responses. io.Copy would use 32 KiB, and most responses are smaller than 1 KiB.
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

// merge combines the failures of several attempts into one that does not depend on their order. The best endpoint
// determines the result: slow if one is slow, unreachable or forbidden only if all are.
func (f *failure) merge(other *failure) *failure {
	if f == nil {
		return other
	}
	kept, dropped := f, other
	switch {
	case f.tunnel && other.slow && other.status == 0: // the tunnel failure also explains the lost connection
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
	// deadTimeout is the limit for a backend that does not answer pings either, or does not accept new connections.
	// Application load does not explain that.
	deadTimeout = 2500 * time.Millisecond
	// minProbeWait is the minimum time that a probe must have waited.
	minProbeWait = 1500 * time.Millisecond
	// hangCheckInterval is how often a waiting probe checks for a hang.
	hangCheckInterval = 250 * time.Millisecond
	// slowFactor is the multiple of its usual duration that a backend may take.
	slowFactor = 2
)

// hangDetector detects early that a backend which was available hangs, while a probe waits for it. Two probes that time out
// would take twelve seconds to detect it, during which every request to the backend waits too.
type hangDetector struct {
	silence func() transport.Silence
	// usualDuration is how long recent probes took.
	usualDuration time.Duration
	started       time.Time
	lastCheck     time.Time
	// running is the part of the time since started during which this process is known to have run. Time without checks
	// does not count, because every backend would seem to hang on an overloaded machine.
	running time.Duration
}

func newHangDetector(silence func() transport.Silence, usual time.Duration) *hangDetector {
	now := time.Now()
	return &hangDetector{silence: silence, usualDuration: usual, started: now, lastCheck: now}
}

// check returns a failure if the backend has not answered any request for too long, and nil otherwise.
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
	if !silence.Broken { // rounded, so that the message for the same backend stays the same
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

// deadlineExceeded is the error text of a step that timed out. In a dial error, the name of the step precedes it.
const deadlineExceeded = "context deadline exceeded"

// maxErrorMessage limits the text that a backend can add to a status (GOAWAY debug data, certificate names).
const maxErrorMessage = 512

// errorMessage returns the same text for the same fault. kube-aggregator prints the error unchanged. It contains an
// endpoint address, an ephemeral port, a stream number or the time of day, so that each message differs from the previous
// one, is written to the status, and wakes every watcher of APIServices. The text also omits the endpoint, because more
// users may read the status of an APIService than pods.
func errorMessage(err error) string {
	return SingleLine(removeVariable(errorText(err)))
}

// SingleLine returns text as one line of limited length, without control characters: a backend may have chosen it.
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
		// The standard text contains the current time with a precision of seconds.
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
	// The transport error names the failed step, and crypto/tls adds its prefix again.
	return strings.Replace(err.Error(), "tls: tls: ", "tls: ", 1)
}

// Parts of untyped error texts that differ between occurrences.
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
		// The backend may have been closing a connection that breaks during a request.
		f.slow = f.slow || ours.Sent
	}
	if f.message == deadlineExceeded && !f.unreachable {
		f.message += fmt.Sprintf(": no response within %s, the limit of a check", probeTimeout)
	}
	// A tunnel that transfers no data is not slow: no other backend behind it answered in the meantime.
	f.tunnel = transport.IsTunnelError(err)
	f.slow = f.slow && !f.tunnel
	return f
}

// failureFromStatus classifies a response that is not 2xx. Overload and a starting server are temporary; a 404 or a
// redirect is not.
func failureFromStatus(code int) *failure {
	return &failure{status: code, slow: code >= http.StatusInternalServerError || code == http.StatusTooManyRequests}
}

// text returns the failure in kube-aggregator's wording. The URL contains the Service, not the endpoint.
func (f *failure) text(url string) string {
	switch {
	case f.status != 0:
		return fmt.Sprintf("failing or missing response from %s: bad status from %s: %d", url, url, f.status)
	default:
		return fmt.Sprintf("failing or missing response from %s: %s", url, f.message)
	}
}

// ProbeURL returns the URL of the probe of a group-version, as used in messages.
func ProbeURL(ref *apiregistrationv1.ServiceReference, gv schema.GroupVersion) string {
	return "https://" + hostPort(serverName(ref), portOf(ref)) + DiscoveryPath(gv)
}

// ProbeErrorMessage returns the message about a probe of url that failed with err.
func ProbeErrorMessage(url string, err error) string { return failureFromError(err).text(url) }

// ProbeStatusMessage returns the message about a probe of url that got a response with a failing status code.
func ProbeStatusMessage(url string, code int) string { return failureFromStatus(code).text(url) }
