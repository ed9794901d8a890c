package dispatch

import (
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico.dev/internal/filters"
	"portico.dev/internal/respond"
	"portico.dev/internal/routes/v1alpha1"
	"portico.dev/internal/routetable"
)

// unavailable returns 503 for a route with a backend that is not available.
type unavailable struct{ route *routetable.Route }

// Serve implements Handler.
func (h *unavailable) Serve(w http.ResponseWriter, r *filters.Request) {
	r.Record.ServedBy = h.route.Name
	refuse(w, r, UnavailableStatus(h.route, r.AuditID))
}

// refuse responds with a Status and records its message.
func refuse(w http.ResponseWriter, r *filters.Request, refusal *apierrors.StatusError) {
	r.Record.Failed(refusal.ErrStatus.Message)
	respond.Error(w, r.Request, refusal)
}

func retryAfter(seconds int32) *metav1.StatusDetails {
	return &metav1.StatusDetails{RetryAfterSeconds: seconds}
}

// UnavailableStatus returns a Status with the APIService, the reason and the time of the last transition. Scripts
// match "currently unable to handle the request".
func UnavailableStatus(route *routetable.Route, auditID string) *apierrors.StatusError {
	c := route.Condition
	group, kind, name, subject := "apiregistration.k8s.io", "APIService", route.Name, "APIService "+route.Name
	if route.Of != "" {
		group, kind, name = v1alpha1.GroupVersion.Group, "APIRoute", route.Of
		subject = "backend " + strings.TrimPrefix(route.Name, route.Of+"/") + " of APIRoute " + route.Of
	}
	message := "the server is currently unable to handle the request: " + subject + " is unavailable"
	if c.Reason != "" {
		message += " (" + c.Reason
		if !c.LastTransitionTime.IsZero() {
			message += " since " + c.LastTransitionTime.UTC().Format(timeFormat)
		}
		message += ")"
	}
	if c.Message != "" {
		message += ": " + c.Message
	}
	status := apierrors.NewServiceUnavailable(message)
	status.ErrStatus.Details = &metav1.StatusDetails{
		Group:  group,
		Kind:   kind,
		Name:   name,
		Causes: []metav1.StatusCause{{Type: metav1.CauseType(c.Reason), Message: c.Message}},
	}
	respond.AddAuditID(&status.ErrStatus, auditID)
	return status
}

const timeFormat = "2006-01-02T15:04:05Z"
