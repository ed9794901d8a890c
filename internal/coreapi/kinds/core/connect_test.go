package core

import (
	"context"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"portico.dev/internal/coreapi/registry"
)

// mayOnly is an authorizer that allows one verb and records the attributes of each check.
type mayOnly struct {
	authorizer.Authorizer
	verb  string
	asked []string
}

func (m *mayOnly) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	m.asked = append(m.asked, a.GetVerb()+" "+a.GetResource()+"/"+a.GetSubresource())
	if a.GetVerb() == m.verb {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "no rule allows it", nil
}

// reached is a Connector that records a call.
type reached struct{ registry.Connector }

func (reached) Exec(context.Context, registry.Objects, string, *corev1.PodExecOptions) (http.Handler, error) {
	return http.NotFoundHandler(), nil
}

func (reached) Attach(context.Context, registry.Objects, string, *corev1.PodAttachOptions) (http.Handler, error) {
	return http.NotFoundHandler(), nil
}

func (reached) PortForward(context.Context, registry.Objects, string, *corev1.PodPortForwardOptions) (http.Handler, error) {
	return http.NotFoundHandler(), nil
}

// A websocket begins with a GET. The right to get is not enough to open a console.
func TestK6WebSocketExecNeedsTheRightToCreate(t *testing.T) {
	for path, options := range map[string]runtime.Object{
		"exec": &corev1.PodExecOptions{}, "attach": &corev1.PodAttachOptions{}, "portforward": &corev1.PodPortForwardOptions{},
	} {
		for _, c := range []struct {
			verb, may string
			asked     int
			allowed   bool
		}{
			{"get", "get", 1, false},
			{"get", "create", 1, true},
			{"create", "get", 0, true}, // the handler chain has checked it
		} {
			m := &mayOnly{verb: c.may}
			e := &registry.Environment{Connector: reached{}, Authorizer: m}
			s := podConnections(e)["pods/"+path].(rest.Connecter)
			ctx := apirequest.WithUser(apirequest.WithNamespace(t.Context(), "ns"), &user.DefaultInfo{Name: "jane"})
			ctx = apirequest.WithRequestInfo(ctx, &apirequest.RequestInfo{
				IsResourceRequest: true, Verb: c.verb, APIVersion: "v1", Namespace: "ns", Resource: "pods", Subresource: path, Name: "a",
			})
			_, err := s.Connect(ctx, "a", options, nil)
			if c.allowed != (err == nil) || !c.allowed && !apierrors.IsForbidden(err) || len(m.asked) != c.asked {
				t.Errorf("%s of %s with the right to %s: error = %v, checks %q, want allowed %v and %d checks", c.verb, path, c.may, err, m.asked, c.allowed, c.asked)
			}
		}
	}
}

// The subresources exist without a Connector and report that no node is reachable.
func TestConnectWithoutConnectorReturns503(t *testing.T) {
	e := &registry.Environment{}
	if _, err := nodeStorages(e, nil)["nodes/proxy"].(rest.Connecter).Connect(t.Context(), "n", &corev1.NodeProxyOptions{}, nil); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("nodes/proxy without a Connector: error = %v, want ServiceUnavailable", err)
	}
	if _, err := podConnections(e)["pods/log"].(rest.GetterWithOptions).Get(t.Context(), "a", &corev1.PodLogOptions{}); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("pods/log without a Connector: error = %v, want ServiceUnavailable", err)
	}
}
