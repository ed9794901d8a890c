package doctor

import (
	"context"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"

	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico.dev/internal/apiservice"
)

// clientView is what the API server says of the backend: its answer to a request for the discovery document, which it
// has to fetch from the backend to give, and its condition.
type clientView struct {
	once   sync.Once
	answer answer
}

// discoveryAnswer asks for the discovery document through the API server, once.
func (x *exam) discoveryAnswer(ctx context.Context) answer {
	x.words.once.Do(func() {
		x.words.answer = x.api.ask(ctx, http.MethodGet, apiservice.DiscoveryPath(x.gv), mediaJSON, nil)
		x.passedOn(x.words.answer)
	})
	return x.words.answer
}

// answered reports that the answer can only have come from the backend: the API server reaches it, whatever can be seen
// from here. A gateway's codes are what an API server says of a backend that it cannot reach.
func (x *exam) answered(ctx context.Context) bool {
	if g := x.report.Gateway; g != nil { // which answers discovery for a server that is dead
		return g.BackendAvailable.Status == string(apiregistrationv1.ConditionTrue)
	}
	a := x.discoveryAnswer(ctx)
	switch {
	case a.err != nil, a.code == http.StatusBadGateway, a.code == http.StatusServiceUnavailable, a.code == http.StatusGatewayTimeout:
		return false
	case a.code == http.StatusTooManyRequests:
		return false // either may say it
	}
	return true
}

// accused is the hop that the API server blames, empty when it blames none that can be told.
func (x *exam) accused(ctx context.Context) string {
	if c := x.report.Available; c.Status != string(apiregistrationv1.ConditionTrue) {
		if hop := blame(c.Reason, c.Message); hop != "" {
			return hop
		}
	}
	if x.answered(ctx) {
		return ""
	}
	return blame("", x.discoveryAnswer(ctx).text())
}

// said is the API server's sentence about a backend that it cannot reach.
func (x *exam) said(ctx context.Context) string {
	if c := x.report.Available; c.Status != string(apiregistrationv1.ConditionTrue) && c.Message != "" {
		return c.Message
	}
	return strings.TrimSpace(x.discoveryAnswer(ctx).text())
}

// badStatus is in the message about a backend that answers, and not well. Of a backend whose check fails an API server
// passes nothing on, so that the code in the message is all there is.
var badStatus = regexp.MustCompile(`bad status from \S+: (\d{3})\b`)

// told is the code that the backend answered the API server's check with, 0 when it says none.
func (x *exam) told(ctx context.Context) int {
	match := badStatus.FindStringSubmatch(x.said(ctx))
	if match == nil || x.answered(ctx) {
		return 0
	}
	code, _ := strconv.Atoi(match[1]) // three digits
	return code
}

// disputed is for a hop that is well as seen from here and that the API server blames, while it still answers nothing:
// its place on the network, its clock or its authorities differ.
func (x *exam) disputed(ctx context.Context, hop string) (finding, bool) {
	if x.answered(ctx) || x.accused(ctx) != hop {
		return finding{}, false
	}
	fix := []string{x.inNamespace("get", "networkpolicies"), x.lookAtServer()}
	if x.report.Available.Reason == reasonForbidden {
		fix = x.elsewhere()
	}
	return broken("well as seen from here, and not from the API server", fix...).saying(x.said(ctx)), true
}

// tunnel is for an API server that reaches backends through a tunnel, which fails: what this machine reaches matters little then.
func (x *exam) tunnel(ctx context.Context) (finding, bool) {
	said := x.said(ctx)
	if x.answered(ctx) || !strings.Contains(said, "the tunnel to the ") {
		return finding{}, false
	}
	return broken("the API server dials through a tunnel, and the tunnel fails",
		"# look at the konnectivity server that --egress-selector-config-file names, and at the logs of its agents").saying(said), true
}

const reasonForbidden = "ForbiddenAddress"

// byReason is the hop of the reasons that name one.
var byReason = map[string]string{
	"InvalidCABundle":      HopRegistration,
	"ServiceNotFound":      HopService,
	"ServiceAccessError":   HopService,
	"ServicePortError":     HopService,
	"EndpointsNotFound":    HopEndpoints,
	"EndpointsAccessError": HopEndpoints,
	"MissingEndpoints":     HopEndpoints,
	reasonForbidden:        HopTCP,
}

// byWords is the hop that an API server's message speaks of, ours or the incumbent's, in the order in which to look:
// the incumbent's text of a failed handshake names the dial too.
var byWords = []struct{ words, hop string }{
	{"bad status from", HopDiscovery},
	{"unsupported service type", HopService},
	{"no service port", HopService},
	{"has no external name", HopService},
	{"no endpoints available", HopEndpoints},
	{"must not be dialled", HopTCP},
	{"no such host", HopDNS},
	{"dial tcp: lookup", HopDNS},
	{"x509:", HopTLS},
	{"tls:", HopTLS},
	{"TLS handshake", HopTLS},
	{"HTTP response to HTTPS client", HopTLS},
	{"connection refused", HopTCP},
	{"no route to host", HopTCP},
	{"network is unreachable", HopTCP},
	{"dial tcp", HopTCP},
}

// blame is the hop that a reason and message are about, empty when they fit several.
func blame(reason, message string) string {
	if hop, ok := byReason[reason]; ok {
		return hop
	}
	if strings.Contains(message, "bad status from") && (strings.HasSuffix(message, ": 401") || strings.HasSuffix(message, ": 403")) {
		return HopIdentity
	}
	for _, w := range byWords {
		if strings.Contains(message, w.words) {
			return w.hop
		}
	}
	return ""
}
