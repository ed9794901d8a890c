package coreapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/google/uuid"

	"portico.dev/internal/request"
)

func TestTokenReviews(t *testing.T) {
	h := start(t)
	client := h.typed(t, admin)
	for _, c := range []struct {
		name, token   string
		audiences     []string
		authenticated bool
		problem       string
	}{
		{name: "a good token", token: "good", authenticated: true},
		{name: "a good token for the audience that asks", token: "good", audiences: []string{"local"}, authenticated: true},
		{name: "a token for somebody else", token: "good", audiences: []string{"elsewhere"}, problem: "audiences"},
		{name: "a token that nobody knows", token: "unknown", problem: "invalid bearer token"},
		{name: "a token that is forged", token: "bad", problem: "signature"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := client.AuthenticationV1().TokenReviews().Create(within(t),
				&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: c.token, Audiences: c.audiences}}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if got.Status.Authenticated != c.authenticated || !strings.Contains(got.Status.Error, c.problem) || (c.problem == "") != (got.Status.Error == "") {
				t.Fatalf("status = %+v, want authenticated %v and an error that contains %q", got.Status, c.authenticated, c.problem)
			}
			if c.authenticated && (got.Status.User.Username != "jane" || got.Status.User.Extra["key"][0] != "value" || got.Status.Audiences[0] != "local") {
				t.Fatalf("status = %+v, want the user jane, the extra key=value and the audience local", got.Status)
			}
			if !c.authenticated && got.Status.User.Username != "" {
				t.Fatalf("user of an invalid token = %+v, want none", got.Status)
			}
		})
	}
	t.Run("no token", func(t *testing.T) {
		_, err := client.AuthenticationV1().TokenReviews().Create(within(t), &authenticationv1.TokenReview{}, metav1.CreateOptions{})
		if !apierrors.IsBadRequest(err) {
			t.Fatalf("review without a token: error = %v, want BadRequest", err)
		}
	})
}

func TestSelfSubjectReviewReturnsTheUser(t *testing.T) {
	h := start(t)
	me := &user.DefaultInfo{Name: "me", UID: "1", Groups: []string{"g"}, Extra: map[string][]string{"k": {"v"}}}
	got, err := h.typed(t, me).AuthenticationV1().SelfSubjectReviews().Create(within(t), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil || got.Status.UserInfo.Username != "me" || got.Status.UserInfo.UID != "1" || got.Status.UserInfo.Extra["k"][0] != "v" || got.CreationTimestamp.IsZero() {
		t.Fatalf("SelfSubjectReview = %+v, %v, want the user me with UID 1, its extra and a creationTimestamp", got, err)
	}
}

func TestAccessReviews(t *testing.T) {
	h := start(t)
	client := h.typed(t, admin)
	read := &authorizationv1.ResourceAttributes{Verb: "get", Resource: "pods", Namespace: "work"}
	for _, c := range []struct {
		name, user      string
		attributes      *authorizationv1.ResourceAttributes
		path            *authorizationv1.NonResourceAttributes
		allowed, denied bool
		problem         string
	}{
		{name: "allowed", user: "viewer", attributes: read, allowed: true},
		{name: "no opinion is not allowed", user: "stranger", attributes: read},
		{name: "denied", user: "banned", attributes: read, denied: true},
		{name: "a path", user: "viewer", path: &authorizationv1.NonResourceAttributes{Verb: "get", Path: "/version"}, allowed: true},
		{name: "rules that cannot be read", user: "broken", attributes: read, problem: "cannot be read"},
		{name: "a selector that cannot be read", user: "viewer", allowed: true, problem: "fieldSelector", attributes: &authorizationv1.ResourceAttributes{
			Verb: "list", Resource: "pods", FieldSelector: &authorizationv1.FieldSelectorAttributes{Requirements: []metav1.FieldSelectorRequirement{
				{Key: "spec.nodeName", Operator: metav1.FieldSelectorOpExists},
			}},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := client.AuthorizationV1().SubjectAccessReviews().Create(within(t), &authorizationv1.SubjectAccessReview{
				Spec: authorizationv1.SubjectAccessReviewSpec{User: c.user, ResourceAttributes: c.attributes, NonResourceAttributes: c.path},
			}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if got.Status.Allowed != c.allowed || got.Status.Denied != c.denied ||
				!strings.Contains(got.Status.EvaluationError, c.problem) || (c.problem == "") != (got.Status.EvaluationError == "") {
				t.Fatalf("status = %+v, want allowed %v, denied %v and an error that contains %q", got.Status, c.allowed, c.denied, c.problem)
			}
		})
	}
	for name, spec := range map[string]authorizationv1.SubjectAccessReviewSpec{
		"nobody":                {ResourceAttributes: read},
		"nothing":               {User: "viewer"},
		"a resource and a path": {User: "viewer", ResourceAttributes: read, NonResourceAttributes: &authorizationv1.NonResourceAttributes{}},
	} {
		t.Run("a review of "+name+" is refused", func(t *testing.T) {
			_, err := client.AuthorizationV1().SubjectAccessReviews().Create(within(t), &authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
			if !apierrors.IsInvalid(err) {
				t.Fatalf("SubjectAccessReview of %s: error = %v, want Invalid", name, err)
			}
		})
	}
	t.Run("of oneself", func(t *testing.T) {
		got, err := h.typed(t, &user.DefaultInfo{Name: "viewer"}).AuthorizationV1().SelfSubjectAccessReviews().Create(within(t),
			&authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: read}}, metav1.CreateOptions{})
		if err != nil || !got.Status.Allowed || got.Status.Reason != "viewers read" {
			t.Fatalf("SelfSubjectAccessReview = %+v, %v, want allowed with the reason \"viewers read\"", got, err)
		}
	})
	t.Run("in a namespace that need not exist", func(t *testing.T) {
		local := func(about string) (*authorizationv1.LocalSubjectAccessReview, error) {
			return client.AuthorizationV1().LocalSubjectAccessReviews("work").Create(within(t), &authorizationv1.LocalSubjectAccessReview{
				ObjectMeta: metav1.ObjectMeta{Namespace: "work"},
				Spec: authorizationv1.SubjectAccessReviewSpec{User: "viewer", ResourceAttributes: &authorizationv1.ResourceAttributes{
					Verb: "get", Resource: "pods", Namespace: about,
				}},
			}, metav1.CreateOptions{})
		}
		if got, err := local("work"); err != nil || !got.Status.Allowed {
			t.Fatalf("LocalSubjectAccessReview in work = %+v, %v, want allowed", got, err)
		}
		if _, err := local("other"); !apierrors.IsInvalid(err) {
			t.Fatalf("LocalSubjectAccessReview of another namespace: error = %v, want Invalid", err)
		}
	})
	t.Run("the rules of oneself", func(t *testing.T) {
		got, err := h.typed(t, &user.DefaultInfo{Name: "viewer"}).AuthorizationV1().SelfSubjectRulesReviews().Create(within(t),
			&authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: "partial"}}, metav1.CreateOptions{})
		if err != nil || !got.Status.Incomplete || len(got.Status.ResourceRules) != 1 || len(got.Status.NonResourceRules) != 1 {
			t.Fatalf("SelfSubjectRulesReview = %+v, %v, want an incomplete list with one rule of each type", got, err)
		}
	})
}

