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

	"portico.dev/internal/apiservice"
	"portico.dev/internal/gateway/adoption"
	"portico.dev/internal/routetable"
	"portico.dev/internal/transport"
)

// Reasons of the condition FrontProxyTrusted.
//
//reference:conditions Reasons of FrontProxyTrusted
const (
	// reasonTrusted is set if the extension server accepts the user that the gateway names.
	reasonTrusted = "IdentityBelieved"
	// reasonNotTrusted is set if the extension server attributes the gateway's requests to another user or to none:
	// it does not follow the ConfigMap kube-system/extension-apiserver-authentication, or has not read it since the
	// gateway was added.
	reasonNotTrusted = "IdentityNotBelieved"
	// reasonTrustUnknown is set if the gateway could not determine whether the extension server trusts it.
	reasonTrustUnknown = "NotKnown"
)

const (
	// trustUser is the user that the gateway names in trust checks. It has no rights, not even the rights of all
	// users.
	trustUser = "system:portico-gateway:trust-check"
	// trustPath is not served by any server, so that a server that authorizes requests names the user that it
	// refuses.
	trustPath = "/portico-gateway-trust-check"
	// An inconclusive check is repeated after trustRetry: extension servers read the ConfigMap once a minute.
	trustRetry   = 5 * time.Second
	trustTimeout = 5 * time.Second
	maxTrustBody = 64 << 10
)

// trustChecks contains the results of the checks whether extension servers trust the gateway's certificate, by
// APIService.
type trustChecks struct {
	mu    sync.Mutex
	known map[string]trustCheck
}

// trustCheck is one result with its subject.
type trustCheck struct {
	subject   trustSubject
	at        time.Time
	condition apiregistrationv1.APIServiceCondition
}

// trustSubject contains everything that a result depends on.
type trustSubject struct {
	uid         types.UID
	backend     *transport.Backend
	certificate string
	// available is the time since which the backend is available: after an outage it may be another program.
	available time.Time
}

// settled reports whether the result is valid until its subject changes.
func (c trustCheck) settled() bool { return c.condition.Status == apiregistrationv1.ConditionTrue }

// condition returns the result for an APIService. It returns false before the first result.
func (t *trustChecks) condition(apiService string) (apiregistrationv1.APIServiceCondition, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c, ok := t.known[apiService]
	return c.condition, ok
}

// check queries the backends of routes with a missing, old or unsettled result, concurrently, and returns when each
// has responded or timed out. It reports whether a result changed.
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
		if known && last.subject == subject && (last.settled() || time.Since(last.at) < trustRetry) {
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

// askTrust determines which user a backend sees in a request from the gateway. A server that refuses the request
// names the user, and a server that does not trust the gateway's front proxy responds that the client is
// unauthenticated.
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
	defer func() { _ = response.Body.Close() }() // the body is only read
	body, err := io.ReadAll(io.LimitReader(response.Body, maxTrustBody))
	if err != nil {
		return trustCondition(apiregistrationv1.ConditionUnknown, reasonTrustUnknown, "the extension server broke off its answer when it was asked whom it believes")
	}
	return judgeTrust(response.StatusCode, body)
}

// judgeTrust evaluates a response.
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
	// The server does not refuse any user, so it makes no difference which ones it trusts.
	return trustCondition(apiregistrationv1.ConditionTrue, reasonTrusted, "")
}

// bounded returns the beginning of a server's text.
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
