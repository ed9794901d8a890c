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
	// maxPacket bounds a message of the server. Agents read 32 KiB at a time.
	maxPacket = 1 << 20
	// sendSize is how much is sent in one message.
	sendSize = 32 << 10
	// closeGrace is how long a connection that was closed may take to say so.
	closeGrace = time.Second
	// readGrace is how long bytes wait for their reader, as in konnectivity-client. While they do, an agent can send to nobody else: the
	// server reads what it sends in one loop.
	readGrace = 10 * time.Second
)

var errUsed = errors.New("the connection to the tunnel's server was used")

// openStream asks for a connection by konnectivity's protocol over gRPC. There is one connection to the server for each, as in kube-apiserver.
func (t *tunnel) openStream(ctx context.Context, server net.Conn, address string) (net.Conn, error) {
	life, end := context.WithCancel(t.selector.life)
	stop := context.AfterFunc(ctx, end) // which makes every call below return
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
			_ = s.client.Close() // nothing is under way
		}
		_ = server.Close() // the client closed it, unless there is none
		return nil, err
	}
	near, far := net.Pipe()
	s.end = end
	t.selector.running.Go(func() { s.copy(far) })
	return &streamConn{near, s}, nil
}

// stream is one connection at the other end, and the connection to the server that only it uses.
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
		_ = client.Close() // nothing is under way
		return nil, err
	}
	return &stream{client: client, calls: calls}, nil
}

// connect asks for the connection.
func (s *stream) connect(address string) error {
	dial := rand.Int64()
	err := s.calls.Send(&konnectivity.Packet{Type: konnectivity.PacketType_DIAL_REQ, Payload: &konnectivity.Packet_DialRequest{
		DialRequest: &konnectivity.DialRequest{Protocol: "tcp", Address: address, Random: dial},
	}})
	if err != nil && !errors.Is(err, io.EOF) { // io.EOF: what happened is what is received
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

// copy hands bytes on until either side ends, and returns when both directions have ended.
func (s *stream) copy(far net.Conn) {
	var both sync.WaitGroup
	both.Go(func() {
		s.receive(far)
		s.end()
		_ = far.Close() // the reader meets the end
	})
	both.Go(func() {
		s.send(far)
		s.endSoon()
		_ = s.calls.Send(&konnectivity.Packet{Type: konnectivity.PacketType_CLOSE_REQ, Payload: &konnectivity.Packet_CloseRequest{
			CloseRequest: &konnectivity.CloseRequest{ConnectID: s.id},
		}}) // if it does not arrive, the end of the stream does
	})
	both.Wait()
	_ = s.client.Close() // nothing is under way
}

// endSoon gives the server a while to take the request to close the connection, and to answer it.
func (s *stream) endSoon() { time.AfterFunc(closeGrace, s.end) }

// send sends what is written on the near side.
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

// receive hands on what comes from the server until the connection is closed there. What comes after the near side was closed is
// dropped.
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
			_ = far.SetWriteDeadline(time.Now().Add(readGrace)) // a pipe has deadlines until it is closed
			if _, err := far.Write(data.GetData()); err != nil {
				dropped = true
				_ = far.Close() // send meets the end, and asks for that of the connection
				s.endSoon()     // send may wait for the server
			}
		}
	}
}

// streamConn is the near side.
type streamConn struct {
	net.Conn
	stream *stream
}

// Close implements net.Conn. It does not wait for the server.
func (c *streamConn) Close() error {
	c.stream.endSoon()
	return c.Conn.Close()
}
