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

// clientView is the API server's view of the backend: its response to a discovery request, which it must forward to
// the backend, and its condition.
type clientView struct {
	once   sync.Once
	answer answer
}

// discoveryAnswer requests the discovery document through the API server, once.
func (x *exam) discoveryAnswer(ctx context.Context) answer {
	x.words.once.Do(func() {
		x.words.answer = x.api.send(ctx, http.MethodGet, apiservice.DiscoveryPath(x.gv), mediaJSON, nil)
		x.passedOn(x.words.answer)
	})
	return x.words.answer
}

// answered reports whether the response can only come from the backend, so that the API server reaches the backend,
// even if this machine does not. A gateway error code means that the API server did not reach the backend.
func (x *exam) answered(ctx context.Context) bool {
	if g := x.report.Gateway; g != nil { // a gateway answers discovery requests even for a dead server
		return g.BackendAvailable.Status == string(apiregistrationv1.ConditionTrue)
	}
	a := x.discoveryAnswer(ctx)
	switch {
	case a.err != nil, a.code == http.StatusBadGateway, a.code == http.StatusServiceUnavailable, a.code == http.StatusGatewayTimeout:
		return false
	case a.code == http.StatusTooManyRequests:
		return false // either of them may send it
	}
	return true
}

// accused returns the hop that the API server blames, or an empty string if it blames none or the hop cannot be
// determined.
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

// availableMessage returns the API server's message about a backend that it cannot reach.
func (x *exam) availableMessage(ctx context.Context) string {
	if c := x.report.Available; c.Status != string(apiregistrationv1.ConditionTrue) && c.Message != "" {
		return c.Message
	}
	return strings.TrimSpace(x.discoveryAnswer(ctx).text())
}

// badStatus matches the message about a backend that answers with an error status. The API server does not forward
// responses of a backend whose check fails, so the code in the message is the only information.
var badStatus = regexp.MustCompile(`bad status from \S+: (\d{3})\b`)

// backendStatusCode returns the status code with which the backend answered the API server's check, or 0 if it is not known.
func (x *exam) backendStatusCode(ctx context.Context) int {
	match := badStatus.FindStringSubmatch(x.availableMessage(ctx))
	if match == nil || x.answered(ctx) {
		return 0
	}
	code, _ := strconv.Atoi(match[1]) // always three digits
	return code
}

// disputed handles a hop that works from this machine and that the API server blames, while the API server gets no
// responses. Its network position, its clock or its certificate authorities differ.
func (x *exam) disputed(ctx context.Context, hop string) (finding, bool) {
	if x.answered(ctx) || x.accused(ctx) != hop {
		return finding{}, false
	}
	fix := []string{x.inNamespace("get", "networkpolicies"), x.lookAtServer()}
	if x.report.Available.Reason == reasonForbidden {
		fix = x.redirectCommands()
	}
	return broken("well as seen from here, and not from the API server", fix...).saying(x.availableMessage(ctx)), true
}

// tunnel handles an API server that reaches backends through a failing tunnel. Connections from this machine are then
// irrelevant.
func (x *exam) tunnel(ctx context.Context) (finding, bool) {
	said := x.availableMessage(ctx)
	if x.answered(ctx) || !strings.Contains(said, "the tunnel to the ") {
		return finding{}, false
	}
	return broken("the API server dials through a tunnel, and the tunnel fails",
		"# look at the konnectivity server that --egress-selector-config-file names, and at the logs of its agents").saying(said), true
}

const reasonForbidden = "ForbiddenAddress"

// byReason maps condition reasons to the hop that they identify.
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

// byWords maps phrases in the messages of Portico and kube-aggregator to hops. The order matters: kube-aggregator's
// message about a failed handshake mentions the dial too.
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

// blame returns the hop that a reason and message identify, or an empty string if several match.
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
