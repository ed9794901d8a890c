package egress

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	konnectivity "sigs.k8s.io/apiserver-network-proxy/konnectivity-client/proto/client"

	"portico.dev/internal/metrics"
	"portico.dev/internal/pki"
)

// kind selects the transport to a tunnel's server.
type kind int

const (
	connectUDS kind = iota
	connectTLS
	grpcUDS
)

func (k kind) String() string {
	return [...]string{"HTTPConnect over UDS", "HTTPConnect over TCP with TLS", "GRPC over UDS"}[k]
}

var kinds = []kind{connectUDS, connectTLS, grpcUDS}

// fake is a tunnel's server with its agent.
type fake struct {
	selector *Selector
	tunnel   func(ctx context.Context, address string) (net.Conn, error)
	registry *prometheus.Registry
	listener net.Listener
	hang     chan struct{} // closed at the end of the test
	conns    sync.WaitGroup
	agent    agent
}

// agent dials an address. An error is reported as an agent's error. If both results are nil, the dial hangs.
type agent func(address string) (net.Conn, error)

// dialling is an agent that dials the requested address.
func dialling(address string) (net.Conn, error) { return net.Dial("tcp", address) }

// hanging is an agent that never answers.
func hanging(string) (net.Conn, error) { return nil, nil }

// failing returns an agent whose dials fail.
func failing(text string) agent {
	return func(string) (net.Conn, error) { return nil, errors.New(text) }
}

// errNoAgent makes the server report that it has no agent.
var errNoAgent error = konnectivityError("No agent available")

// konnectivityError is an error with the text of a konnectivity server.
type konnectivityError string

func (e konnectivityError) Error() string { return string(e) }

// errHangUp makes the server close the connection without a response.
var errHangUp = errors.New("hang up")

func newFake(t *testing.T, k kind, a agent) *fake {
	t.Helper()
	f := &fake{hang: make(chan struct{}), registry: prometheus.NewRegistry(), agent: a}
	dir := t.TempDir()
	socket := filepath.Join(dir, "s")
	connection := fmt.Sprintf("proxyProtocol: HTTPConnect\n    transport: {uds: {udsName: %q}}", socket)
	var err error
	switch k {
	case connectTLS:
		var config *tls.Config
		config, connection = mutual(t, dir)
		if f.listener, err = tls.Listen("tcp", "127.0.0.1:0", config); err != nil {
			t.Fatal(err)
		}
		connection = strings.ReplaceAll(connection, "ADDRESS", f.listener.Addr().String())
	case grpcUDS:
		connection = strings.Replace(connection, "HTTPConnect", "GRPC", 1)
		fallthrough
	default:
		if f.listener, err = net.Listen("unix", socket); err != nil {
			t.Fatal(err)
		}
	}
	if k == grpcUDS {
		server := grpc.NewServer()
		konnectivity.RegisterProxyServiceServer(server, f)
		f.conns.Go(func() { _ = server.Serve(f.listener) }) // ends with Stop
		t.Cleanup(func() {
			close(f.hang)
			server.Stop()
			f.conns.Wait()
		})
	} else {
		f.conns.Go(f.accept)
		t.Cleanup(func() {
			close(f.hang)
			_ = f.listener.Close()
			f.conns.Wait()
		})
	}
	f.load(t, dir, connection)
	return f
}

// load makes the tunnel, which ends before its server.
func (f *fake) load(t *testing.T, dir, connection string) {
	t.Helper()
	f.selector = load(t, dir, "cluster", connection, metrics.NewEgress(f.registry))
	f.tunnel = f.selector.Cluster().Dial
}

func load(t *testing.T, dir, name, connection string, m *metrics.Egress) *Selector {
	t.Helper()
	file := filepath.Join(dir, "egress.yaml")
	text := fmt.Sprintf("apiVersion: apiserver.k8s.io/v1beta1\nkind: EgressSelectorConfiguration\negressSelections:\n- name: %s\n  connection:\n    %s\n", name, connection)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := Load(file, m)
	if err != nil {
		t.Fatal(err)
	}
	running(t, s)
	return s
}

