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
	maxErrorBytes  = 64 << 10 // what is read of a response that is no success
	maxQuotedBytes = 256      // of a body that is no Status
)

// Error is a response other than success.
type Error struct {
	Method, Path string
	// Code is the HTTP status, Reason that of the Status in the body, empty where the body is none.
	Code   int
	Reason metav1.StatusReason
	// Message is that of the Status, else the beginning of the body in quotes.
	Message string

	status metav1.Status
}

// Error is one line, with the next step where that is known.
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

// StatusError is the response as client-go would return it, for code that decides by the predicates of
// k8s.io/apimachinery/pkg/api/errors.
func (e *Error) StatusError() *apierrors.StatusError {
	return &apierrors.StatusError{ErrStatus: e.status}
}

// HasReason reports whether err is an *Error whose Status has this reason.
func HasReason(err error, reason metav1.StatusReason) bool {
	var e *Error
	return errors.As(err, &e) && e.Reason == reason
}

func responseError(r Request, response *http.Response) *Error {
	body, _ := io.ReadAll(io.LimitReader(response.Body, maxErrorBytes)) // what could be read is what there is to say
	e := &Error{Method: r.Method, Path: r.Path, Code: response.StatusCode}
	isStatus := json.Unmarshal(body, &e.status) == nil && e.status.Kind == "Status"
	if isStatus {
		e.Reason, e.Message = e.status.Reason, e.status.Message
	} else if len(body) > 0 {
		e.Message = fmt.Sprintf("%q", body[:min(len(body), maxQuotedBytes)])
	}
	if !isStatus || e.status.Code == 0 {
		seconds, _ := strconv.Atoi(response.Header.Get("Retry-After")) // a date or nonsense counts as none
		e.status = apierrors.NewGenericServerResponse(response.StatusCode, r.Method, schema.GroupResource{Resource: r.Path}, "",
			string(body[:min(len(body), 4*maxQuotedBytes)]), seconds, true).ErrStatus
	}
	return e
}
