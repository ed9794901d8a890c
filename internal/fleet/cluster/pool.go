package cluster

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode"

	"go.uber.org/zap"

	"portico.dev/internal/fleet/v1alpha1"
	"portico.dev/internal/run"
	"portico.dev/internal/transport"
)

// A kube-apiserver that starts answers requests before its caches are complete: with 403 and 404 that are wrong. One that stops
// reports it at /readyz before it closes its port. The transport notices neither, so every API server is probed.

const (
	// probeReady and probeNotReady are the intervals between probes of an API server.
	probeReady    = 5 * time.Second
	probeNotReady = time.Second
	probeTimeout  = 3 * time.Second
	// maxReadyz limits how much of a response is read. kube-apiserver's response with all checks has 3 KiB.
	maxReadyz = 16 << 10
	// maxMessage limits the part of a response that becomes a message.
	maxMessage = 256
)

// endpoint is one API server. Cluster.mu guards its fields.
type endpoint struct {
	address string
	task    *run.ScheduledTask // probes; nil if the API server is not probed
	probed  bool
	ready   bool
	refused bool   // it is ready although it refuses /readyz
	silent  bool   // it does not answer, and connections could not be established in time or do not answer pings
	message string // why it is not ready
	tunnel  string // the cause if that is the tunnel, such as TunnelRefused; then nothing is known of the API server
}

// EndpointState is the state of one API server.
type EndpointState struct {
	Address string
	Ready   bool
	Message string // why it is not ready
}

// State is a snapshot of the state of a Cluster.
type State struct {
	Endpoints []EndpointState
	// Version is the version of an API server, such as "v1.37.1". Empty if it is not known.
	Version string
	// Ready is true if an API server is ready.
	Ready bool
	// Reason and Message belong to the condition Available.
	Reason, Message string
}

// State returns the current state.
func (c *Cluster) State() State {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := State{Version: c.version, Reason: v1alpha1.ReasonNotProbed}
	ready := 0
	var failures []string
	tunnel := ""
	for _, e := range c.endpoints {
		tunnel = cmp.Or(e.tunnel, tunnel)
		s.Endpoints = append(s.Endpoints, EndpointState{Address: e.address, Ready: e.ready, Message: e.message})
		switch {
		case e.ready:
			ready++
			continue
		case e.probed:
			s.Reason = v1alpha1.ReasonNoReadyAPIServer
		}
		failures = append(failures, e.address+": "+e.message)
	}
	s.Message = "no API server is ready"
	if s.Reason == v1alpha1.ReasonNoReadyAPIServer {
		s.Reason = cmp.Or(tunnel, v1alpha1.ReasonNoReadyAPIServer)
	}
	if s.Ready = ready > 0; s.Ready {
		s.Reason, s.Message = v1alpha1.ReasonReady, fmt.Sprintf("%d of %d API servers are ready", ready, len(c.endpoints))
	}
	if len(failures) > 0 {
		s.Message += " (" + strings.Join(failures, "; ") + ")"
	}
	return s
}

// Changed returns a channel that is closed at the next change of the state. Call it before State, or a change between the two
// calls is missed.
func (c *Cluster) Changed() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed
}

// notify is called with mu held.
func (c *Cluster) notify() {
	close(c.changed)
	c.changed = make(chan struct{})
}

func (c *Cluster) setVersion(version string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.version != version {
		c.version = version
		c.notify()
	}
}

// newEndpoints returns the endpoints at the addresses. Endpoints that are among the last ones keep their state.
func newEndpoints(last []*endpoint, addresses []string) []*endpoint {
	var list []*endpoint
	for _, address := range addresses {
		at := func(e *endpoint) bool { return e.address == address }
		if slices.ContainsFunc(list, at) {
			continue
		}
		if i := slices.IndexFunc(last, at); i >= 0 {
			list = append(list, last[i])
			continue
		}
		list = append(list, &endpoint{address: address, message: "it has not been probed yet"})
	}
	return list
}

// scheduleProbes starts the probes of new endpoints, and ends the probes of removed endpoints. It is called with mu held.
func (c *Cluster) scheduleProbes(last []*endpoint) {
	if c.config.SingleUser {
		return
	}
	var tasks []*run.ScheduledTask
	for _, e := range last {
		if !slices.Contains(c.endpoints, e) {
			e.task.Remove()
		}
	}
	for _, e := range c.endpoints {
		if e.task == nil {
			e.task = c.queue.Add(func(ctx context.Context) time.Duration { return c.probe(ctx, e) })
		} else {
			e.task.RunWithin(probeNotReady) // the serving certificates may be verified in another way
		}
		tasks = append(tasks, e.task)
	}
	c.probes.Store(&tasks)
}

// hasten makes the next probes earlier: after a lost connection, because a killed API server may be starting again before its next
// probe, and after a change, because it decides about API servers that refuse /readyz.
func (c *Cluster) hasten() {
	if tasks := c.probes.Load(); tasks != nil {
		for _, task := range *tasks {
			task.RunWithin(probeNotReady)
		}
	}
}

