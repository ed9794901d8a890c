package egress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	konnectivity "sigs.k8s.io/apiserver-network-proxy/konnectivity-client/proto/client"
)

const (
	// maxPacket bounds a message from the server. Agents read 32 KiB at a time.
	maxPacket = 1 << 20
	// sendSize is the maximum size of the data in one message.
	sendSize = 32 << 10
	// closeGrace bounds the time to close a connection in an orderly way.
	closeGrace = time.Second
	// readGrace bounds the time that received bytes wait for their reader, as in konnectivity-client. While they
	// wait, the agent cannot send on its other connections, because the server forwards its messages in one loop.
	readGrace = 10 * time.Second
)

var errUsed = errors.New("the connection to the tunnel's server was used")

// openStream requests a connection with konnectivity's protocol over gRPC. Each one uses a separate connection to the
// server, as in kube-apiserver.
func (t *tunnel) openStream(ctx context.Context, server net.Conn, address string) (net.Conn, error) {
	life, end := context.WithCancel(t.selector.life)
	stop := context.AfterFunc(ctx, end) // makes every call below return
	s, err := newStream(life, server)
	if err == nil {
		err = s.connect(address)
	}
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		end()
		if s != nil {
			_ = s.client.Close() // no calls are pending
		}
		_ = server.Close() // already closed by the client, if there is one
		return nil, err
	}
	near, far := net.Pipe()
	s.end = end
	t.selector.running.Go(func() { s.copy(far) })
	return &streamConn{near, s}, nil
}

// stream is a connection through the tunnel, with its dedicated connection to the server.
type stream struct {
	client *grpc.ClientConn
	calls  konnectivity.ProxyService_ProxyClient
	id     int64
	end    func() // makes every call return
}

func newStream(life context.Context, server net.Conn) (*stream, error) {
	var used atomic.Bool
	client, err := grpc.NewClient("passthrough:///tunnel",
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy(), grpc.WithDisableRetry(), grpc.WithDisableServiceConfig(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxPacket)),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			if used.Swap(true) {
				return nil, errUsed
			}
			return server, nil
		}))
	if err != nil {
		return nil, err
	}
	calls, err := konnectivity.NewProxyServiceClient(client).Proxy(life)
	if err != nil {
		_ = client.Close() // no calls are pending
		return nil, err
	}
	return &stream{client: client, calls: calls}, nil
}

// connect requests the connection.
func (s *stream) connect(address string) error {
	dial := rand.Int64()
	err := s.calls.Send(&konnectivity.Packet{Type: konnectivity.PacketType_DIAL_REQ, Payload: &konnectivity.Packet_DialRequest{
		DialRequest: &konnectivity.DialRequest{Protocol: "tcp", Address: address, Random: dial},
	}})
	if err != nil && !errors.Is(err, io.EOF) { // io.EOF: Recv returns the actual error
		return err
	}
	packet, err := s.calls.Recv()
	if err != nil {
		return err
	}
	switch response := packet.GetDialResponse(); {
	case packet.GetType() == konnectivity.PacketType_DIAL_CLS:
		return &refusedError{"it closed the dial"}
	case response == nil || response.GetRandom() != dial:
		return &refusedError{fmt.Sprintf("it answered the request for a connection by %s", packet.GetType())}
	case response.GetError() != "":
		text := clean(response.GetError())
		if aboutAddress(text) {
			return &addressError{text}
		}
		return &refusedError{text}
	default:
		s.id = response.GetConnectID()
		return nil
	}
}

// copy forwards bytes until either side ends, and returns when both directions have ended.
func (s *stream) copy(far net.Conn) {
	var both sync.WaitGroup
	both.Go(func() {
		s.receive(far)
		s.end()
		_ = far.Close() // the reader then receives EOF
	})
	both.Go(func() {
		s.send(far)
		s.endSoon()
		_ = s.calls.Send(&konnectivity.Packet{Type: konnectivity.PacketType_CLOSE_REQ, Payload: &konnectivity.Packet_CloseRequest{
			CloseRequest: &konnectivity.CloseRequest{ConnectID: s.id},
		}}) // if it is lost, the server sees the end of the stream
	})
	both.Wait()
	_ = s.client.Close() // no calls are pending
}

// endSoon ends the stream after closeGrace, which gives the server time to answer the close request.
func (s *stream) endSoon() { time.AfterFunc(closeGrace, s.end) }

// send forwards the bytes written on the near side.
func (s *stream) send(far net.Conn) {
	buffer := make([]byte, sendSize)
	for {
		n, err := far.Read(buffer)
		if n > 0 && s.calls.Send(&konnectivity.Packet{Type: konnectivity.PacketType_DATA, Payload: &konnectivity.Packet_Data{
			Data: &konnectivity.Data{ConnectID: s.id, Data: buffer[:n]},
		}}) != nil {
			return
		}
		if err != nil {
			return
		}
	}
}

// receive forwards data from the server until the server closes the connection. It drops data that arrives after the
// near side was closed.
func (s *stream) receive(far net.Conn) {
	dropped := false
	for {
		packet, err := s.calls.Recv()
		if err != nil {
			return
		}
		switch data := packet.GetData(); {
		case packet.GetType() == konnectivity.PacketType_CLOSE_RSP:
			return
		case data == nil || data.GetConnectID() != s.id || len(data.GetData()) == 0 || dropped:
		default:
			_ = far.SetWriteDeadline(time.Now().Add(readGrace)) // cannot fail before the pipe is closed
			if _, err := far.Write(data.GetData()); err != nil {
				dropped = true
				_ = far.Close() // makes send return, which requests the close
				s.endSoon()     // send may be blocked by the server
			}
		}
	}
}

// streamConn is the near side of a stream.
type streamConn struct {
	net.Conn
	stream *stream
}

// Close implements net.Conn. It does not wait for the server.
func (c *streamConn) Close() error {
	c.stream.endSoon()
	return c.Conn.Close()
}