// mutual returns a TLS configuration with certificates on both sides, and the connection for a file that uses it.
func mutual(t *testing.T, dir string) (*tls.Config, string) {
	t.Helper()
	ca, err := pki.NewAuthority("tunnels")
	if err != nil {
		t.Fatal(err)
	}
	cert, key, err := ca.Issue(pki.Leaf{CommonName: "konnectivity", Server: true, DNSNames: []string{"konnectivity.example"}})
	if err != nil {
		t.Fatal(err)
	}
	pair, err := pki.StaticKeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	bundle, err := pki.StaticBundle(ca.PEM())
	if err != nil {
		t.Fatal(err)
	}
	config := pki.MutualServerConfig(pair, bundle.Pool())
	config.NextProtos = nil
	if cert, key, err = ca.Issue(pki.Leaf{CommonName: "portico", Client: true}); err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"ca.crt": ca.PEM(), "client.crt": cert, "client.key": key} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return config, fmt.Sprintf("proxyProtocol: HTTPConnect\n    transport: {tcp: {url: \"https://ADDRESS\", tlsConfig: "+
		"{caBundle: \"%[1]s/ca.crt\", clientCert: \"%[1]s/client.crt\", clientKey: \"%[1]s/client.key\", tlsServerName: konnectivity.example}}}", dir)
}

// accept serves HTTP CONNECT like a konnectivity server.
func (f *fake) accept() {
	for {
		conn, err := f.listener.Accept()
		if err != nil {
			return
		}
		f.conns.Go(func() {
			defer conn.Close()
			r, err := http.ReadRequest(bufio.NewReader(conn))
			if err != nil {
				return
			}
			to, err := f.agent(r.Host)
			switch {
			case errors.Is(err, errHangUp):
			case errors.Is(err, errNoAgent):
				fmt.Fprintf(conn, "HTTP/1.1 500 Internal Server Error\r\nContent-Type: text/plain\r\n\r\ncurrently no tunnels available: %v", err)
			case err != nil:
				fmt.Fprintf(conn, "HTTP/1.1 502 Bad Gateway\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n%v", err)
			case to == nil:
				_, _ = io.Copy(io.Discard, conn) // until the client closes the connection
			default:
				fmt.Fprint(conn, "HTTP/1.1 200 Connection Established\r\n\r\n")
				f.relay(conn, to)
			}
		})
	}
}

func (f *fake) relay(a, b net.Conn) {
	var both sync.WaitGroup
	for _, pair := range [][2]net.Conn{{a, b}, {b, a}} {
		both.Go(func() {
			_, _ = io.Copy(pair[0], pair[1])
			_ = pair[0].Close()
			_ = pair[1].Close()
		})
	}
	both.Wait()
}

// Proxy implements konnectivity's server.
func (f *fake) Proxy(stream konnectivity.ProxyService_ProxyServer) error {
	packet, err := stream.Recv()
	if err != nil {
		return err
	}
	request := packet.GetDialRequest()
	response := &konnectivity.DialResponse{Random: request.GetRandom(), ConnectID: 7}
	to, err := f.agent(request.GetAddress())
	switch {
	case errors.Is(err, errHangUp):
		return nil
	case err == nil && to == nil:
		<-stream.Context().Done()
		return nil
	case err != nil:
		response.Error, response.ConnectID = err.Error(), 0
	default:
		defer to.Close()
	}
	if err := stream.Send(&konnectivity.Packet{Type: konnectivity.PacketType_DIAL_RSP, Payload: &konnectivity.Packet_DialResponse{DialResponse: response}}); err != nil || to == nil {
		return err
	}
	var sending sync.WaitGroup
	defer sending.Wait()
	sending.Go(func() {
		buffer := make([]byte, 16<<10)
		for {
			n, err := to.Read(buffer)
			if n > 0 && stream.Send(&konnectivity.Packet{Type: konnectivity.PacketType_DATA, Payload: &konnectivity.Packet_Data{
				Data: &konnectivity.Data{ConnectID: 7, Data: buffer[:n]},
			}}) != nil {
				return
			}
			if err != nil {
				_ = stream.Send(&konnectivity.Packet{Type: konnectivity.PacketType_CLOSE_RSP, Payload: &konnectivity.Packet_CloseResponse{
					CloseResponse: &konnectivity.CloseResponse{ConnectID: 7},
				}})
				return
			}
		}
	})
	for {
		packet, err := stream.Recv()
		if err != nil || packet.GetType() == konnectivity.PacketType_CLOSE_REQ {
			_ = to.Close()
			return nil
		}
		if _, err := to.Write(packet.GetData().GetData()); err != nil {
			return nil
		}
	}
}
