package frontdoor

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const maxQuoted = 256 // bytes of a refusal that is no Status

// Refusal is an answer of the front door other than success.
type Refusal struct {
	Code   int
	Reason metav1.StatusReason
	// Text says what was asked, what the answer was, and what to do where that is known.
	Text string
}

func (r *Refusal) Error() string { return r.Text }

// Refused reports whether err is a refusal for this reason.
func Refused(err error, reason metav1.StatusReason) bool {
	var r *Refusal
	return errors.As(err, &r) && r.Reason == reason
}

func refusal(method, path string, code int, body []byte) error {
	r := &Refusal{Code: code, Text: fmt.Sprintf("%s %s: the front door answered %d", method, path, code)}
	var status metav1.Status
	if json.Unmarshal(body, &status) == nil && status.Kind == "Status" {
		r.Reason = status.Reason
		r.Text += ": " + status.Message
	} else if len(body) > 0 {
		r.Text += fmt.Sprintf(": %q", body[:min(len(body), maxQuoted)])
	}
	switch code {
	case http.StatusForbidden:
		r.Text += "; the extension server's own identity lacks this right, see extserver manifests"
	case http.StatusUnauthorized:
		r.Text += "; the front door does not accept the credentials of the extension server's kubeconfig"
	}
	return r
}
