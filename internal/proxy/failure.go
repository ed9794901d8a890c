package proxy

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico.dev/internal/httpengine/httpmsg"
	"portico.dev/internal/respond"
	"portico.dev/internal/transport"
)

// statusClientGone is nginx's code for a request after its client disconnected. It appears only in the log and in the audit
// event.
const statusClientGone = 499

// responseError is an invalid response of a backend.
type responseError struct {
	reason string
	text   string
	code   int
}

func (e *responseError) Error() string { return fmt.Sprintf("the backend %s (%d)", e.text, e.code) }

// badRequestError is a request that is not forwarded because of a client error.
type badRequestError struct{ text string }

func (e *badRequestError) Error() string { return e.text }

// fail writes a Status that contains the part of err that the client may see, and logs the complete error.
func (x *exchange) fail(err error) {
	status := x.statusOf(err)
	x.request.Record.Failed(status.ErrStatus.Message)
	mistake := isClientFault(status.ErrStatus.Code)
	fields := append(x.fields(), zap.Int32("code", status.ErrStatus.Code), zap.String("told", status.ErrStatus.Message), zap.Error(err))
	var failed *transport.Error
	if errors.As(err, &failed) {
		mistake = mistake || failed.Class == transport.ClassRequest
		fields = append(fields, zap.String("endpoint", failed.Endpoint), zap.Bool("sent", failed.Sent), zap.Int("attempts", failed.Attempts))
	}
	switch {
	case mistake:
		x.proxy.log.Debug("request not served because of a client error", fields...)
	case x.dest.Quiet:
		x.proxy.log.Debug("request not served", fields...)
	default:
		x.proxy.log.Warn("request not served", fields...)
		x.count(status.ErrStatus.Code)
	}
	respond.Error(x.w, x.r, status)
}

// isClientFault reports whether code belongs to a failure that the backend did not cause.
func isClientFault(code int32) bool {
	switch code {
	case statusClientGone, http.StatusBadRequest, http.StatusForbidden, http.StatusRequestTimeout, http.StatusUnprocessableEntity,
		http.StatusRequestHeaderFieldsTooLarge:
		return true
	}
	return false
}

func (x *exchange) fields() []zap.Field {
	return []zap.Field{
		x.destinationField(),
		zap.String("method", x.r.Method),
		zap.String("path", x.r.URL.Path),
		zap.String("audit-id", x.request.AuditID),
	}
}

// statusOf returns the Status for err. It names the APIService and the kind of failure. Addresses, certificate names and
// backend messages appear only in the log (kubernetes/kubernetes#58070).
func (x *exchange) statusOf(err error) *apierrors.StatusError {
	var (
		limit    *transport.LimitError
		failed   *transport.Error
		lied     *responseError
		refused  *badRequestError
		identity *identityError
		unfit    *httpmsg.RequestError
		decided  *apierrors.StatusError
	)
	switch {
	case errors.Is(err, errClientGone):
		return x.status(statusClientGone, "ClientClosedRequest", "ClientGone", "the client left before there was an answer", 0)
	case errors.Is(err, errHeaderTimeout) && errors.Is(err, transport.ErrRequestBody):
		return x.status(http.StatusRequestTimeout, metav1.StatusReasonTimeout, "RequestBody", "the body of the request did not come in time", 0)
	case errors.As(err, &unfit):
		return apierrors.NewBadRequest(unfit.Reason)
	case errors.Is(err, errHeaderTimeout):
		return x.status(http.StatusGatewayTimeout, metav1.StatusReasonTimeout, "Timeout",
			fmt.Sprintf("it did not answer within %s, the time limit of the request", x.upstream.limit.Round(100*time.Millisecond)), 0)
	case errors.Is(err, transport.ErrHeaderTimeout): // the limit of a connection, for requests that may take longer
		return x.status(http.StatusGatewayTimeout, metav1.StatusReasonTimeout, "Timeout", "it did not answer in time", 0)
	case errors.As(err, &limit) && limit.Share:
		return x.status(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, "ConcurrencyLimit",
			"you already have as many requests there as one user may; try again", 1)
	case errors.As(err, &limit):
		return x.status(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, "ConcurrencyLimit",
			"it already serves as many requests as it may; try again", 1)
	case errors.As(err, &lied):
		return x.status(http.StatusBadGateway, metav1.StatusReason(lied.reason), metav1.CauseType(lied.reason), "it "+lied.text, 0)
	case errors.As(err, &decided):
		return decided
	case errors.As(err, &refused):
		return apierrors.NewBadRequest(refused.text)
	case errors.As(err, &identity):
		return x.status(identity.code, reasonOf(identity.code), "Identity", identity.text, 0)
	case errors.Is(err, errLoop):
		return x.status(http.StatusLoopDetected, "LoopDetected", "Loop",
			"the request was forwarded by a front door before, and leads back to one", 0)
	case errors.Is(err, errDraining):
		return x.status(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "Draining", "the front door is shutting down", 1)
	case errors.Is(err, transport.ErrRequestBody):
		return apierrors.NewBadRequest("the body of the request broke off, or is not one")
	case errors.As(err, &failed) && failed.Class == transport.ClassRequest:
		return apierrors.NewBadRequest("the request cannot be carried to the server that it is for: its protocol has no way to say it")
	case errors.As(err, &failed):
		return x.unreachedStatus(failed)
	}
	return apierrors.NewInternalError(errors.New("the request could not be forwarded; the server's log holds the details"))
}

