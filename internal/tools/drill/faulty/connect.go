package faulty

import (
	"crypto/tls"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// connect is the subresource whose requests upgrade their connection.
const connect = "connect"

// connect switches to the protocol of the request, sends the parameter greeting, and echoes what arrives. It closes the
// connection at its end, or after as many bytes as the parameter limit.
func (s *Server) connect(w http.ResponseWriter, r *http.Request) {
	protocol := r.Header.Get("Upgrade")
	if r.ProtoMajor != 1 || protocol == "" {
		refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, "a request for connect upgrades its connection")
		return
	}
	query := r.URL.Query()
	limit, err := strconv.ParseInt(query.Get("limit"), 10, 64)
	if err != nil {
		limit = math.MaxInt64
	}
	upgraded, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		refuse(w, http.StatusInternalServerError, metav1.StatusReasonInternalError, err.Error())
		return
	}
	defer func() { _ = upgraded.Close() }() // the client may have closed it
	s.upgraded.Add(1)
	defer s.upgraded.Add(-1)
	const header = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n%s"
	if _, err := fmt.Fprintf(upgraded, header, protocol, query.Get("greeting")); err != nil {
		return
	}
	s.echo(upgraded, io.LimitReader(buffered, limit))
}

// echo sends what it reads, until the end or an error. With Hang it sends nothing, and with ResetMidBody it resets the
// connection in the middle.
func (s *Server) echo(to net.Conn, from io.Reader) {
	raw := rawConn(to)
	data := make([]byte, 32<<10)
	for {
		n, err := from.Read(data)
		switch fault, turn := s.now(); {
		case fault == Hang:
			select {
			case <-turn:
			case <-raw.closed:
				return
			}
		case fault == ResetMidBody:
			_, _ = to.Write(data[:n/2])
			raw.reset()
			return
		}
		if _, failed := to.Write(data[:n]); failed != nil || err != nil {
			return
		}
	}
}

// rawConn returns the connection of the listener below a TLS connection.
func rawConn(c net.Conn) *conn { return c.(*tls.Conn).NetConn().(*conn) }
