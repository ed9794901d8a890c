package egress

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
	"unicode"
)

// maxConnectHeaders bounds the headers of a response to CONNECT.
const maxConnectHeaders = 16 << 10

// openConnect requests a connection with HTTP CONNECT.
func (t *tunnel) openConnect(ctx context.Context, server net.Conn, address string) (net.Conn, error) {
	return Connect(ctx, server, address, "")
}

// Connect requests a connection to address from an HTTP proxy at the other end of server (RFC 9110, section 9.3.6), with the
// header Proxy-Authorization unless authorization is empty. It closes server if it returns an error.
func Connect(ctx context.Context, server net.Conn, address, authorization string) (net.Conn, error) {
	stop := context.AfterFunc(ctx, func() { _ = server.SetDeadline(time.Unix(1, 0)) }) // interrupts reads and writes
	err := connect(server, address, authorization)
	if !stop() && err == nil {
		err = context.Cause(ctx) // the deadline has been set, or will be
	}
	if err != nil {
		_ = server.Close() // the first error is the one to report
		return nil, err
	}
	return server, nil
}

// connect sends the request and reads the response.
func connect(server net.Conn, address, authorization string) error {
	if authorization != "" {
		authorization = "Proxy-Authorization: " + authorization + "\r\n"
	}
	if _, err := fmt.Fprintf(server, "CONNECT %s HTTP/1.1\r\nHost: %[1]s\r\n%s\r\n", address, authorization); err != nil {
		return err
	}
	bounded := &io.LimitedReader{R: server, N: maxConnectHeaders}
	reader := bufio.NewReader(bounded)
	resp, err := http.ReadResponse(reader, &http.Request{Method: http.MethodConnect})
	var failed net.Error
	switch {
	case err == nil:
	case bounded.N <= 0:
		return &refusedError{fmt.Sprintf("the headers of its response to CONNECT are larger than %d bytes", maxConnectHeaders)}
	case errors.As(err, &failed), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("no response to CONNECT: %w", err)
	default:
		return &refusedError{"its response to CONNECT is not HTTP: " + clean(err.Error())}
	}
	if resp.StatusCode == http.StatusOK {
		if n := reader.Buffered(); n > 0 {
			// The dialing side sends first in every supported protocol, so these bytes cannot come from the address.
			return &refusedError{fmt.Sprintf("it sent %d bytes behind its response to CONNECT, before anything was asked", n)}
		}
		return nil
	}
	defer func() { _ = resp.Body.Close() }() // the caller closes the connection
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorText))
	return refusal(resp.StatusCode, clean(string(text)))
}

// Messages of a konnectivity server about itself and its agents. It sends them with status codes that other servers
// use for the address.
var konnectivityTexts = []string{"currently no tunnels available", "Backend context error", "Failed to tunnel dial request", "Backend dial timeout"}

// refusal classifies an error response as an error of the address or of the tunnel. Agents forward the error of their
// dial. For other proxies, RFC 9110 defines status codes that blame the address.
func refusal(code int, text string) error {
	if aboutAddress(text) {
		return &addressError{text}
	}
	said := fmt.Sprintf("it answered %d %s", code, http.StatusText(code))
	if text != "" {
		said += ": " + text
	}
	for _, own := range konnectivityTexts {
		if strings.HasPrefix(text, own) {
			return &refusedError{said}
		}
	}
	switch code {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return &addressError{said}
	}
	return &refusedError{said}
}

// aboutAddress reports whether text is an error of Go's net.Dial, which agents forward unchanged.
func aboutAddress(text string) bool { return strings.HasPrefix(text, "dial tcp") }

// clean converts external text to a single line.
func clean(text string) string {
	if len(text) > maxErrorText {
		text = text[:maxErrorText]
	}
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == unicode.ReplacementChar {
			return ' '
		}
		return r
	}, text))
}
