package overload

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// attack is one way to make the front door allocate memory.
type attack struct {
	name string
	// tries is how many bytes the front door would hold if it held all of it.
	tries int64
	// lasts is the duration of the attack.
	lasts time.Duration
	// run returns how many connections were made that did their part.
	run func(ctx context.Context, f *front) int64
}

var attacks = []attack{
	{"answers that nobody reads", 100 * 100 * (512 << 10), attackTime, unreadAnswers},
	{"uploads that stop before their ends", uploads * uploadSize, attackTime, slowUploads},
	{"large headers on many streams", 100 * 100 * 60_000, attackTime, largeHeaders},
	{"idle connections", idleConnections * (32 << 10), 2 * attackTime, idle},
}

const (
	uploads, uploadSize = 1300, 3<<20 - 4096
	idleConnections     = 10_000
	// dialers is how many connections are made at one time.
	dialers = 64
)

// each runs n of do, so many at a time; do returns when ctx ends, or when the front door has had enough, and calls next when the
// next one may begin. It returns how often that was called.
func each(ctx context.Context, n int, do func(ctx context.Context, i int, next func())) int64 {
	var all sync.WaitGroup
	var made atomic.Int64
	room := make(chan struct{}, dialers)
	for i := 0; i < n && ctx.Err() == nil; i++ {
		select {
		case room <- struct{}{}:
		case <-ctx.Done():
			continue
		}
		all.Go(func() {
			leave := sync.OnceFunc(func() { <-room })
			defer leave()
			do(ctx, i, func() { made.Add(1); leave() })
		})
	}
	all.Wait()
	return made.Load()
}

// attackersAddress differs from the workers' address: handshakes are limited per address, before a client is authenticated.
var attackersAddress = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}

// dial makes a connection that ends with ctx.
func (f *front) dial(ctx context.Context, protocol string) (conn *tls.Conn, close func(), err error) {
	config := f.tls(credential{}, protocol)
	config.InsecureSkipVerify, config.CurvePreferences = true, []tls.CurveID{tls.X25519} // attackers are in a hurry
	d := tls.Dialer{Config: config, NetDialer: &net.Dialer{LocalAddr: attackersAddress}}
	c, err := d.DialContext(ctx, "tcp", f.address)
	if err != nil {
		return nil, nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = c.(*tls.Conn).NetConn().Close() })
	return c.(*tls.Conn), func() { stop(); _ = c.(*tls.Conn).NetConn().Close() }, nil
}

// streams opens n streams with a header on a connection of HTTP/2, and reads responses if reads is set.
func (f *front) streams(ctx context.Context, n int, path string, window uint32, reads bool, next func(), more ...hpack.HeaderField) {
	conn, done, err := f.dial(ctx, "h2")
	if err != nil {
		return
	}
	defer done()
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for _, field := range append([]hpack.HeaderField{
		{Name: ":method", Value: "GET"}, {Name: ":scheme", Value: "https"}, {Name: ":authority", Value: "a"}, {Name: ":path", Value: path},
		{Name: "authorization", Value: "Bearer " + f.others},
	}, more...) {
		field.Sensitive = true // so that the block is good for every stream
		_ = encoder.WriteField(field)
	}
	framer := http2.NewFramer(conn, conn)
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		return
	}
	_ = framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window})
	if window > 0 {
		_ = framer.WriteWindowUpdate(0, 1<<30)
	}
	const frame = 16 << 10
	for i := range n {
		rest := block.Bytes()
		first := rest[:min(frame, len(rest))]
		rest = rest[len(first):]
		id := uint32(2*i + 1)
		if err := framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: first, EndStream: true, EndHeaders: len(rest) == 0}); err != nil {
			break
		}
		for len(rest) > 0 {
			part := rest[:min(frame, len(rest))]
			rest = rest[len(part):]
			if err := framer.WriteContinuation(id, len(rest) == 0, part); err != nil {
				break
			}
		}
	}
	next()
	if reads {
		_, _ = io.Copy(io.Discard, conn)
		return
	}
	<-ctx.Done()
}

func unreadAnswers(ctx context.Context, f *front) int64 {
	return each(ctx, 100, func(ctx context.Context, i int, next func()) {
		if i%2 == 0 { // windows that stay shut
			f.streams(ctx, 100, big+"/blobs", 0, true, next)
			return
		}
		f.streams(ctx, 100, big+"/blobs", 1<<30, false, next) // a connection that is not read
	})
}

func largeHeaders(ctx context.Context, f *front) int64 {
	filler := hpack.HeaderField{Name: "x-filler", Value: strings.Repeat("~", 59_000)}
	return each(ctx, 100, func(ctx context.Context, _ int, next func()) {
		f.streams(ctx, 100, "/api/v1/configmaps?watch=true", 1<<20, true, next, filler)
	})
}

func slowUploads(ctx context.Context, f *front) int64 {
	head := fmt.Sprintf("POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer %s\r\n"+
		"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n", f.others, uploadSize)
	body := bytes.Repeat([]byte{' '}, uploadSize-1)
	return each(ctx, uploads, func(ctx context.Context, _ int, next func()) {
		conn, done, err := f.dial(ctx, "http/1.1")
		if err != nil {
			return
		}
		defer done()
		if _, err := io.WriteString(conn, head); err != nil {
			return
		}
		if _, err := conn.Write(body); err != nil {
			return
		}
		next()
		_, _ = io.Copy(io.Discard, conn)
	})
}

func idle(ctx context.Context, f *front) int64 {
	return each(ctx, idleConnections, func(ctx context.Context, _ int, next func()) {
		conn, done, err := f.dial(ctx, "http/1.1")
		if err != nil {
			return
		}
		defer done()
		next()
		_, _ = io.Copy(io.Discard, conn)
	})
}