// jitter spreads the runs of tasks that begin at the same time.
func jitter(d time.Duration) time.Duration {
	return time.Duration((0.9 + 0.2*rand.Float64()) * float64(d)) //nolint:gosec // no secret
}

// probe is the task of an endpoint.
func (c *Cluster) probe(ctx context.Context, e *endpoint) time.Duration {
	found := c.readiness(ctx, e.address)
	message, refused := found.why, found.refused
	if ctx.Err() != nil {
		return probeNotReady // removed
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if refused && c.answersAtAnother(e) {
		message = "it refuses /readyz, and other API servers do not: it may be starting"
	}
	ready := message == ""
	e.refused, e.tunnel = refused, found.tunnel
	// An API server that is only slow answers pings. A silence also ends with the client's request that began it.
	e.silent = !found.answered && (e.silent || c.current.Load().own.Silence().Broken)
	if !e.probed || e.ready != ready || e.message != message {
		changed := e.ready != ready
		e.probed, e.ready, e.message = true, ready, message
		if changed {
			c.config.Logger.Info("readiness of an API server changed", zap.String("cluster", c.config.Name), zap.String("endpoint", e.address), zap.Bool("ready", ready), zap.String("message", message))
			c.hasten()
			if err := c.register(); err != nil {
				c.config.Logger.Error("the readiness of an API server is not applied", zap.String("cluster", c.config.Name), zap.Error(err))
			}
		}
		c.notify()
	}
	c.endWaiting()
	if !ready {
		return jitter(probeNotReady)
	}
	return jitter(probeReady)
}

// endWaiting makes requests fail at once while nothing is heard of any API server, also requests that wait for one. Without it,
// each request waits for a connection. It is called with mu held.
func (c *Cluster) endWaiting() {
	heard := slices.ContainsFunc(c.endpoints, func(e *endpoint) bool { return !e.silent })
	current := c.current.Load()
	for _, b := range []*transport.Backend{current.own, current.anonymous} {
		if heard {
			b.Unblock()
		} else {
			b.Block(errNothingHeard, true)
		}
	}
}

var errNothingHeard = errors.New("nothing is heard of any API server")

// answersAtAnother reports whether another API server than e is ready and does not refuse /readyz. It is called with mu held.
func (c *Cluster) answersAtAnother(e *endpoint) bool {
	return slices.ContainsFunc(c.endpoints, func(o *endpoint) bool { return o != e && o.ready && !o.refused })
}

// readiness is the result of a probe.
type readiness struct {
	why      string // why the API server is not ready, or ""
	tunnel   string // the cause if that is the tunnel
	answered bool
	// refused is set if the API server did not tell: some clusters never do, and a kube-apiserver that starts refuses everything
	// until it knows accounts and rights.
	refused bool
}

// readiness requests /readyz of one API server.
func (c *Cluster) readiness(ctx context.Context, address string) readiness {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	b := c.connections()
	r := (&http.Request{Method: http.MethodGet, URL: b.urlOf("/readyz", ""), Host: b.server.Host, Header: http.Header{"User-Agent": {"portico"}}}).WithContext(ctx)
	// Without credentials, most API servers answer nevertheless. If this one refuses the credentials, requests report it.
	_ = c.config.Credentials.Apply(ctx, r.Header)
	resp, err := b.own.ProbeEndpoint(address).RoundTrip(r)
	if err != nil {
		why, tunnel := failureOf(err)
		return readiness{why: why, tunnel: tunnel}
	}
	defer func() { _ = resp.Body.Close() }() // it was read
	body := io.LimitReader(resp.Body, maxReadyz)
	switch resp.StatusCode {
	case http.StatusOK, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound:
		_, _ = io.Copy(io.Discard, body) // so that the connection can be used again
		return readiness{answered: true, refused: resp.StatusCode != http.StatusOK}
	}
	return readiness{answered: true, why: strings.TrimRight(fmt.Sprintf("/readyz answers %d: %s", resp.StatusCode, failedChecks(body)), ": ")}
}

// failureOf describes why an API server did not answer, and returns the cause if that is the tunnel.
func failureOf(err error) (text, tunnel string) {
	var failed *transport.Error
	switch {
	case !errors.As(err, &failed):
		return err.Error(), ""
	case failed.Class == transport.ClassCanceled && !transport.IsTunnelError(err):
		return fmt.Sprintf("it did not answer /readyz within %s", probeTimeout), ""
	case failed.Protocol:
		return "it answered with something that is not HTTP", ""
	}
	cause, text, _ := failed.Explain()
	if !transport.IsTunnelError(err) {
		cause = ""
	}
	return text, cause
}

// failedChecks returns the failed checks that kube-apiserver lists: "[-]etcd failed: reason withheld".
func failedChecks(body io.Reader) string {
	var failed []string
	lines := bufio.NewScanner(body)
	for lines.Scan() {
		if check, ok := strings.CutPrefix(lines.Text(), "[-]"); ok {
			failed = append(failed, check)
		}
	}
	text := strings.Map(func(c rune) rune {
		if !unicode.IsPrint(c) {
			return -1
		}
		return c
	}, strings.Join(failed, ", "))
	if len(text) > maxMessage {
		text = strings.ToValidUTF8(text[:maxMessage], "")
	}
	return text
}