// unreachedStatus returns the Status for a request that got no response.
func (x *exchange) unreachedStatus(e *transport.Error) *apierrors.StatusError {
	if e.Protocol {
		return x.status(http.StatusBadGateway, "BackendProtocol", "BackendProtocol", "it answered with something that is not HTTP", 0)
	}
	cause, text, passing := e.Explain()
	if t := x.target; t != nil {
		text = t.explain(cause, text)
	}
	if errors.Is(e.Err, transport.ErrUnresponsive) && x.target == nil {
		text += "; the condition " + x.proxy.config.Condition + " of the APIService says why"
	}
	retryAfter := int32(0)
	if !e.Sent && passing {
		retryAfter = 1
	}
	return x.status(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, metav1.CauseType(cause), text, retryAfter)
}

func (x *exchange) status(code int, reason metav1.StatusReason, cause metav1.CauseType, text string, retryAfter int32) *apierrors.StatusError {
	if t := x.target; t != nil {
		return t.status(code, reason, cause, text, retryAfter, x.request.AuditID)
	}
	message := "the extension server of APIService " + x.dest.APIService + " cannot serve the request: " + text
	if code == http.StatusServiceUnavailable {
		// Scripts and users search for this client-go message.
		message = "the server is currently unable to handle the request: APIService " + x.dest.APIService + ": " + text
	}
	e := &apierrors.StatusError{ErrStatus: metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    int32(code),
		Reason:  reason,
		Message: message,
		Details: &metav1.StatusDetails{
			Group:             "apiregistration.k8s.io",
			Kind:              "APIService",
			Name:              x.dest.APIService,
			Causes:            []metav1.StatusCause{{Type: cause, Message: text}},
			RetryAfterSeconds: retryAfter,
		},
	}}
	respond.AddAuditID(&e.ErrStatus, x.request.AuditID)
	return e
}

func reasonOf(code int) metav1.StatusReason {
	switch code {
	case http.StatusBadRequest:
		return metav1.StatusReasonBadRequest
	case http.StatusForbidden:
		return metav1.StatusReasonForbidden
	}
	return "RequestHeaderFieldsTooLarge"
}

// count increments apiserver_request_terminations_total, like kube-apiserver does for requests that its proxy terminates.
func (x *exchange) count(code int32) {
	m := x.proxy.config.Requests
	if m == nil {
		return
	}
	m.Terminations.WithLabelValues(x.info.Verb, x.info.APIGroup, x.info.APIVersion, x.info.Resource, x.info.Subresource,
		x.scope(), "aggregator", strconv.Itoa(int(code))).Inc()
}

func (x *exchange) scope() string {
	switch {
	case !x.info.IsResourceRequest:
		return ""
	case x.info.Name != "" && x.info.Verb != "list" && x.info.Verb != "watch":
		return "resource"
	case x.info.Namespace != "":
		return "namespace"
	}
	return "cluster"
}
