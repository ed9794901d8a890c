package server

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// fails has no decision, or one that it failed to reach.
type fails struct{ decision authorizer.Decision }

func (f fails) Authorize(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
	return f.decision, "", errors.New(`authorization webhook "gate" failed`)
}

// Clients give up after a 403. When nobody could decide they are to come back.
func TestAnAuthorizerThatFailsIsA500(t *testing.T) {
	for _, decision := range []authorizer.Decision{authorizer.DecisionNoOpinion, authorizer.DecisionDeny} {
		b := newBench()
		b.config.Authorizer = fails{decision}
		w := b.do(t, http.MethodGet, "/api/v1/pods", "Test-User: alice")
		if w.Code != http.StatusInternalServerError || !strings.Contains(w.Body.String(), "gate") || len(b.reached) != 0 {
			t.Errorf("%v: %d %s", decision, w.Code, w.Body)
		}
		if e := b.events[0]; e.Annotations["authorization.k8s.io/decision"] != "forbid" {
			t.Errorf("audited as %v", e.Annotations)
		}
	}
}
