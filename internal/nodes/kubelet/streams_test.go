package kubelet

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// switching is a kubelet that accepts every requested upgrade and returns all bytes.
func switching(w http.ResponseWriter, r *http.Request) {
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\nSec-Websocket-Protocol: %s\r\nX-Asked: %s %s\r\n\r\n",
		r.Header.Get("Upgrade"), r.Header.Get("Sec-Websocket-Protocol"), r.Method, r.URL.RequestURI())
	_, _ = io.Copy(conn, buffered) // until the client closes it
}

// A kubelet that declares WebSocket support receives WebSockets unchanged. All kubelets receive the older protocols.
func TestWebsocketsAreRelayed(t *testing.T) {
	b := newBench(t, switching)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := contextOf("ns", "pods", "exec")
		h, err := b.Exec(ctx, b.objects, "a", &corev1.PodExecOptions{Command: []string{"id"}, Stdout: true})
		if err != nil {
			t.Error(err)
			return
		}
		h.ServeHTTP(w, r.WithContext(ctx))
	}))
	defer front.Close()
	for protocol, features := range map[string][]string{"v5.channel.k8s.io": {websocketFeature}, "v4.channel.k8s.io": nil} {
		b.node.Status.DeclaredFeatures = features
		conn, err := net.Dial("tcp", front.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
		fmt.Fprintf(conn, "GET /api/v1/namespaces/ns/pods/a/exec?command=id HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
			"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Protocol: %s, base64url.bearer.authorization.k8s.io.eA\r\n\r\n", protocol)
		reader := bufio.NewReader(conn)
		resp, err := http.ReadResponse(reader, nil)
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != http.StatusSwitchingProtocols || resp.Header.Get("Sec-Websocket-Protocol") != protocol ||
			resp.Header.Get("X-Asked") != "GET /exec/ns/a/c?command=id&output=1" {
			t.Errorf("%s: response = %d, header %v, want 101 with this protocol", protocol, resp.StatusCode, resp.Header)
		}
		sent := "\x00any bytes\xff"
		fmt.Fprint(conn, sent)
		got := make([]byte, len(sent))
		if _, err := io.ReadFull(reader, got); err != nil || string(got) != sent {
			t.Errorf("%s: echo = %q, error %v, want %q", protocol, got, err, sent)
		}
		_ = conn.Close()
	}
}

// A connection that k8s.io/apimachinery's proxy copies ends with the drain. After its start no new connection is made.
func TestTranslatedConnectionsEndWithDrain(t *testing.T) {
	b := newBench(t, switching)
	at, err := b.locate(t.Context(), b.objects, "n1")
	if err != nil {
		t.Fatal(err)
	}
	target, release, err := b.target(at, false, true)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	p := b.config.Proxy()
	dial := func() (net.Conn, error) {
		return p.Dial(httptest.NewRequest(http.MethodGet, "/", nil).WithContext(contextOf("ns", "pods", "exec")), target)
	}
	conn, err := dial()
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := conn.Read(make([]byte, 1))
		_ = conn.Close()
		ended <- err
	}()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if n := p.Drain(over); n != 1 {
		t.Errorf("Drain = %d, want 1", n)
	}
	if err := <-ended; err == nil {
		t.Error("read after the drain: error = nil, want an error")
	}
	if _, err := dial(); err == nil || !strings.Contains(err.Error(), "the front door is shutting down") {
		t.Errorf("dial during the drain: error = %v, want \"the front door is shutting down\"", err)
	}
}
