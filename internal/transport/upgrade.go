package transport

import (
	"context"
	"net"
	"sync"
	"time"
)

// DialUpgrade makes a connection for one upgraded request: fresh, so that whatever the backend says on it can be read
// as an answer to nobody else (CVE-2018-1002105), and HTTP/1.1, which is what upgrades are defined for. Endpoints that
// cannot be connected to are passed over. Errors are *Error with Sent false.
//
// The connection counts as a request in flight until it is closed. An observer hears of each attempt, and of the outcome
// of those that failed; what came of the one that is returned is its caller's to say.
func (b *Backend) DialUpgrade(ctx context.Context) (net.Conn, error) {
	var tried []*endpoint
	observer := observerOf(ctx)
	for {
		members := *b.members.Load()
		e := b.pick(members, tried)
		if e == nil {
			return nil, &Error{Op: OpPick, Err: ErrNoEndpoints, Attempts: len(tried)}
		}
		observer.Attempt(e.address, len(tried)+1, nil)
		conn, raw, err := e.dialer.connect(ctx, true)
		if err == nil {
			err = relaxUserTimeout(raw)
		}
		if err == nil {
			e.health.answered(time.Now())
			b.metrics.Dialled(true)
			e.inFlight.Add(1)
			return &upgraded{Conn: conn, over: sync.OnceFunc(func() { e.inFlight.Add(-1) })}, nil
		}
		observer.Outcome(0, err)
		if ctx.Err() != nil {
			e.health.abandoned()
			return nil, &Error{Class: ClassCanceled, Op: OpDial, Endpoint: e.address, Attempts: len(tried) + 1, Err: context.Cause(ctx)}
		}
		e.dialled(err)
		tried = append(tried, e)
		if len(tried) >= len(members) {
			f := judge(ctx, err)
			return nil, &Error{Op: f.op, Endpoint: e.address, Attempts: len(tried), Err: err}
		}
	}
}

// upgraded is a connection that tells once when it is closed.
type upgraded struct {
	net.Conn
	over func()
}

func (u *upgraded) Close() error {
	u.over()
	return u.Conn.Close()
}
