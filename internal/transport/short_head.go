package transport

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// The head of a response is read strictly: the other side may be hostile, and what has two readings is an error. The texts
// are those by which judge knows a broken protocol.
var (
	errMalformed = errors.New("malformed HTTP response")
	errHeadLarge = errors.New("server response headers exceeded the limit")
)

// readResponse reads one head. reuse is whether the connection can carry another request when the body is over.
func (c *shortConn) readResponse(r *http.Request, budget *int64) (*shortResponse, bool, error) {
	text, err := c.readLines(budget)
	if err != nil {
		return nil, false, err
	}
	resp := &shortResponse{Response: http.Response{Request: r, ProtoMajor: 1}}
	status := text[:c.ends[0]]
	if !parseStatus(&resp.Response, status) {
		return nil, false, fmt.Errorf("%w: status line %s", errMalformed, strconv.Quote(status[:min(len(status), 64)]))
	}
	if resp.Header, err = parseHeader(text, c.ends); err != nil {
		return nil, false, err
	}
	reuse, err := frame(&resp.Response)
	return resp, reuse, err
}

// readLines reads up to an empty line. The text holds the lines without their ends, which are in c.ends.
func (c *shortConn) readLines(budget *int64) (string, error) {
	head, ends := c.head[:0], c.ends[:0]
	for {
		part, err := c.in.ReadSlice('\n')
		if *budget -= int64(len(part)); *budget < 0 {
			return "", errHeadLarge
		}
		if err == bufio.ErrBufferFull {
			head = append(head, part...)
			continue
		}
		if err != nil {
			return "", fmt.Errorf("read response: %w", noEOF(err))
		}
		start := 0
		if len(ends) > 0 {
			start = ends[len(ends)-1]
		}
		head = append(head, part[:len(part)-1]...)
		if n := len(head); n > start && head[n-1] == '\r' {
			head = head[:n-1]
		}
		if len(head) == start {
			break
		}
		ends = append(ends, len(head))
	}
	c.ends = ends
	if c.head = head; cap(head) > maxKeptHead {
		c.head = nil
	}
	if len(ends) == 0 {
		return "", fmt.Errorf("%w: it begins with an empty line", errMalformed)
	}
	return string(head), nil
}

// parseStatus reads "HTTP/1.x NNN" and a reason.
func parseStatus(resp *http.Response, line string) bool {
	const proto = "HTTP/1."
	if len(line) < len(proto)+5 || line[:len(proto)] != proto || line[len(proto)+1] != ' ' {
		return false
	}
	minor, status := line[len(proto)], line[len(proto)+2:]
	if minor != '0' && minor != '1' || len(status) > 3 && status[3] != ' ' {
		return false
	}
	for i := range 3 {
		if status[i] < '0' || status[i] > '9' {
			return false
		}
		resp.StatusCode = 10*resp.StatusCode + int(status[i]-'0')
	}
	resp.ProtoMinor, resp.Proto, resp.Status = int(minor-'0'), line[:len(proto)+1], status
	return resp.StatusCode >= 100
}

func parseHeader(text string, ends []int) (http.Header, error) {
	n := len(ends) - 1
	header := make(http.Header, n)
	values := make([]string, n) // one array for all: most names have one value
	for i := range n {
		line := text[ends[i]:ends[i+1]]
		colon := strings.IndexByte(line, ':')
		if colon <= 0 || !isToken(line[:colon]) {
			return nil, fmt.Errorf("%w: header line %s", errMalformed, strconv.Quote(line[:min(len(line), 64)]))
		}
		name, value := http.CanonicalHeaderKey(line[:colon]), strings.Trim(line[colon+1:], " \t")
		if !sendable(value) {
			return nil, fmt.Errorf("%w: value of %s", errMalformed, name)
		}
		if have := header[name]; have != nil {
			header[name] = append(have, value)
			continue
		}
		values[i] = value
		header[name] = values[i : i+1 : i+1]
	}
	return header, nil
}

// frame decides how the body ends (RFC 9112, 6.3), and takes the headers that said it out, as the library does.
// resp.ContentLength is -1 for a body of unknown length.
func frame(resp *http.Response) (reuse bool, err error) {
	h := resp.Header
	reuse = resp.ProtoMinor == 1 && !names(h["Connection"], "close")
	length, err := contentLength(h)
	if err != nil {
		return false, err
	}
	coding, coded := h["Transfer-Encoding"]
	delete(h, "Transfer-Encoding")
	if coded && resp.ProtoMinor == 1 {
		if len(coding) != 1 || !strings.EqualFold(coding[0], "chunked") {
			return false, fmt.Errorf("%w: transfer encoding %s", errMalformed, strconv.Quote(strings.Join(coding, ", ")))
		}
		if length >= 0 { // one of the two is a lie
			reuse, length = false, -1
			delete(h, "Content-Length")
		}
		resp.TransferEncoding = chunkedCoding
	}
	resp.ContentLength = length
	if bodiless(resp) && resp.Request.Method != http.MethodHead {
		resp.ContentLength = 0
	}
	if length < 0 && resp.TransferEncoding == nil && !bodiless(resp) {
		reuse = false // it ends with the connection
	}
	return reuse, nil
}

var chunkedCoding = []string{"chunked"}

// bodiless reports the responses that have no body, whatever their headers say.
func bodiless(resp *http.Response) bool {
	code := resp.StatusCode
	return resp.Request.Method == http.MethodHead || code < 200 || code == http.StatusNoContent || code == http.StatusNotModified
}

// contentLength is -1 when there is none. Several must agree.
func contentLength(h http.Header) (int64, error) {
	values := h["Content-Length"]
	if len(values) == 0 {
		return -1, nil
	}
	for _, v := range values {
		if v != values[0] {
			return 0, fmt.Errorf("%w: two lengths", errMalformed)
		}
	}
	h["Content-Length"] = values[:1]
	n, err := strconv.ParseUint(values[0], 10, 63)
	if err != nil || values[0][0] == '+' {
		return 0, fmt.Errorf("%w: length %s", errMalformed, strconv.Quote(values[0]))
	}
	return int64(n), nil
}

// names reports whether a list of tokens has one, in any case.
func names(values []string, wanted string) bool {
	for _, v := range values {
		for t := range strings.SplitSeq(v, ",") {
			if strings.EqualFold(strings.TrimSpace(t), wanted) {
				return true
			}
		}
	}
	return false
}

// tokens are the bytes of a header name (RFC 9110, 5.6.2).
var tokens = func() (t [256]bool) {
	for c := range t {
		t[c] = 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c > ' ' && bytes.IndexByte([]byte("!#$%&'*+-.^_`|~"), byte(c)) >= 0
	}
	return t
}()

func isToken(s string) bool {
	for i := range len(s) {
		if !tokens[s[i]] {
			return false
		}
	}
	return s != ""
}

// sendable reports whether a header value is one line.
func sendable(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

// visible reports whether a part of the request line has no blank and no control byte.
func visible(b []byte) bool {
	for _, c := range b {
		if c <= ' ' || c == 0x7f {
			return false
		}
	}
	return true
}
