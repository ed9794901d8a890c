package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico.dev/internal/adoption"
	"portico.dev/internal/apiservice"
	"portico.dev/internal/routetable"
	"portico.dev/internal/transport"
)

// Reasons of the condition FrontProxyTrusted.
//
//reference:conditions Reasons of FrontProxyTrusted
const (
	// reasonTrusted is an extension server that knows the user whom the gateway names.
	reasonTrusted = "IdentityBelieved"
	// reasonNotTrusted is one that takes the gateway's requests for somebody else's or nobody's: it does not follow the ConfigMap
	// kube-system/extension-apiserver-authentication, or has not read it since the gateway is in it.
	reasonNotTrusted = "IdentityNotBelieved"
	// reasonTrustUnknown is one of which the gateway could not find that out.
	reasonTrustUnknown = "NotKnown"
)

const (
	// trustUser is whom the gateway names to find out whether it is believed. It has no rights, not even those of everybody.
	trustUser = "system:portico-gateway:trust-check"
	// trustPath is nowhere served, so that a server that authorizes names the user whom it refuses.
	trustPath = "/portico-gateway-trust-check"
	// An answer that does not settle it is asked for again after trustRetry: extension servers read the ConfigMap once a minute.
	trustRetry   = 5 * time.Second
	trustTimeout = 5 * time.Second
	maxTrustBody = 64 << 10
)

// trustChecks are what extension servers make of the gateway's certificate, by APIService.
type trustChecks struct {
	mu    sync.Mutex
	known map[string]trustCheck
}

// trustCheck is one result, and of what.
type trustCheck struct {
	of        trustSubject
	at        time.Time
	condition apiregistrationv1.APIServiceCondition
}

// trustSubject is what a result depends on.
type trustSubject struct {
	uid         types.UID
	backend     *transport.Backend
	certificate string
	// available is since when the backend is: it may be another program after an outage.
	available time.Time
}

// settled reports whether the result holds as long as its subject does.
func (c trustCheck) settled() bool { return c.condition.Status == apiregistrationv1.ConditionTrue }

// condition returns the result about an APIService, false if there is none yet.
func (t *trustChecks) condition(apiService string) (apiregistrationv1.APIServiceCondition, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c, ok := t.known[apiService]
	return c.condition, ok
}

// check asks the backends of routes whose result is missing, old or not settled, all at once, and returns when every one has answered
// or has had its time. It reports whether something changed.
func (t *trustChecks) check(ctx context.Context, routes []*routetable.Route, certificate string) (changed bool) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, 8)
	present := map[string]bool{}
	for _, r := range routes {
		present[r.Name] = true
		if r.Backend == nil || !r.Available() {
			continue
		}
		subject := trustSubject{r.UID, r.Backend, certificate, r.Condition.LastTransitionTime.Time}
		t.mu.Lock()
		last, known := t.known[r.Name]
		t.mu.Unlock()
		if known && last.of == subject && (last.settled() || time.Since(last.at) < trustRetry) {
			continue
		}
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			c := askTrust(ctx, r.Backend)
			t.mu.Lock()
			defer t.mu.Unlock()
			if t.known == nil {
				t.known = map[string]trustCheck{}
			}
			changed = changed || c != last.condition
			t.known[r.Name] = trustCheck{subject, time.Now(), c}
		})
	}
	wg.Wait()
	t.mu.Lock()
	defer t.mu.Unlock()
	for name := range t.known {
		if !present[name] {
			delete(t.known, name)
		}
	}
	return changed
}

// askTrust finds out whom a backend takes a request of ours for. A server that refuses says whom, and one that does not know our front
// proxy says that it knows nobody.
func askTrust(ctx context.Context, b *transport.Backend) apiregistrationv1.APIServiceCondition {
	ctx, cancel := context.WithTimeout(ctx, trustTimeout)
	defer cancel()
	r := (&http.Request{
		Method: http.MethodGet, URL: &url.URL{Scheme: "https", Host: "backend", Path: trustPath},
		Header: http.Header{"X-Remote-User": {trustUser}, "Accept": {"application/json"}, "User-Agent": {"portico-gateway"}},
	}).WithContext(ctx)
	response, err := b.Probe().RoundTrip(r)
	if err != nil {
		return trustCondition(apiregistrationv1.ConditionUnknown, reasonTrustUnknown, "the extension server did not answer when it was asked whom it believes")
	}
	defer func() { _ = response.Body.Close() }() // nothing was written
	body, err := io.ReadAll(io.LimitReader(response.Body, maxTrustBody))
	if err != nil {
		return trustCondition(apiregistrationv1.ConditionUnknown, reasonTrustUnknown, "the extension server broke off its answer when it was asked whom it believes")
	}
	return judgeTrust(response.StatusCode, body)
}

// judgeTrust reads the answer.
func judgeTrust(code int, body []byte) apiregistrationv1.APIServiceCondition {
	var status metav1.Status
	message := ""
	if json.Unmarshal(body, &status) == nil {
		message = apiservice.SingleLine(status.Message)
	}
	const remedy = "it must follow ConfigMap " + adoption.TrustNamespace + "/" + adoption.TrustConfigMap + ", as all servers with delegated authentication do, or be restarted to read it"
	switch {
	case code == http.StatusUnauthorized:
		return trustCondition(apiregistrationv1.ConditionFalse, reasonNotTrusted, "the extension server answers 401 to the gateway's front-proxy certificate: "+remedy)
	case code == http.StatusForbidden && strings.Contains(message, trustUser):
		return trustCondition(apiregistrationv1.ConditionTrue, reasonTrusted, "")
	case code == http.StatusForbidden:
		return trustCondition(apiregistrationv1.ConditionFalse, reasonNotTrusted, "the extension server takes the gateway for somebody else ("+bounded(message)+"): "+remedy)
	case code >= http.StatusInternalServerError:
		return trustCondition(apiregistrationv1.ConditionUnknown, reasonTrustUnknown, fmt.Sprintf("the extension server answers %d when it is asked whom it believes: %s", code, bounded(message)))
	}
	// It refuses nobody, so that whom it believes makes no difference.
	return trustCondition(apiregistrationv1.ConditionTrue, reasonTrusted, "")
}

// bounded is the beginning of a text of a server.
func bounded(text string) string {
	const most = 200
	if len(text) > most {
		return strings.ToValidUTF8(text[:most], "") + "..."
	}
	return text
}

func trustCondition(status apiregistrationv1.ConditionStatus, reason, message string) apiregistrationv1.APIServiceCondition {
	return apiregistrationv1.APIServiceCondition{Type: adoption.FrontProxyTrusted, Status: status, Reason: reason, Message: message}
}
