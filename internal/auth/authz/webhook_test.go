package authz

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// secret is text in the webhook's response that must not reach a client.
const secret = "the-words-of-the-webhook"

func TestC13FailedWebhooksFollowFailurePolicy(t *testing.T) {
	elsewhere := serve(t, allows)
	for name, answer := range map[string]func(http.ResponseWriter, *http.Request, *authorizationv1.SubjectAccessReview){
		"hung": neverSays,
		"500": func(w http.ResponseWriter, _ *http.Request, _ *authorizationv1.SubjectAccessReview) {
			w.WriteHeader(http.StatusInternalServerError)
			fmt.Fprint(w, secret)
		},
		"401": func(w http.ResponseWriter, _ *http.Request, _ *authorizationv1.SubjectAccessReview) {
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprint(w, secret)
		},
		"a redirect to who allows": func(w http.ResponseWriter, r *http.Request, _ *authorizationv1.SubjectAccessReview) {
			http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
		},
		"not a review": func(w http.ResponseWriter, _ *http.Request, _ *authorizationv1.SubjectAccessReview) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"status":{"allowed":true}`, secret)
		},
		"an answer without end": func(w http.ResponseWriter, r *http.Request, _ *authorizationv1.SubjectAccessReview) {
			w.Header().Set("Content-Type", "application/json")
			for r.Context().Err() == nil {
				if _, err := fmt.Fprint(w, strings.Repeat(secret, 1000)); err != nil {
					return
				}
			}
		},
		"both allowed and denied": says(authorizationv1.SubjectAccessReviewStatus{Allowed: true, Denied: true}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, answer)
			timeout := "400ms"
			if name == "both allowed and denied" { // the only webhook that responds, on a busy machine slowly
				timeout = "30s"
			}
			for policy, want := range map[string]authorizer.Decision{"Deny": deny, "NoOpinion": none} {
				entry := webhookEntry("gate", kubeconfigOf(t, s.URL, s.RootPEM), timeout, policy)
				got, reason, err := open(t, Config{File: configFile(t, entry)}).Authorize(t.Context(), getPod(alice))
				if name == "both allowed and denied" {
					want = deny // the webhook did respond, with an ambiguous result
				}
				if got != want || err == nil {
					t.Fatalf("Authorize with the policy %s = %v, %q, %v, want %v and an error", policy, got, reason, err, want)
				}
				if told := reason + err.Error(); !strings.Contains(told, `"gate"`) || strings.Contains(told, secret) || strings.Contains(told, "127.0.0.1") {
					t.Errorf("reason and error with the policy %s = %q, want the name gate, without the webhook's text and address", policy, told)
				}
			}
			// A later authorizer may still allow the request if the policy is NoOpinion.
			c := Config{File: configFile(t, webhookEntry("gate", kubeconfigOf(t, s.URL, s.RootPEM), timeout, "NoOpinion"), rbacEntry)}
			got, _, err := open(t, c).Authorize(t.Context(), getPod(reader))
			if want := allow; name != "both allowed and denied" && (got != want || err != nil) {
				t.Errorf("Authorize with RBAC after the webhook = %v, %v, want %v", got, err, want)
			}
		})
	}
	if n := len(elsewhere.calls()); n != 0 {
		t.Errorf("%d redirects were followed, want 0", n)
	}
}

func TestWebhookConnectionsUseConfiguredDial(t *testing.T) {
	s := serve(t, allows)
	var dialled atomic.Int32
	a := open(t, Config{
		File: configFile(t, webhookEntry("w", kubeconfigOf(t, s.URL, s.RootPEM), "30s", "Deny")),
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			dialled.Add(1)
			return new(net.Dialer).DialContext(ctx, network, address)
		},
	})
	if decision, _, err := a.Authorize(t.Context(), getPod(alice)); decision != authorizer.DecisionAllow || err != nil || dialled.Load() == 0 {
		t.Errorf("Authorize() = %v, %v with %d dialed connections, want allowed over Dial", decision, err, dialled.Load())
	}
}

func TestWebhookWithWrongServerNameIsRejected(t *testing.T) {
	s, other := serve(t, allows), serve(t, allows)
	a := open(t, Config{File: configFile(t, webhookEntry("gate", kubeconfigOf(t, s.URL, other.RootPEM), "30s", "Deny"))})
	if got, _, err := a.Authorize(t.Context(), getPod(alice)); got != deny || err == nil || len(s.calls()) != 0 {
		t.Fatalf("Authorize with the wrong CA = %v, %v and %d calls, want %v, an error and 0", got, err, len(s.calls()), deny)
	}
}

// A webhook that does not respond delays only the requests that require it, each until its deadline, and a limited number of them at once.
// Other requests do not wait.
func TestHungWebhookDelaysOnlyItsOwnRequests(t *testing.T) {
	arrived := make(chan struct{}, maxCalls)
	s := serve(t, func(w http.ResponseWriter, r *http.Request, review *authorizationv1.SubjectAccessReview) {
		arrived <- struct{}{}
		neverSays(w, r, review)
	})
	c := complete(Config{File: configFile(t, rbacEntry, webhookEntry("gate", kubeconfigOf(t, s.URL, s.RootPEM), "30s", "NoOpinion"))})
	a, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	for i := range maxCalls {
		waiting.Go(func() {
			question := getPod(alice)
			question.Name = fmt.Sprint(i)
			if got, _, err := a.Authorize(ctx, question); got != none || err == nil {
				t.Errorf("canceled Authorize() = %v, %v, want %v and an error", got, err, none)
			}
		})
	}
	for range maxCalls {
		select {
		case <-arrived:
		case <-time.After(20 * time.Second):
			t.Fatalf("%d calls did not reach the webhook within 20 seconds, want all", maxCalls)
		}
	}
	if got, _, err := a.Authorize(ctx, getPod(reader)); got != allow || err != nil {
		t.Errorf("Authorize by RBAC while the webhook hangs = %v, %v, want %v", got, err, allow)
	}
	if got, _, err := a.Authorize(ctx, getPod(master)); got != allow || err != nil {
		t.Errorf("Authorize of system:masters while the webhook hangs = %v, %v, want %v", got, err, allow)
	}
	if got, _, err := a.Authorize(ctx, getPod(alice)); got != none || err == nil || !strings.Contains(err.Error(), "too many calls") {
		t.Errorf("Authorize beyond the limit of calls = %v, %v, want %v and the error too many calls", got, err, none)
	}
	cancel()
	waiting.Wait()
	a.current.Current().close()
	if n := testutil.ToFloat64(c.Metrics.Decisions.WithLabelValues("RBAC", "rbac", "allowed")); n != 1 {
		t.Errorf("counted decisions of RBAC = %v, want 1", n)
	}
}

// Without a share for each user, requests of one user occupied all calls to a slow webhook, and requests of other users failed.
func TestA53OneUserCannotOccupyAllWebhookCalls(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request, review *authorizationv1.SubjectAccessReview) {
		if review.Spec.User == alice.GetName() {
			neverSays(w, r, review)
			return
		}
		allows(w, r, review)
	})
	a := open(t, Config{File: configFile(t, webhookEntry("gate", kubeconfigOf(t, s.URL, s.RootPEM), "30s", "NoOpinion"))})
	ctx, cancel := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	defer waiting.Wait()
	defer cancel()
	refused := make(chan struct{}, 2*maxCalls)
	for i := range 2 * maxCalls {
		waiting.Go(func() {
			question := getPod(alice)
			question.Name = fmt.Sprint(i)
			if _, _, err := a.Authorize(apirequest.WithUser(ctx, alice), question); err != nil && strings.Contains(err.Error(), "too many calls") {
				refused <- struct{}{}
			}
		})
	}
	for range maxCalls { // the remaining calls are pending
		select {
		case <-refused:
		case <-time.After(time.Minute):
			t.Fatal("less than half of one user's calls were rejected within a minute, want half")
		}
	}
	if got, _, err := a.Authorize(apirequest.WithUser(t.Context(), reader), getPod(reader)); got != allow || err != nil {
		t.Errorf("Authorize of another user = %v, %v, want %v", got, err, allow)
	}
}

// KEP-4601: a webhook receives the selectors of a list or watch. RBAC ignores them.
func TestSelectorsAreSentToWebhooks(t *testing.T) {
	s := serve(t, allows)
	a := open(t, Config{File: configFile(t, rbacEntry, webhookEntry("gate", kubeconfigOf(t, s.URL, s.RootPEM), "30s", "Deny"))})
	question := getPod(alice)
	question.Verb, question.Name = "list", ""
	fieldSelector, err := fields.ParseSelector("spec.nodeName=node-1,status.phase!=Failed")
	if err != nil {
		t.Fatal(err)
	}
	question.FieldSelectorRequirements = fieldSelector.Requirements()
	labelSelector, err := labels.Parse("app in (a,b),!old")
	if err != nil {
		t.Fatal(err)
	}
	question.LabelSelectorRequirements, _ = labelSelector.Requirements()
	if got, _, err := a.Authorize(t.Context(), question); got != allow || err != nil {
		t.Fatalf("Authorize with selectors = %v, %v, want %v", got, err, allow)
	}
	spec := s.calls()[0].Spec
	if spec.User != "alice" || spec.UID != "7" || spec.Groups[0] != "dev" || spec.Extra["scope"][0] != "all" {
		t.Errorf("user in the review = %+v, want alice with UID 7, group dev and scope all", spec)
	}
	r := spec.ResourceAttributes
	if len(r.FieldSelector.Requirements) != 2 || r.FieldSelector.Requirements[0].Key != "spec.nodeName" ||
		r.FieldSelector.Requirements[1].Operator != metav1.FieldSelectorOpNotIn {
		t.Errorf("field selector in the review = %+v, want two requirements, the second NotIn", r.FieldSelector)
	}
	if len(r.LabelSelector.Requirements) != 2 || len(r.LabelSelector.Requirements[0].Values) != 2 {
		t.Errorf("label selector in the review = %+v, want two requirements, the first with two values", r.LabelSelector)
	}
	question.User, question.Verb, question.Name = reader, "get", "p"
	if got, reason, err := a.Authorize(t.Context(), question); got != allow || !strings.HasPrefix(reason, "RBAC") || err != nil {
		t.Errorf("Authorize by RBAC with selectors = %v, %q, %v, want %v by RBAC", got, reason, err, allow)
	}
}

func TestUnmetMatchConditionsSkipWebhook(t *testing.T) {
	s := serve(t, denies)
	conditions := `matchConditions: [{expression: "has(request.resourceAttributes)"}, {expression: "request.resourceAttributes.namespace == 'ns'"}, ` +
		`{expression: "request.extra['scope'][0] == 'all'"}]`
	elsewhere := getPod(alice)
	elsewhere.Namespace = "other"
	scopeless := getPod(reader)
	for policy, failed := range map[string]authorizer.Decision{"Deny": deny, "NoOpinion": none} {
		for name, c := range map[string]struct {
			question authorizer.Attributes
			want     authorizer.Decision
			calls    int
			wrong    bool
		}{
			"all hold":                  {getPod(alice), deny, 1, false},
			"one does not":              {elsewhere, none, 0, false},
			"a path":                    {authorizer.AttributesRecord{User: alice, Verb: "get", Path: "/metrics"}, none, 0, false},
			"one has no value for this": {scopeless, failed, 0, true},
		} {
			t.Run(policy+" "+name, func(t *testing.T) {
				a := open(t, Config{File: configFile(t, webhookEntry("gate", kubeconfigOf(t, s.URL, s.RootPEM), "30s", policy, conditions))})
				before := len(s.calls())
				got, _, err := a.Authorize(t.Context(), c.question)
				if got != c.want || len(s.calls())-before != c.calls || (err != nil) != c.wrong {
					t.Fatalf("Authorize() = %v after %d calls, %v, want %v after %d, error = %t", got, len(s.calls())-before, err, c.want, c.calls, c.wrong)
				}
			})
		}
	}
}

func TestWebhookDecisionsAreCachedForConfiguredTTL(t *testing.T) {
	for name, c := range map[string]struct {
		answer func(http.ResponseWriter, *http.Request, *authorizationv1.SubjectAccessReview)
		more   string
		calls  int
	}{
		"allowed":                      {allows, "authorizedTTL: 5m", 1},
		"allowed, not to be kept":      {allows, "cacheAuthorizedRequests: false", 3},
		"not allowed":                  {isSilent, "unauthorizedTTL: 5m", 1},
		"not allowed, not to be kept":  {isSilent, "cacheUnauthorizedRequests: false", 3},
		"denied, by the same settings": {denies, "cacheUnauthorizedRequests: false", 3},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, c.answer)
			a := open(t, Config{File: configFile(t, webhookEntry("gate", kubeconfigOf(t, s.URL, s.RootPEM), "30s", "Deny", c.more))})
			for range 3 {
				if _, _, err := a.Authorize(t.Context(), getPod(alice)); err != nil {
					t.Fatal(err)
				}
			}
			if n := len(s.calls()); n != c.calls {
				t.Errorf("%d calls for three equal requests, want %d", n, c.calls)
			}
		})
	}
}

func TestConfiguredAccessReviewVersionIsSent(t *testing.T) {
	for flag, want := range map[string]string{"": "authorization.k8s.io/v1beta1", "v1beta1": "authorization.k8s.io/v1beta1", "v1": "authorization.k8s.io/v1"} {
		s := serve(t, allows)
		a := open(t, Config{Modes: []string{ModeWebhook}, WebhookVersion: flag, WebhookConfigFile: kubeconfigOf(t, s.URL, s.RootPEM)})
		if got, _, err := a.Authorize(t.Context(), getPod(alice)); got != allow || err != nil {
			t.Fatalf("Authorize with the version %q = %v, %v, want %v", flag, got, err, allow)
		}
		if got := s.calls()[0].APIVersion; got != want {
			t.Errorf("version of the review for %q = %s, want %s", flag, got, want)
		}
	}
}
