package store

import (
	"context"
	"errors"
	"io"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

var errNotByMessage = errors.New("a watch stream in this process has typed messages only")

// watchClient provides etcd's watch service to a client in the same process.
//
// The adapter used by etcd's v3client passes one message at a time in each direction, and the client sends from the goroutine
// that also receives responses. If many watches end at once, the client waits until the server receives its next request, the
// server waits until the client receives its response, and all watches of the process are deadlocked. Here requests wait in a
// queue, as they do on a connection. The client bounds the queue, because each watch is created once and canceled once.
type watchClient struct{ server pb.WatchServer }

func (c *watchClient) Watch(ctx context.Context, _ ...grpc.CallOption) (grpc.BidiStreamingClient[pb.WatchRequest, pb.WatchResponse], error) {
	ctx, cancel := context.WithCancel(ctx)
	s := &watchStream{
		ctx:       ctx,
		queued:    make(chan struct{}, 1),
		responses: make(chan *pb.WatchResponse),
		ended:     make(chan struct{}),
	}
	go func() {
		err := c.server.Watch(&watchServerEnd{s})
		if err == nil {
			err = io.EOF
		}
		s.err = err
		close(s.ended)
		cancel()
	}()
	return &watchClientEnd{s}, nil
}

// watchStream is the state shared by the two ends.
type watchStream struct {
	ctx       context.Context
	responses chan *pb.WatchResponse
	ended     chan struct{} // closed when the server has returned
	err       error         // error of the server; set before ended is closed

	mu       sync.Mutex // guards requests
	requests []*pb.WatchRequest
	queued   chan struct{} // contains an element while requests are in the queue
}

// watchClientEnd is used by one sending and one receiving goroutine.
type watchClientEnd struct{ *watchStream }

func (c *watchClientEnd) Send(r *pb.WatchRequest) error {
	if c.ctx.Err() != nil {
		return io.EOF // Recv returns the reason
	}
	c.mu.Lock()
	c.requests = append(c.requests, r)
	c.mu.Unlock()
	select {
	case c.queued <- struct{}{}:
	default:
	}
	return nil
}

func (c *watchClientEnd) Recv() (*pb.WatchResponse, error) {
	select {
	case r := <-c.responses:
		return r, nil
	case <-c.ended:
		return nil, c.err
	case <-c.ctx.Done():
	}
	select {
	case <-c.ended:
		return nil, c.err
	default:
		return nil, c.ctx.Err()
	}
}

func (c *watchClientEnd) Context() context.Context     { return c.ctx }
func (c *watchClientEnd) Header() (metadata.MD, error) { return nil, nil }
func (c *watchClientEnd) Trailer() metadata.MD         { return nil }
func (c *watchClientEnd) CloseSend() error             { return nil } // the client ends a stream by canceling its context
func (c *watchClientEnd) SendMsg(any) error            { return errNotByMessage }
func (c *watchClientEnd) RecvMsg(any) error            { return errNotByMessage }

// watchServerEnd is used by one sending and one receiving goroutine. A failed member may still use it after the stream has
// ended.
type watchServerEnd struct{ *watchStream }

func (s *watchServerEnd) Recv() (*pb.WatchRequest, error) {
	for {
		s.mu.Lock()
		if len(s.requests) > 0 {
			r := s.requests[0]
			s.requests = s.requests[1:]
			s.mu.Unlock()
			return r, nil
		}
		s.mu.Unlock()
		select {
		case <-s.queued:
		case <-s.ctx.Done():
			return nil, s.ctx.Err()
		}
	}
}

func (s *watchServerEnd) Send(r *pb.WatchResponse) error {
	select {
	case s.responses <- r:
		return nil
	case <-s.ctx.Done():
		return s.ctx.Err()
	}
}

func (s *watchServerEnd) Context() context.Context     { return s.ctx }
func (s *watchServerEnd) SetHeader(metadata.MD) error  { return nil }
func (s *watchServerEnd) SendHeader(metadata.MD) error { return nil }
func (s *watchServerEnd) SetTrailer(metadata.MD)       {}
func (s *watchServerEnd) SendMsg(any) error            { return errNotByMessage }
func (s *watchServerEnd) RecvMsg(any) error            { return errNotByMessage }
