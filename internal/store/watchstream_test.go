package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

// There is a watch for each kind, and all of them end at once when the process stops or lists again. With etcd's own adapter
// none of three hundred watches ends.
func TestManyWatchesEndAtOnce(t *testing.T) {
	s, _ := run(t, Config{DataDir: t.TempDir()})
	client := s.Client()
	const watches = 300
	for round := range 20 {
		ctx, cancel := context.WithCancel(context.Background())
		var opened, ended sync.WaitGroup
		for i := range watches {
			opened.Add(1)
			ended.Add(1)
			go func() {
				defer ended.Done()
				events := client.Watch(ctx, fmt.Sprintf("/many/%d/", i), clientv3.WithPrefix(), clientv3.WithCreatedNotify())
				<-events
				opened.Done()
				for range events {
				}
			}()
		}
		opened.Wait()
		done := make(chan struct{})
		go func() { ended.Wait(); close(done) }()
		cancel()
		select {
		case <-done:
		case <-time.After(20 * time.Second):
			t.Fatalf("round %d: not all %d watches ended within 20s, want all", round, watches)
		}
	}
}

// deafWatchServer reads no request and sends responses until its stream ends.
type deafWatchServer struct {
	pb.UnimplementedWatchServer
	fail     <-chan struct{}
	released chan struct{} // closed when a Send was released after the server had failed
}

var errDeaf = errors.New("the member failed")

func (d *deafWatchServer) Watch(both grpc.BidiStreamingServer[pb.WatchRequest, pb.WatchResponse]) error {
	go func() {
		for both.Send(&pb.WatchResponse{}) == nil {
		}
		close(d.released)
	}()
	<-d.fail
	return errDeaf
}

// A member that fails while it reads no requests, and while the client reads no responses, ends its stream for both sides.
func TestWatchStreamEndsWithItsServer(t *testing.T) {
	fail := make(chan struct{})
	server := &deafWatchServer{fail: fail, released: make(chan struct{})}
	stream, err := (&watchClient{server: server}).Watch(within(t))
	if err != nil {
		t.Fatal(err)
	}
	for range 1000 {
		if err := stream.Send(&pb.WatchRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	close(fail)
	for err == nil {
		_, err = stream.Recv()
	}
	if !errors.Is(err, errDeaf) {
		t.Errorf("Recv() error = %v, want %v", err, errDeaf)
	}
	if err := stream.Send(&pb.WatchRequest{}); err == nil {
		t.Error("Send() after the end of the stream succeeded, want an error")
	}
	select {
	case <-server.released:
	case <-within(t).Done():
		t.Error("the server's Send() still blocks after the end of the stream, want it released")
	}
}
