package differential

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"

	"k8s.io/client-go/rest"
)

// raw asks over HTTP/1.1 with the bytes that the script has, which a library would tidy up.
func (s *server) raw(ctx context.Context, step step, w words) (a answer, err error) {
	config, err := rest.TLSConfigFor(s.configs[step.As])
	if err != nil {
		return a, err
	}
	host := strings.TrimPrefix(s.host, "https://")
	own := config.Clone()
	own.NextProtos = []string{"http/1.1"}
	conn, err := (&tls.Dialer{Config: own}).DialContext(ctx, "tcp", host)
	if err != nil {
		return a, err
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return a, err
		}
	}
	upgrade := w.header.Get("Upgrade") != ""
	if _, err := io.WriteString(conn, headOfRaw(w, host, upgrade)); err != nil {
		return a, err
	}
	if !upgrade {
		if _, err := io.WriteString(conn, w.body); err != nil {
			return a, err
		}
	}
	return readRaw(conn, w)
}

func headOfRaw(w words, host string, upgrade bool) string {
	var b strings.Builder
	b.WriteString(w.method + " " + w.target + " HTTP/1.1\r\nHost: " + host + "\r\nUser-Agent: differential\r\n")
	header := w.header.Clone()
	if header.Get("Connection") == "" {
		header.Set("Connection", "close")
	}
	if w.body != "" && !upgrade && header.Get("Transfer-Encoding") == "" {
		header.Set("Content-Length", strconv.Itoa(len(w.body)))
	}
	_ = header.Write(&b) // a string takes all
	b.WriteString("\r\n")
	return b.String()
}

// readRaw reads until the answer ends, also one that ends before its time. Of a tunnel it is what comes back.
func readRaw(conn net.Conn, w words) (a answer, err error) {
	reader := bufio.NewReader(conn)
	for {
		response, err := http.ReadResponse(reader, &http.Request{Method: w.method})
		if err != nil {
			return a, err
		}
		a.Code, a.Header = response.StatusCode, response.Header
		switch {
		case a.Code == http.StatusSwitchingProtocols:
			if _, err := io.WriteString(conn, w.body); err != nil {
				return a, err
			}
			a.Body, err = io.ReadAll(io.LimitReader(reader, largest))
			return a, err
		case a.Code < 200:
			a.Interim = append(a.Interim, a.Code)
			continue
		}
		a.Body, err = io.ReadAll(io.LimitReader(response.Body, largest))
		a.Trailer = response.Trailer
		_ = response.Body.Close() // it says again what reading has said
		return a, err
	}
}
