package apiservice

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico.dev/internal/transport"
)

const (
	// endpointInterval is the time between two comparisons of the endpoints of a backend.
	endpointInterval = 30 * time.Second
	// ejectedInterval is the interval while an endpoint is ejected.
	ejectedInterval = 2 * time.Second
)

// endpointSet is the set of endpoints of a backend. *transport.Backend implements it.
type endpointSet interface {
	Endpoints() []transport.Endpoint
	ProbeEndpoint(address string) http.RoundTripper
	Suspend(address string, why error) bool
	Reinstate(address string)
	Ejected() []transport.Ejection
}

// errOtherDiscovery is the error of an endpoint with a discovery document that differs from most others. During a
// rolling update, this applies to the first new endpoints, and then to the last old ones.
var errOtherDiscovery = errors.New("its discovery document differs from that of most endpoints")

// checkEndpoints compares the documents of the backend's endpoints, if the interval has passed or an event requested it,
// and ejects endpoints that differ from the majority. It reports changes of the ejected endpoints to the controller.
func (m *monitor) checkEndpoints(ctx context.Context, asked bool) {
	if m.several == nil {
		return
	}
	endpoints := m.several.Endpoints()
	now := time.Now()
	m.mu.Lock()
	due := asked || now.Sub(m.compared) >= endpointInterval || len(m.differing) > 0
	var gv schema.GroupVersion
	found := false
	for _, h := range m.versions {
		if h.good() && (!found || compareGroupVersions(h.of, gv) < 0) {
			gv, found = h.of, true
		}
	}
	if len(endpoints) < 2 {
		m.differing = nil
	} else if due && found {
		m.compared = now
	}
	m.mu.Unlock()
	if len(endpoints) >= 2 && due && found {
		m.compareEndpoints(ctx, endpoints, gv)
	}
	ejected := m.several.Ejected()
	m.mu.Lock()
	differ := !slices.Equal(ejected, m.ejected)
	m.ejected = ejected
	m.mu.Unlock()
	if differ {
		m.historyChanged(m.all())
	}
}

// compareEndpoints fetches the document of gv from every endpoint.
func (m *monitor) compareEndpoints(ctx context.Context, endpoints []transport.Endpoint, gv schema.GroupVersion) {
	documents := make([]string, len(endpoints))
	var wg sync.WaitGroup
	for i, e := range endpoints {
		wg.Go(func() { documents[i] = m.prober.document(ctx, m.several.ProbeEndpoint(e.Address), m.url(gv)) })
	}
	wg.Wait()
	if ctx.Err() != nil {
		return
	}
	served := make(map[string]string, len(endpoints))
	for i, e := range endpoints {
		served[e.Address] = documents[i]
	}
	differing := minority(served)
	m.mu.Lock()
	before := m.differing
	m.differing = differing
	m.mu.Unlock()
	for _, address := range differing {
		m.several.Suspend(address, errOtherDiscovery)
	}
	for _, address := range before {
		if !slices.Contains(differing, address) {
			m.several.Reinstate(address)
		}
	}
}

// minority returns the endpoints with a document that differs from the document of more than half of all endpoints, in the order
// of their addresses. Endpoints without a document (an empty string) do not differ.
func minority(served map[string]string) []string {
	count := make(map[string]int)
	for _, document := range served {
		count[document]++
	}
	var differing []string
	for document, n := range count {
		if document == "" || 2*n <= len(served) {
			continue
		}
		for address, other := range served {
			if other != "" && other != document {
				differing = append(differing, address)
			}
		}
	}
	slices.Sort(differing)
	return differing
}

// document returns the content of an endpoint's discovery document in a comparable form, or "".
func (p *prober) document(ctx context.Context, to http.RoundTripper, url string) string {
	select {
	case p.slots <- struct{}{}:
		defer func() { <-p.slots }()
	case <-ctx.Done():
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	req, err := newProbe(ctx, url)
	if err != nil {
		return ""
	}
	resp, err := to.RoundTrip(req)
	if err != nil {
		return ""
	}
	defer func() { _ = resp.Body.Close() }() // nothing was written
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxProbeBody))
	if err != nil || resp.StatusCode != http.StatusOK {
		return ""
	}
	return resourcesIn(body)
}

// resourcesIn returns the resources of a discovery document as text, sorted because their order may differ between
// responses.
func resourcesIn(body []byte) string {
	var list metav1.APIResourceList
	if json.Unmarshal(body, &list) != nil || len(list.APIResources) == 0 {
		return ""
	}
	lines := make([]string, 0, len(list.APIResources))
	for _, r := range list.APIResources {
		verbs := slices.Sorted(slices.Values(r.Verbs))
		lines = append(lines, fmt.Sprintf("%s %s %s/%s %t %s", r.Name, r.Kind, r.Group, r.Version, r.Namespaced, strings.Join(verbs, ",")))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// ejections returns the endpoints that were ejected at the last check, and the total number of endpoints.
func (m *monitor) ejections() ([]transport.Ejection, int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.ejected) == 0 {
		return nil, 0
	}
	return m.ejected, len(m.several.Endpoints())
}

// ejectedMessage lists the endpoints that are not used.
func ejectedMessage(ejected []transport.Ejection, of int) string {
	const most = 5
	var text []string
	for _, e := range ejected[:min(len(ejected), most)] {
		text = append(text, fmt.Sprintf("%s (%s)", e.Address, SingleLine(removeVariable(e.Reason))))
	}
	verb := "are"
	if len(ejected) == 1 {
		verb = "is"
	}
	message := fmt.Sprintf("%d of %d endpoints %s not used: %s", len(ejected), of, verb, strings.Join(text, ", "))
	if more := len(ejected) - most; more > 0 {
		message += fmt.Sprintf(", and %d more", more)
	}
	return message
}
