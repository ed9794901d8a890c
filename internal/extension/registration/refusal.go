package registration

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
)

// answerError is an answer of a front door that is no success.
type answerError struct {
	verb    string
	object  Manifest
	code    int
	message string
	missing bool // the object that was to be written was not there
}

func (e *answerError) Error() string {
	return fmt.Sprintf("%s %s: the front door answered %d: %s", e.verb, e.object, e.code, e.message)
}

// passing are the answers below 500 that the next attempt may change. A redirect is not among them: what was asked
// with our credentials is not asked elsewhere.
var passing = []int{http.StatusRequestTimeout, http.StatusConflict, http.StatusTooEarly, http.StatusTooManyRequests}

// final is whether asking again will not change the answer.
func (e *answerError) final() bool {
	return e.code < 500 && !slices.Contains(passing, e.code)
}

// RefusedError is a registration that a front door does not take from this server.
type RefusedError struct {
	// Err is every refusal, or what is wrong with the registration itself.
	Err error
	// Permissions are the rights that the server would need, one line each: "patch services/metrics in kube-system".
	Permissions []string
	// Objects are what an administrator applies instead, RBAC included: the output of "extserver manifests".
	Objects []Manifest

	answers []error
	missing bool
}

// Error is one line, with the next step.
func (e *RefusedError) Error() string {
	what := e.Err.Error()
	if len(e.answers) > 0 {
		what = e.answers[0].Error()
	}
	if more := len(e.answers) - 1; more > 0 {
		what += fmt.Sprintf(" (and %d more)", more)
	}
	for i, p := range e.Permissions {
		if i == 0 {
			what += "; this server needs the right to "
		} else {
			what += ", to "
		}
		what += p
	}
	return what + "; as an administrator: extserver manifests FLAGS | kubectl apply --server-side -f -, with the flags of this server" + e.hint()
}

// hint is what else there is to do.
func (e *RefusedError) hint() string {
	if e.missing {
		return " (with --create-registration among them it may create what is missing itself), or start it with --register=false"
	}
	return ", or start it with --register=false"
}

func (e *RefusedError) Unwrap() error { return e.Err }

func (e *RefusedError) add(no *answerError) {
	e.answers = append(e.answers, no)
	e.Err = errors.Join(e.answers...)
	if no.code != http.StatusForbidden {
		return
	}
	verb := "patch "
	if no.missing {
		verb, e.missing = "create ", true
	}
	p := verb + plurals[no.object.text("kind")] + "/" + no.object.meta("name")
	if ns := no.object.meta("namespace"); ns != "" {
		p += " in " + ns
	}
	if no.missing {
		p += ", which is missing"
	}
	if !slices.Contains(e.Permissions, p) {
		e.Permissions = append(e.Permissions, p)
	}
}
