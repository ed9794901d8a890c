package server

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// fails is an authorizer that returns its decision together with an error.
type fails struct{ decision authorizer.Decision }

func (f fails) Authorize(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
	return f.decision, "", errors.New(`authorization webhook "gate" failed`)
}

// Clients give up after a 403. They retry after a 500, which reports an authorizer that could not decide.
func TestAuthorizerErrorReturns500(t *testing.T) {
	for _, decision := range []authorizer.Decision{authorizer.DecisionNoOpinion, authorizer.DecisionDeny} {
		b := newBench()
		b.config.Authorizer = fails{decision}
		w := b.do(t, http.MethodGet, "/api/v1/pods", "Test-User: alice")
		if w.Code != http.StatusInternalServerError || !strings.Contains(w.Body.String(), "gate") || len(b.reached) != 0 {
			t.Errorf("response for the decision %v with an error = %d %s with %d calls of the handler, want 500 that names the gate, and 0", decision, w.Code, w.Body, len(b.reached))
		}
		if e := b.events[0]; e.Annotations["authorization.k8s.io/decision"] != "forbid" {
			t.Errorf("audit annotations for the decision %v with an error = %v, want authorization.k8s.io/decision=forbid", decision, e.Annotations)
		}
	}
}
