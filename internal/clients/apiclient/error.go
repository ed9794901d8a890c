package apiclient

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	maxErrorBytes  = 64 << 10 // bytes read from the body of an unsuccessful response
	maxQuotedBytes = 256      // bytes quoted from a body that is not a Status
)

// Error is an unsuccessful response.
type Error struct {
	Method, Path string
	// Code is the HTTP status code. Reason is the reason in the Status, empty if the body is not a Status.
	Code   int
	Reason metav1.StatusReason
	// Message is the message in the Status, or otherwise the quoted beginning of the body.
	Message string

	status metav1.Status
}

// Error returns a single line, with the next step if it is known.
func (e *Error) Error() string {
	text := fmt.Sprintf("%s %s: the front door answered %d", e.Method, e.Path, e.Code)
	if e.Message != "" {
		text += ": " + e.Message
	}
	switch e.Code {
	case http.StatusForbidden:
		text += "; the extension server's own identity lacks this right, see extserver manifests"
	case http.StatusUnauthorized:
		text += "; the front door does not accept the credentials of the extension server's kubeconfig"
	}
	return text
}

// StatusError returns the error that client-go would return for the response, for code that uses the predicates of
// k8s.io/apimachinery/pkg/api/errors.
func (e *Error) StatusError() *apierrors.StatusError {
	return &apierrors.StatusError{ErrStatus: e.status}
}

// HasReason reports whether err is an *Error with a Status of this reason.
func HasReason(err error, reason metav1.StatusReason) bool {
	var e *Error
	return errors.As(err, &e) && e.Reason == reason
}

func responseError(r Request, response *http.Response) *Error {
	body, _ := io.ReadAll(io.LimitReader(response.Body, maxErrorBytes)) // use the part that was read
	e := &Error{Method: r.Method, Path: r.Path, Code: response.StatusCode}
	isStatus := json.Unmarshal(body, &e.status) == nil && e.status.Kind == "Status"
	if isStatus {
		e.Reason, e.Message = e.status.Reason, e.status.Message
	} else if len(body) > 0 {
		e.Message = fmt.Sprintf("%q", body[:min(len(body), maxQuotedBytes)])
	}
	if !isStatus || e.status.Code == 0 {
		seconds, _ := strconv.Atoi(response.Header.Get("Retry-After")) // a date or an invalid value counts as none
		e.status = apierrors.NewGenericServerResponse(response.StatusCode, r.Method, schema.GroupResource{Resource: r.Path}, "",
			string(body[:min(len(body), 4*maxQuotedBytes)]), seconds, true).ErrStatus
	}
	return e
}