func TestLongTokenLifetimesAreShortened(t *testing.T) {
	h := start(t, func(c *Config) { c.MaxTokenExpiration = 2 * time.Hour })
	namespace(t, h.typed(t, admin), "work")
	if _, err := h.typed(t, admin).CoreV1().ServiceAccounts("work").Create(within(t), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for asked, want := range map[int64]struct {
		given   int64
		warning string
	}{
		3600:      {3600, ""},
		7200:      {7200, ""},
		7201:      {7200, "requested expiration of 7201 seconds shortened to 7200 seconds"},
		1 << 32:   {7200, "requested expiration of 4294967296 seconds shortened to 7200 seconds"},
		1<<32 + 1: {0, ""}, // always refused
	} {
		body := fmt.Sprintf(`{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{"expirationSeconds":%d}}`, asked)
		result := rawClient(t, h).Post().AbsPath("/api/v1/namespaces/work/serviceaccounts/robot/token").
			SetHeader("Content-Type", "application/json").Body([]byte(body)).Do(within(t))
		text, err := result.Raw()
		if want.given == 0 {
			if !apierrors.IsInvalid(err) {
				t.Errorf("token for %d seconds: error = %v, want Invalid", asked, err)
			}
			continue
		}
		var got authenticationv1.TokenRequest
		if err != nil || json.Unmarshal(text, &got) != nil || *got.Spec.ExpirationSeconds != want.given {
			t.Errorf("token for %d seconds = %s, %v, want %d seconds", asked, text, err, want.given)
			continue
		}
		if left := time.Until(got.Status.ExpirationTimestamp.Time); left > time.Duration(want.given)*time.Second {
			t.Errorf("token for %d seconds expires in %s, want at most %d seconds", asked, left, want.given)
		}
		var said []string
		for _, w := range result.Warnings() {
			said = append(said, w.Text)
		}
		if strings.Join(said, ";") != want.warning {
			t.Errorf("token for %d seconds: warnings = %q, want %q", asked, said, want.warning)
		}
	}
}

func TestServiceAccountTokens(t *testing.T) {
	h := start(t)
	client := h.typed(t, admin)
	namespace(t, client, "work")
	ctx := within(t)
	accounts := client.CoreV1().ServiceAccounts("work")
	for _, name := range []string{"robot", "other"} {
		if _, err := accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	pod, err := client.CoreV1().Pods("work").Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pod"}, Spec: corev1.PodSpec{
		ServiceAccountName: "robot", Containers: []corev1.Container{{Name: "c", Image: "i"}},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(account string, spec authenticationv1.TokenRequestSpec) (*authenticationv1.TokenRequest, error) {
		return accounts.CreateToken(ctx, account, &authenticationv1.TokenRequest{Spec: spec}, metav1.CreateOptions{})
	}
	bound := &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: "pod", UID: pod.UID}

	t.Run("of an account", func(t *testing.T) {
		got, err := ask("robot", authenticationv1.TokenRequestSpec{})
		if err != nil || got.Status.Token != "work/robot" || got.Name != "robot" || got.Namespace != "work" || !slices.Equal(got.Spec.Audiences, []string{"local"}) {
			t.Fatalf("token of an account = %+v, %v, want work/robot for the audience local", got, err)
		}
		if left := time.Until(got.Status.ExpirationTimestamp.Time); left < 58*time.Minute || left > time.Hour {
			t.Fatalf("the token expires in %s, want between 58m and 1h", left)
		}
	})
	t.Run("B5 of the account that is meant by its uid", func(t *testing.T) {
		robot, err := accounts.Get(ctx, "robot", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		askFor := func(uid types.UID) (*authenticationv1.TokenRequest, error) {
			return accounts.CreateToken(ctx, "robot", &authenticationv1.TokenRequest{ObjectMeta: metav1.ObjectMeta{UID: uid}}, metav1.CreateOptions{})
		}
		for _, uid := range []types.UID{"", robot.UID} {
			if got, err := askFor(uid); err != nil || got.UID != robot.UID || got.Status.Token == "" {
				t.Errorf("token with the UID %q = %v, %v, want one with the UID %s", uid, got, err, robot.UID)
			}
		}
		_, err = askFor("another")
		want := fmt.Sprintf(`Operation cannot be fulfilled on TokenRequest.authentication.k8s.io "robot": the UID in the token request (another) does not match the UID of the service account (%s)`, robot.UID)
		if !apierrors.IsConflict(err) || err.Error() != want {
			t.Errorf("token request with another UID: error = %v, want %s", err, want)
		}
	})
	t.Run("E4 the audit event has the id of the token", func(t *testing.T) {
		post := func(query string) map[string]string {
			event := audit.WithAuditContext(within(t))
			if err := audit.AuditContextFrom(event).Init(audit.RequestAuditConfig{Level: auditinternal.LevelMetadata}, nil); err != nil {
				t.Fatal(err)
			}
			r := httptest.NewRequest(http.MethodPost, "/api/v1/namespaces/work/serviceaccounts/robot/token"+query, strings.NewReader("{}"))
			r.Header.Set("Content-Type", "application/json")
			info, err := request.NewResolver().Info(r)
			if err != nil {
				t.Fatal(err)
			}
			answer := httptest.NewRecorder()
			h.Handler().ServeHTTP(answer, r.WithContext(apirequest.WithUser(apirequest.WithRequestInfo(event, info), admin)))
			if answer.Code != http.StatusCreated {
				t.Fatalf("POST of a token request = %d %s, want 201", answer.Code, answer.Body)
			}
			return audit.AuditContextFrom(event).GetEventAnnotations()
		}
		id := post("")["authentication.kubernetes.io/issued-credential-id"]
		if _, err := uuid.Parse(strings.TrimPrefix(id, "JTI=")); !strings.HasPrefix(id, "JTI=") || err != nil {
			t.Errorf("issued-credential-id = %q, want JTI= and a UUID", id)
		}
		if said := post("?dryRun=All"); said["authentication.kubernetes.io/issued-credential-id"] != "" {
			t.Errorf("audit annotations of a dry run = %v, want no issued-credential-id", said)
		}
	})
	t.Run("of a pod", func(t *testing.T) {
		got, err := ask("robot", authenticationv1.TokenRequestSpec{BoundObjectRef: bound})
		if err != nil || got.Status.Token != "work/robot/pod" {
			t.Fatalf("token of a pod = %+v, %v, want work/robot/pod", got, err)
		}
	})
	for name, c := range map[string]struct {
		account string
		spec    authenticationv1.TokenRequestSpec
		refused func(error) bool
	}{
		"of an account that is not there": {"nobody", authenticationv1.TokenRequestSpec{}, apierrors.IsNotFound},
		"of a pod of another account":     {"other", authenticationv1.TokenRequestSpec{BoundObjectRef: bound}, apierrors.IsBadRequest},
		"for five minutes":                {"robot", authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(300))}, apierrors.IsInvalid},
		"of a pod that was replaced": {"robot", authenticationv1.TokenRequestSpec{BoundObjectRef: &authenticationv1.BoundObjectReference{
			APIVersion: "v1", Kind: "Pod", Name: "pod", UID: "another",
		}}, apierrors.IsConflict},
		"of a service": {"robot", authenticationv1.TokenRequestSpec{BoundObjectRef: &authenticationv1.BoundObjectReference{
			APIVersion: "v1", Kind: "Service", Name: "s",
		}}, apierrors.IsBadRequest},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := ask(c.account, c.spec); !c.refused(err) {
				t.Fatalf("token request: error = %v, want a refusal", err)
			}
		})
	}
}
