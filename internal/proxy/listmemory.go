package proxy

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"portico.dev/internal/overload"
	"portico.dev/internal/transport"
)

// ListMemory is the budget for the lists and events that a Proxy holds as a whole, to convert or to merge them. Bytes are
// charged before they are read. A request that waits for a backend's response header holds nothing.
//
// While a list is read and converted, it is charged to its backend. A slow backend can therefore use no more than a
// backend's share and delays only its own lists. While a response is written, it is charged to the user, so that a client
// that does not read delays only lists of the same user.
type ListMemory struct {
	// Shares divides the budget among backends and users. If nil, the Proxy creates a budget for itself.
	Shares *transport.Shares
	// Limit is the size of the budget in bytes.
	Limit int64

	wait time.Duration // limits the wait for memory that is in use
}

const (
	// defaultListMemory is the size of the budget that a Proxy creates for itself.
	defaultListMemory = 512 << 20
	// listFactor is the memory for each byte of a list: the body, the copies of its items and of their metadata, and the
	// response.
	listFactor = 4
	// unchargedList is the size up to which lists are not charged. The concurrency slots of backends limit small lists.
	unchargedList = 64 << 10
	// listStep is the number of bytes that are charged at a time.
	listStep = 64 << 10
	// maxListWait limits the wait for memory. It is short, because a waiting list keeps the bytes it has read.
	maxListWait = 5 * time.Second
	// unlimitedMemory is the limit for lists of privileged users, which are charged and never refused.
	unlimitedMemory = 1 << 50
)

func (m *ListMemory) setDefaults() {
	if m.Shares == nil {
		m.Shares, m.Limit = new(transport.Shares), defaultListMemory
	}
	m.wait = maxListWait
}

// maxList returns the size of the largest list that the share of one backend can hold.
func (m *ListMemory) maxList() int64 {
	return min(maxConverted, (m.Limit/5*4-listStep)/listFactor-2*listStep)
}

// take charges n bytes to owner, and waits for them for a limited time.
func (m *ListMemory) take(ctx context.Context, owner string, n, limit int64) error {
	var timeout <-chan time.Time
	for {
		freed := m.Shares.Freed()
		if ok, _ := m.Shares.Take(owner, n, limit); ok {
			return nil
		}
		if timeout == nil {
			timer := time.NewTimer(m.wait)
			defer timer.Stop()
			timeout = timer.C
		}
		select {
		case <-freed:
		case <-timeout:
			return errListMemory()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// errListMemory is returned if other lists use the memory.
func errListMemory() *apierrors.StatusError {
	e := apierrors.NewServiceUnavailable("other large lists are being converted or merged, and there is no memory for this one; " +
		"please try again later, or ask for the list in parts (limit) or as plain JSON")
	e.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	return e
}

// listCharge is the charge for one list or for one watch event. It is used by one goroutine at a time.
type listCharge struct {
	memory  *ListMemory
	backend string // the owner while the list is read
	user    string // the owner while the response is written
	owner   string // of the charged bytes
	limit   int64
	max     int64 // bytes that may be read
	read    int64
	charged int64
	// reading, unless nil, is called when the charge of the backend begins and when it ends.
	reading func(begins bool)
}

// listCharge returns the charge for a list of a backend, for the client of x. It is initially empty.
func (x *exchange) listCharge() *listCharge {
	return x.proxy.newListCharge(x.request.User, x.dest.APIService+"\x00"+x.dest.Backend.ServerName())
}

// eventCharge returns the charge for the events of a watch. A large event must arrive within BodyIdle: a watch may be
// silent only between two events.
func (x *exchange) eventCharge() *listCharge {
	c := x.listCharge()
	c.reading = func(begins bool) {
		if begins {
			x.upstream.eventBegun(x.proxy.config.BodyIdle)
		} else {
			x.upstream.eventRead()
		}
	}
	return c
}

func (p *Proxy) newListCharge(who user.Info, backend string) *listCharge {
	c := &listCharge{memory: &p.lists, backend: "backend\x00" + backend, limit: p.lists.Limit, max: p.lists.maxList()}
	if who == nil {
		who = &user.DefaultInfo{Name: user.Anonymous}
	}
	c.user = who.GetName()
	if overload.UserClassOf(who) != overload.Ordinary {
		c.limit, c.max = unlimitedMemory, maxConverted
	}
	return c
}

// reserve charges the backend for the next n bytes of the list.
func (c *listCharge) reserve(ctx context.Context, n int64) error {
	if c.read+n <= unchargedList {
		return nil
	}
	more := listFactor*(c.read+n) - c.charged
	if more <= 0 {
		return nil
	}
	more += listStep // in advance, so that not every read charges
	if err := c.memory.take(ctx, c.backend, more, c.limit); err != nil {
		return err
	}
	if c.charged == 0 && c.reading != nil {
		c.reading(true)
	}
	c.owner = c.backend
	c.charged += more
	return nil
}

// reduce returns the charged bytes that exceed n.
func (c *listCharge) reduce(n int64) {
	if more := c.charged - n; more > 0 {
		c.memory.Shares.Give(c.owner, more)
		c.charged -= more
	}
}

// release returns all charged bytes. It may be called repeatedly.
func (c *listCharge) release() {
	if c.charged > 0 && c.owner == c.backend && c.reading != nil {
		c.reading(false)
	}
	c.reduce(0)
	c.read = 0
}

// handOver charges n bytes of a response to the user and releases the charge of the backend.
func (c *listCharge) handOver(ctx context.Context, n int) error {
	c.release()
	if n <= unchargedList {
		return nil
	}
	if err := c.memory.take(ctx, c.user, int64(n), c.limit); err != nil {
		return err
	}
	c.owner, c.charged = c.user, int64(n)
	return nil
}

// reader returns a reader that charges for bytes before it reads them.
func (c *listCharge) reader(ctx context.Context, from io.Reader) io.Reader {
	return &chargedReader{ctx: ctx, from: from, charge: c}
}

type chargedReader struct {
	ctx    context.Context
	from   io.Reader
	charge *listCharge
}

// Read charges for the bytes before it reads them.
func (r *chargedReader) Read(b []byte) (int, error) {
	b = b[:min(len(b), listStep)]
	if err := r.charge.reserve(r.ctx, int64(len(b))); err != nil {
		return 0, err
	}
	n, err := r.from.Read(b)
	if r.charge.read += int64(n); r.charge.read > r.charge.max {
		return n, tooLargeError(r.charge.max)
	}
	return n, err
}

// ReadDocument reads a body of a backend. The bytes are charged to the backend, like those of a list, until free is called.
func (p *Proxy) ReadDocument(ctx context.Context, backend string, from io.Reader) (body []byte, free func(), err error) {
	c := p.newListCharge(nil, backend)
	body, err = io.ReadAll(c.reader(ctx, from))
	return body, c.release, err
}

// tooLargeError returns the error for a list that exceeds limit.
func tooLargeError(limit int64) error {
	if limit == maxConverted {
		return errTooLarge
	}
	return &responseError{
		reason: "TooLargeToConvert", code: http.StatusOK,
		text: fmt.Sprintf("answered with more than %d KiB, which the memory limit of the front door does not allow to convert; "+
			"ask for it in parts (limit), or as plain JSON", limit>>10),
	}
}

// heldBuffer is a part of a response that is charged until it is read.
type heldBuffer struct {
	buffer *bytes.Buffer
	charge *listCharge
}

// Read releases the charge at the end.
func (h *heldBuffer) Read(b []byte) (int, error) {
	n, err := h.buffer.Read(b)
	if err == io.EOF {
		h.charge.release()
	}
	return n, err
}
