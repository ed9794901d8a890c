package garbage

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// requestTimeout is for everything that a worker asks or writes.
const requestTimeout = 10 * time.Second

// errNotLeading: another replica collects by now.
var errNotLeading = errors.New("this replica does not lead any more")

// ask makes one request of a group-version that answers, when it has a seat.
func (t *term) ask(ctx context.Context, gv GroupVersion, request func(context.Context) error) error {
	if !t.rules.serves(gv) {
		return &unsureError{gv, "is not available: " + gv.Reason}
	}
	leave, err := t.turns.enter(gv)
	if err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	err = request(bounded)
	leave(ctx.Err() != nil || answered(err))
	return err
}

// write is ask for what changes something.
func (t *term) write(ctx context.Context, gv GroupVersion, request func(context.Context) error) error {
	if !t.leads() {
		return errNotLeading
	}
	return t.ask(ctx, gv, request)
}

// answered reports whether somebody was there who could say what is the matter with the object. Errors of the server
// itself count as that: one broken object must not keep its whole group-version waiting.
func answered(err error) bool {
	var status apierrors.APIStatus
	if err == nil {
		return true
	}
	if !errors.As(err, &status) {
		return false
	}
	switch status.Status().Code {
	case http.StatusServiceUnavailable, http.StatusBadGateway, http.StatusGatewayTimeout, http.StatusTooManyRequests:
		return false
	}
	return true
}

// serving is the group-version through which an object is reached.
func (t *term) serving(at coordinates) (GroupVersion, error) {
	d := t.cfg.Discovery()
	if d == nil || !d.Synced {
		return GroupVersion{}, &laterError{time.Second, "discovery is not complete yet"}
	}
	gv := d.lookup(at.GroupVersion())
	if _, ok := gv.resource(at.Resource); !ok {
		return gv, &unsureError{gv, fmt.Sprintf("does not serve %s", at.Resource)}
	}
	return gv, nil
}
