package extension_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"portico.dev/pkg/extension"
)

// talkServer serves the subresource "talk". It echoes messages over WebSocket and describes other requests in the response.
type talkServer struct {
	*queues
}

func (p talkServer) Connect(_ context.Context, q extension.Query, w http.ResponseWriter, r *http.Request) {
	if !websocket.IsWebSocketUpgrade(r) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s of %s: %s %s %d", q.User.GetName(), q.Name, q.Namespace, r.Method, q.Rest, len(body))
		return
	}
	conn, err := (&websocket.Upgrader{}).Upgrade(w, r, nil)
	if err != nil {
		return
	}
	defer conn.Close()
	for {
		kind, said, err := conn.ReadMessage()
		if err != nil || conn.WriteMessage(kind, said) != nil {
			return
		}
	}
}

const talkPath = "/apis/stats.example.com/v1/namespaces/team/queues/orders/talk"

func startTalking(t *testing.T, change func(*extension.Config)) *server {
	d := queueDefinition()
	d.Connects = []string{"talk"}
	return start(t, change, extension.Of(d, talkServer{queues: twoQueues()}))
}

func (s *server) dial(t *testing.T, path string, header http.Header) (*websocket.Conn, *http.Response, error) {
	t.Helper()
	config := s.tlsConfig()
	config.NextProtos = []string{"http/1.1"}
	if header == nil {
		header = http.Header{}
	}
	header.Set("X-Test-User", "alice")
	dialer := websocket.Dialer{TLSClientConfig: config, HandshakeTimeout: patience, Subprotocols: header.Values("Sec-Websocket-Protocol")}
	header.Del("Sec-Websocket-Protocol")
	return dialer.DialContext(t.Context(), "wss"+strings.TrimPrefix(s.url, "https")+path, header)
}

func TestConnect(t *testing.T) {
	s := startTalking(t, func(c *extension.Config) { c.MaxBodyBytes = 10 })
	s.send(http.MethodPost, talkPath+"/a/b", "", make([]byte, 1000)).wants(t, 200, "alice orders of team: POST a/b 1000")
	s.get(talkPath).wants(t, 200, "alice orders of team: GET  0")
	s.get(strings.Replace(talkPath, "/talk", "/listen", 1)).wants(t, 404)
	s.get(strings.Replace(talkPath, "/namespaces/team", "", 1)).wants(t, 404)
	s.get("/apis/stats.example.com/v1").wants(t, 200, `"name":"queues/talk"`)
	s.get("/openapi/v3/apis/stats.example.com/v1").wants(t, 200, `queues/{name}/talk`, `"x-kubernetes-action":"connect"`)
	s.get("/metrics").wants(t, 200, `subresource="talk"`)
}

// TestDrainClosesHijackedConnections: net/http's server does not track hijacked connections.
func TestDrainClosesHijackedConnections(t *testing.T) {
	s := startTalking(t, func(c *extension.Config) { c.ShutdownTimeout = 50 * time.Millisecond })
	conn, _, err := s.dial(t, talkPath, nil)
	must(t, err)
	defer conn.Close()
	must(t, conn.WriteMessage(websocket.TextMessage, []byte("hello")))
	_, said, err := conn.ReadMessage()
	must(t, err)
	if string(said) != "hello" {
		t.Errorf("message from the echo server = %q, want \"hello\"", said)
	}
	must(t, s.stop())
	if _, _, err := conn.ReadMessage(); err == nil {
		t.Error("ReadMessage after the server stopped: error = nil, want an error")
	}
}

func TestWatchOverWebSocket(t *testing.T) {
	q := twoQueues()
	s := start(t, nil, extension.Of(queueDefinition(), q))
	conn, response, err := s.dial(t, streaming, http.Header{"Sec-Websocket-Protocol": {"v1.watch.example"}, "Origin": {s.url}})
	must(t, err)
	defer conn.Close()
	if response.Header.Get("Audit-Id") == "" || conn.Subprotocol() != "v1.watch.example" {
		t.Errorf("handshake response header = %v, subprotocol %q, want an Audit-Id and v1.watch.example", response.Header, conn.Subprotocol())
	}
	must(t, conn.SetReadDeadline(time.Now().Add(patience)))
	sees := func(wants ...string) {
		t.Helper()
		for _, want := range wants {
			var e event
			must(t, conn.ReadJSON(&e))
			if got := strings.TrimSpace(e.Type + " " + e.Object.Metadata.Name); got != want {
				t.Fatalf("events = %q, want %q", got, want)
			}
		}
	}
	sees("ADDED orders", "ADDED mails", "BOOKMARK")
	q.set(queue("team-a", "orders", 9))
	sees("MODIFIED orders", "DELETED mails")
	var stopped sync.WaitGroup
	stopped.Go(func() {
		if err := s.stop(); err != nil {
			t.Error(err)
		}
	})
	sees("BOOKMARK")
	var closed *websocket.CloseError
	if _, _, err := conn.ReadMessage(); !errors.As(err, &closed) || closed.Code != websocket.CloseNormalClosure {
		t.Errorf("ReadMessage after the drain: error = %v, want close code 1000 (normal closure)", err)
	}
	stopped.Wait()
}

func TestCrossSiteWebSocketsAreRejected(t *testing.T) {
	s := start(t, nil, extension.Of(queueDefinition(), twoQueues()))
	for _, c := range []struct {
		situation string
		header    http.Header
		code      int
	}{
		{"another site's script", http.Header{"Origin": {"https://evil.example"}}, http.StatusForbidden},
		{"a page on a loopback host", http.Header{"Origin": {"http://localhost:8001"}}, http.StatusSwitchingProtocols},
		{"a proxy that appends a loopback host", http.Header{"Origin": {"https://console.example", "http://localhost"}}, http.StatusSwitchingProtocols},
		{"an origin that is none", http.Header{"Origin": {"null"}}, http.StatusForbidden},
		{"another site behind a front door, which judges", http.Header{"Origin": {"https://front.example"}, "X-Forwarded-For": {"10.0.0.1"}}, http.StatusSwitchingProtocols},
		{"a program", nil, http.StatusSwitchingProtocols},
	} {
		conn, response, err := s.dial(t, streaming, c.header)
		if err == nil {
			conn.Close()
		}
		if response == nil || response.StatusCode != c.code {
			t.Errorf("%s: dial = %v, %v, want status %d", c.situation, response, err, c.code)
		}
	}
	// An invalid watch request gets an ordinary HTTP response.
	if _, response, err := s.dial(t, queuesPath+"?watch=true&resourceVersion=5", nil); err == nil || response.StatusCode != http.StatusGone {
		t.Errorf("dial of a watch with an expired resourceVersion: error = %v, want status 410", err)
	}
}
