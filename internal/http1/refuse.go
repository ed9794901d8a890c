package http1

import (
	"errors"
	"net/http"
	"strconv"

	"portico.dev/internal/httpmsg"
)

// refusal is a request that no handler sees. The connection ends with it.
type refusal struct {
	code int
	why  string
}

func (r *refusal) Error() string { return r.why }

func malformed(why string) error { return &refusal{http.StatusBadRequest, why} }

// against is the refusal of what is against a rule for both versions of HTTP.
func against(err error) error {
	var rule *httpmsg.RequestError
	if errors.As(err, &rule) {
		return &refusal{rule.Status(), rule.Why}
	}
	return malformed(err.Error())
}

// reasons are those of metav1.Status.
var reasons = map[int]string{http.StatusBadRequest: "BadRequest", http.StatusServiceUnavailable: "ServiceUnavailable"}

// refuse answers a request whose head is no good, and has the client read the answer. Of other errors it says nothing: the
// client is gone, or was too slow.
func (c *conn) refuse(err error) {
	var r *refusal
	if !errors.As(err, &r) {
		return
	}
	b := make([]byte, 0, 512)
	b = append(b, `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":`...)
	b = strconv.AppendQuote(b, r.why)
	if reason := reasons[r.code]; reason != "" {
		b = append(append(append(b, `,"reason":"`...), reason...), '"')
	}
	if r.code == http.StatusServiceUnavailable {
		b = append(b, `,"details":{"retryAfterSeconds":1}`...)
	}
	b = append(strconv.AppendInt(append(b, `,"code":`...), int64(r.code), 10), '}')
	answer := appendStatusLine(make([]byte, 0, 1024), true, r.code)
	answer = append(append(answer, "Date: "...), c.server.clock.Date()...)
	if r.code == http.StatusServiceUnavailable {
		answer = append(answer, "\r\nRetry-After: 1"...)
	}
	answer = append(answer, "\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: "...)
	answer = append(strconv.AppendInt(answer, int64(len(b)), 10), "\r\n\r\n"...)
	if _, err := c.net.Write(append(answer, b...)); err == nil {
		c.part()
	}
}
