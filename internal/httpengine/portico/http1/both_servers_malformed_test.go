package http1

import (
	"bufio"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
)

// heard answers "fine" or "bad body".
func heard(w http.ResponseWriter, r *http.Request) {
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		_, _ = io.WriteString(w, "bad body")
		return
	}
	_, _ = io.WriteString(w, "fine")
}

// verdict describes the responses to requests and to the probe after them.
func verdict(t *testing.T, a *serverUnderTest, raw string) string {
	t.Helper()
	var said []string
	b := bufio.NewReader(strings.NewReader(hear(t, a.dial(t), raw+probe)))
	for {
		if _, err := b.Peek(1); err != nil {
			return strings.Join(said, ", ")
		}
		res, err := http.ReadResponse(b, nil)
		if err != nil {
			return strings.Join(append(said, "nonsense"), ", ")
		}
		body, err := io.ReadAll(res.Body)
		word := strconv.Itoa(res.StatusCode)
		switch {
		case err != nil:
			word += " cut"
		case len(body) == 0 && res.StatusCode == 200:
			word = "probe"
		case res.StatusCode == 200:
			word = string(body)
		case a.name == ours && (!res.Close || res.Header.Get("Content-Type") != "application/json" || !strings.Contains(string(body), `"kind":"Status"`)):
			word += " but no Status, or not the last answer"
		}
		said = append(said, word)
	}
}

const (
	host  = "Host: x\r\n"
	post  = "POST / HTTP/1.1\r\n" + host
	coded = "Transfer-Encoding: chunked\r\n"
	// The following chunks are a body.
	chunky = post + coded + "\r\n"
)

func lines(n int, line string) string { return strings.Repeat(line, n) }

// announced returns the value of a Trailer field.
func announced(n int) string {
	names := make([]string, n)
	for i := range names {
		names[i] = "T" + strconv.Itoa(i)
	}
	return strings.Join(names, ",")
}

// Invalid requests. ours is the result for the request and the following probe. library is the result of net/http's server if it
// differs. why is then the reason for the stricter check.
var malformedRequests = []struct{ name, raw, ours, library, why string }{
	// Line endings.
	{"bare LF after the request line", "GET / HTTP/1.1\n" + host + "\r\n", "400", "fine, probe", "a front that needs CRLF sees another request"},
	{"bare LF after a header", "GET / HTTP/1.1\r\nHost: x\nA: b\r\n\r\n", "400", "fine, probe", "the same"},
	{"bare LF all over", "GET / HTTP/1.1\nHost: x\n\n", "400", "fine, probe", "the same"},
	{"an empty line of a bare LF", "GET / HTTP/1.1\r\nHost: x\r\n\n", "400", "fine, probe", "the same"},
	{"bare CR in a value", "GET / HTTP/1.1\r\nHost: x\r\nA: b\rContent-Length: 5\r\n\r\n", "400", "", ""},
	{"bare CR for the end of a line", "GET / HTTP/1.1\r\nHost: x\rA: b\r\n\r\n", "400", "", ""},
	{"bare CR in the request line", "GET /\r HTTP/1.1\r\n" + host + "\r\n", "400", "", ""},
	{"bare CR after the version", "GET / HTTP/1.1\r\r\n" + host + "\r\n", "400", "", ""},
	{"bare CR at a value's end", "GET / HTTP/1.1\r\nHost: x\r\nA: b\r\r\n\r\n", "400", "", ""},
	{"bare CR at a value's beginning", "GET / HTTP/1.1\r\nHost: x\r\nA:\r b\r\n\r\n", "400", "", ""},
	{"bare CR for a value", "GET / HTTP/1.1\r\nHost: x\r\nA:\r\r\n\r\n", "400", "", ""},
	{"bare CR after the Host", "GET / HTTP/1.1\r\nHost: x\r\r\n\r\n", "400", "", ""},
	{"bare CR after the length", post + "Content-Length: 5\r\r\n\r\nhello", "400", "", ""},
	{"bare CR after the coding", post + "Transfer-Encoding: chunked\r\r\n\r\n0\r\n\r\n", "400", "", ""},
	{"bare CR before the coding", post + "Transfer-Encoding: \rchunked\r\n\r\n0\r\n\r\n", "400", "", ""},
	{"bare CR in the empty line", "GET / HTTP/1.1\r\nHost: x\r\n\r\r\n\r\n", "400", "", ""},
	{"NUL in a value", "GET / HTTP/1.1\r\nHost: x\r\nA: b\x00c\r\n\r\n", "400", "", ""},
	{"NUL in a name", "GET / HTTP/1.1\r\nHost: x\r\nA\x00: b\r\n\r\n", "400", "", ""},
	{"NUL in the target", "GET /\x00 HTTP/1.1\r\n" + host + "\r\n", "400", "", ""},
	{"a folded line", "GET / HTTP/1.1\r\nHost: x\r\nA: b\r\n c\r\n\r\n", "400", "fine, probe", "whether it is one header or two"},
	{"a folded length", post + "Content-Length:\r\n 5\r\n\r\nhello", "400", "fine, probe", "the same"},
	{"a fold of a tab alone", "GET / HTTP/1.1\r\nHost: x\r\n\t\r\n\r\n", "400", "", ""},
	{"a blank before the first header", "GET / HTTP/1.1\r\n Host: x\r\n\r\n", "400", "", ""},
	{"two empty lines before", "\r\n\r\nGET / HTTP/1.1\r\n" + host + "\r\n", "400", "", ""},
	{"an empty line before the first request", "\r\nGET / HTTP/1.1\r\n" + host + "\r\n", "fine, probe", "400", "RFC 9112, 2.2 asks for it; here alone ours is milder"},
	{"an empty line of a bare LF before", "\nGET / HTTP/1.1\r\n" + host + "\r\n", "400", "", ""},
	{"empty lines without end", lines(50_000, "\r\n"), "400", "", ""},
	{"an empty line, and then nothing", "\r\n", "probe", "400", "as above"},

	// The request line.
	{"no version", "GET /\r\n" + host + "\r\n", "400", "", ""},
	{"a blank before the method", " GET / HTTP/1.1\r\n" + host + "\r\n", "400", "", ""},
	{"two blanks after the method", "GET  / HTTP/1.1\r\n" + host + "\r\n", "400", "", ""},
	{"two blanks before the version", "GET /  HTTP/1.1\r\n" + host + "\r\n", "400", "", ""},
	{"a blank at the end", "GET / HTTP/1.1 \r\n" + host + "\r\n", "400", "", ""},
	{"a tab for a blank", "GET\t/\tHTTP/1.1\r\n" + host + "\r\n", "400", "", ""},
	{"a tab after the method", "GET\t / HTTP/1.1\r\n" + host + "\r\n", "400", "", ""},
	{"a blank in the target", "GET /a b HTTP/1.1\r\n" + host + "\r\n", "400", "", ""},
	{"no method", "/ HTTP/1.1\r\n" + host + "\r\n", "400", "", ""},
	{"a method that is no token", "G(T / HTTP/1.1\r\n" + host + "\r\n", "400", "", ""},
	{"a method with a colon", "GET: / HTTP/1.1\r\n" + host + "\r\n", "400", "", ""},
	{"a quotation mark in the path", "GET /a\"b HTTP/1.1\r\n" + host + "\r\n", "400", "fine, probe", "RFC 3986 asks for an escape"},
	{"a fragment", "GET /a#b HTTP/1.1\r\n" + host + "\r\n", "400", "fine, probe", "RFC 3986, 3.5: it is not sent"},
	{"a fragment after a query", "GET /a?b#c HTTP/1.1\r\n" + host + "\r\n", "400", "fine, probe", "the same"},
	{"bytes in the path that are no ASCII", "GET /\xc3\xa4 HTTP/1.1\r\n" + host + "\r\n", "400", "fine, probe", "0x85 and 0xa0 are blanks to readers of Latin-1"},
	{"bytes in the query that are no ASCII", "GET /?\xa0HTTP/1.1 HTTP/1.1\r\n" + host + "\r\n", "400", "fine, probe", "the same"},
	{"a query with a bad escape", "GET /?a=%zz HTTP/1.1\r\n" + host + "\r\n", "400", "fine, probe", "RFC 3986, 2.1"},
	{"a query that ends in an escape", "GET /?a=%2 HTTP/1.1\r\n" + host + "\r\n", "400", "fine, probe", "the same"},
	{"an absolute target with a user", "GET https://me:pw@a/a HTTP/1.1\r\n" + host + "\r\n", "400", "fine, probe", "RFC 9110, 4.2.4"},
	{"a target of another scheme", "GET urn:x:y HTTP/1.1\r\n" + host + "\r\n", "400", "fine, probe", "it names no host"},
	{"an asterisk that is not for OPTIONS", "GET * HTTP/1.1\r\n" + host + "\r\n", "400", "fine, probe", "RFC 9112, 3.2.4"},
	{"CONNECT to a path", "CONNECT /rpc HTTP/1.1\r\n" + host + "\r\n", "400", "fine, probe", "RFC 9112, 3.2.3"},
	{"CONNECT without a port", "CONNECT a HTTP/1.1\r\n" + host + "\r\n", "400", "fine, probe", "RFC 9110, 9.3.6"},
	{"CONNECT to a URL", "CONNECT https://a:1/ HTTP/1.1\r\n" + host + "\r\n", "400", "fine, probe", "RFC 9112, 3.2.3"},
	{"a target that is none", "GET a HTTP/1.1\r\n" + host + "\r\n", "400", "", ""},
	{"a target with a bad escape", "GET /%zz HTTP/1.1\r\n" + host + "\r\n", "400", "", ""},
	{"a target with a vertical tab", "GET /\x0b HTTP/1.1\r\n" + host + "\r\n", "400", "", ""},
	{"a target with DEL", "GET /\x7f HTTP/1.1\r\n" + host + "\r\n", "400", "", ""},
	{"an empty target", "GET  HTTP/1.1\r\n" + host + "\r\n", "400", "", ""},
	{"an absolute target with a bad host", "GET http://a b/ HTTP/1.1\r\n" + host + "\r\n", "400", "", ""},
	{"an absolute target with a bad port", "GET http://a:b/ HTTP/1.1\r\n" + host + "\r\n", "400", "", ""},
	{"HTTP/0.9", "GET / HTTP/0.9\r\n" + host + "\r\n", "505", "", ""},
	{"HTTP/1.2", "GET / HTTP/1.2\r\n" + host + "\r\n", "505", "fine, probe", "what it would mean is not known"},
	{"HTTP/2.0", "GET / HTTP/2.0\r\n" + host + "\r\n", "505", "", ""},
	{"HTTP/1.10", "GET / HTTP/1.10\r\n" + host + "\r\n", "400", "", ""},
	{"HTTP/1", "GET / HTTP/1\r\n" + host + "\r\n", "400", "", ""},
	{"HTTP/01.1", "GET / HTTP/01.1\r\n" + host + "\r\n", "400", "", ""},
	{"HTTP/1.+1", "GET / HTTP/1.+1\r\n" + host + "\r\n", "400", "", ""},
	{"http/1.1", "GET / http/1.1\r\n" + host + "\r\n", "400", "", ""},
	{"HTTPS/1.1", "GET / HTTPS/1.1\r\n" + host + "\r\n", "400", "", ""},
	{"the preface of HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "505", "fine", "it is no request"},
	{"a handshake of TLS", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", "400", "", ""},
	{"noise", "\x00\xff\x80\x01\x02\r\n\r\n", "400", "", ""},
	{"an answer", "HTTP/1.1 200 OK\r\n\r\n", "400", "", ""},
	{"an empty object", "{}\r\n\r\n", "400", "", ""},

	// Headers.
	{"no Host", "GET / HTTP/1.1\r\n\r\n", "400", "", ""},
	{"two Hosts", "GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", "400", "", ""},
	{"two equal Hosts", "GET / HTTP/1.1\r\nHost: x\r\nHost: x\r\n\r\n", "400", "", ""},
	{"two Hosts of HTTP/1.0", "GET / HTTP/1.0\r\nHost: x\r\nHost: y\r\n\r\n", "400", "", ""},
	{"a Host with a blank", "GET / HTTP/1.1\r\nHost: x y\r\n\r\n", "400", "", ""},
	{"a Host with a slash", "GET / HTTP/1.1\r\nHost: x/y\r\n\r\n", "400", "", ""},
	{"a Host with a comma after a blank", "GET / HTTP/1.1\r\nHost: a, b\r\n\r\n", "400", "", ""},
	{"a Host with a comma", "GET / HTTP/1.1\r\nHost: a,b\r\n\r\n", "400", "fine, probe", "a list to those who read X-Forwarded-Host"},
	{"a Host with an escape", "GET / HTTP/1.1\r\nHost: a%62\r\n\r\n", "400", "fine, probe", "no name of DNS has one"},
	{"a Host with a user", "GET / HTTP/1.1\r\nHost: u@a\r\n\r\n", "400", "", ""},
	{"a Host with two ports", "GET / HTTP/1.1\r\nHost: a:1:2\r\n\r\n", "400", "fine, probe", "RFC 3986, 3.2"},
	{"a Host without a name", "GET / HTTP/1.1\r\nHost: :1\r\n\r\n", "400", "fine, probe", "RFC 9110, 4.2.2"},
	{"a Host with a bracket that stays open", "GET / HTTP/1.1\r\nHost: [::1\r\n\r\n", "400", "fine, probe", "RFC 3986, 3.2.2"},
	{"no Host with an absolute target", "GET http://x/ HTTP/1.1\r\n\r\n", "400", "", ""},
	{"no Host with CONNECT", "CONNECT x:443 HTTP/1.1\r\n\r\n", "400", "fine, probe", "HTTP/1.1 has a Host"},
	{"a blank before the colon", "GET / HTTP/1.1\r\nHost: x\r\nA : b\r\n\r\n", "400", "", ""},
	{"a tab before the colon", "GET / HTTP/1.1\r\nHost: x\r\nX-Remote-Group\t: b\r\n\r\n", "400", "", ""},
	{"a blank before the colon of the length", post + "Content-Length : 5\r\n\r\nhello", "400", "", ""},
	{"no colon", "GET / HTTP/1.1\r\nHost: x\r\nA\r\n\r\n", "400", "", ""},
	{"no name", "GET / HTTP/1.1\r\nHost: x\r\n: b\r\n\r\n", "400", "", ""},
	{"a name that is no token", "GET / HTTP/1.1\r\nHost: x\r\nA(b): c\r\n\r\n", "400", "", ""},
	{"a name with a blank", "GET / HTTP/1.1\r\nHost: x\r\nA b: c\r\n\r\n", "400", "", ""},
	{"a name that is no ASCII", "GET / HTTP/1.1\r\nHost: x\r\n\xc3\xa4: c\r\n\r\n", "400", "", ""},
	{"a value with a vertical tab", "GET / HTTP/1.1\r\nHost: x\r\nA: b\x0bc\r\n\r\n", "400", "", ""},
	{"a value with DEL", "GET / HTTP/1.1\r\nHost: x\r\nA: \x7f\r\n\r\n", "400", "", ""},
	{"a value with ESC", "GET / HTTP/1.1\r\nHost: x\r\nA: \x1b[31m\r\n\r\n", "400", "", ""},
	{"an expectation of another kind", post + "Expect: 200-ok\r\nContent-Length: 5\r\n\r\nhello", "417", "", ""},

	// Size of the header.
	{"a head of 80 KB", "GET / HTTP/1.1\r\n" + host + "A: " + lines(80_000, "x") + "\r\n\r\n", "431", "", ""},
	{"a target of 80 KB", "GET /" + lines(80_000, "x") + " HTTP/1.1\r\n" + host + "\r\n", "431", "", ""},
	{"a method of 80 KB", lines(80_000, "X") + " / HTTP/1.1\r\n" + host + "\r\n", "431", "", ""},
	{"ten thousand headers", "GET / HTTP/1.1\r\n" + host + lines(10_000, "A: bcde\r\n") + "\r\n", "431", "", ""},
	{"a head that does not end", "GET / HTTP/1.1\r\n" + lines(100_000, "A: bcde\r\n"), "431", "", ""},
	{"a line that does not end", "GET / HTTP/1.1\r\n" + lines(1_000_000, "A"), "431", "", ""},

	// Length of the body.
	{"CL.TE", post + "Content-Length: 6\r\n" + coded + "\r\n0\r\n\r\nG", "400", "fine, probe", "CVE-2025-22871 and its kin: one reading"},
	{"TE.CL", post + coded + "Content-Length: 4\r\n\r\n5c\r\nGPOST\r\n0\r\n\r\n", "400", "bad body", "one reading"},
	{"CL.TE of nothing", post + "Content-Length: 0\r\n" + coded + "\r\n0\r\n\r\n", "400", "fine, probe", "one reading"},
	{"TE twice", post + coded + coded + "\r\n0\r\n\r\n", "501", "501", ""},
	{"TE twice, once obscure", post + coded + "Transfer-Encoding: x\r\n\r\n0\r\n\r\n", "501", "501", ""},
	{"TE twice, once empty", post + coded + "Transfer-Encoding:\r\n\r\n0\r\n\r\n", "501", "501", ""},
	{"TE chunked, identity", post + "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n", "501", "", ""},
	{"TE identity, chunked", post + "Transfer-Encoding: identity, chunked\r\n\r\n0\r\n\r\n", "501", "", ""},
	{"TE chunked, chunked", post + "Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n", "501", "", ""},
	{"TE identity", post + "Transfer-Encoding: identity\r\n\r\n", "501", "", ""},
	{"TE gzip", post + "Transfer-Encoding: gzip\r\n\r\n", "501", "", ""},
	{"TE empty", post + "Transfer-Encoding:\r\n\r\n", "501", "", ""},
	{"TE xchunked", post + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", "501", "", ""},
	{"TE chunked in quotes", post + "Transfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n", "501", "", ""},
	{"TE chunked with a parameter", post + "Transfer-Encoding: chunked;q=1\r\n\r\n0\r\n\r\n", "501", "", ""},
	{"TE chunked with a comma", post + "Transfer-Encoding: chunked,\r\n\r\n0\r\n\r\n", "501", "", ""},
	{"TE with a vertical tab before", post + "Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n", "400", "", ""},
	{"TE with a form feed after", post + "Transfer-Encoding: chunked\x0c\r\n\r\n0\r\n\r\n", "400", "", ""},
	{"TE with a no-break space", post + "Transfer-Encoding: \xc2\xa0chunked\r\n\r\n0\r\n\r\n", "501", "", ""},
	{"TE with a sign for kelvin", post + "Transfer-Encoding: chun\xe2\x84\xaaed\r\n\r\n0\r\n\r\n", "501", "", ""},
	{"TE with a blank before the colon", post + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n", "400", "", ""},
	{"TE after a fold", post + "A: b\r\n Transfer-Encoding: chunked\r\n\r\n", "400", "fine, probe", "folded"},
	{"as many trailers announced as may be", post + coded + "Trailer: " + announced(64) + "\r\n\r\n0\r\n\r\n", "fine, probe", "", ""},
	{"too many trailers announced", post + coded + "Trailer: " + announced(65) + "\r\n\r\n0\r\n\r\n", "400", "fine, probe", "each takes a hundred times the memory of its bytes (CVE-2026-78659)"},
	{"TE of HTTP/1.0", "POST / HTTP/1.0\r\n" + host + coded + "Connection: keep-alive\r\n\r\n0\r\n\r\n", "400", "fine, 400", "HTTP/1.0 has no codings"},
	{"TE with GET and a length", "GET / HTTP/1.1\r\n" + host + "Content-Length: 0\r\n" + coded + "\r\n0\r\n\r\n", "400", "fine, probe", "one reading"},
	{"TE_CL with an underscore", post + "Transfer_Encoding: chunked\r\nContent-Length: 5\r\n\r\nhello", "fine, probe", "", ""},
	{"CL twice", post + "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello", "400", "", ""},
	{"CL twice, equal", post + "Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello", "400", "fine, probe", "two is one too many"},
	{"CL twice, once with a zero", post + "Content-Length: 5\r\nContent-Length: 05\r\n\r\nhello", "400", "", ""},
	{"CL in a list", post + "Content-Length: 5, 5\r\n\r\nhello", "400", "", ""},
	{"CL with a sign", post + "Content-Length: +5\r\n\r\nhello", "400", "", ""},
	{"CL less than nothing", post + "Content-Length: -5\r\n\r\nhello", "400", "", ""},
	{"CL in hex", post + "Content-Length: 0x5\r\n\r\nhello", "400", "", ""},
	{"CL with a blank within", post + "Content-Length: 1 0\r\n\r\nhellohello", "400", "", ""},
	{"CL with an underscore within", post + "Content-Length: 1_0\r\n\r\nhellohello", "400", "", ""},
	{"CL with a point", post + "Content-Length: 5.0\r\n\r\nhello", "400", "", ""},
	{"CL with an exponent", post + "Content-Length: 5e0\r\n\r\nhello", "400", "", ""},
	{"CL empty", post + "Content-Length:\r\n\r\n", "400", "", ""},
	{"CL of words", post + "Content-Length: five\r\n\r\nhello", "400", "", ""},
	{"CL of digits that are no ASCII", post + "Content-Length: \xd9\xa5\r\n\r\nhello", "400", "", ""},
	{"CL with a vertical tab", post + "Content-Length: \x0b5\r\n\r\nhello", "400", "", ""},
	{"CL of 2^63", post + "Content-Length: 9223372036854775808\r\n\r\nhello", "400", "", ""},
	{"CL of 2^64+5", post + "Content-Length: 18446744073709551621\r\n\r\nhello", "400", "", ""},
	{"a body that is shorter than its length", post + "Content-Length: 500\r\n\r\nhello", "bad body", "", ""},
	{"a body that is longer than its length", post + "Content-Length: 5\r\n\r\nhelloworld: GET / HTTP/1.1\r\n\r\n", "fine, 400", "", ""},

	// Chunks.
	{"a size of 0x5", chunky + "0x5\r\nhello\r\n0\r\n\r\n", "bad body", "", ""},
	{"a size with a sign", chunky + "+5\r\nhello\r\n0\r\n\r\n", "bad body", "", ""},
	{"a size less than nothing", chunky + "-5\r\nhello\r\n0\r\n\r\n", "bad body", "", ""},
	{"a size with a blank before", chunky + " 5\r\nhello\r\n0\r\n\r\n", "bad body", "", ""},
	{"a size with a blank after", chunky + "5 \r\nhello\r\n0\r\n\r\n", "bad body", "fine, probe", "plain digits only"},
	{"a size with a blank before an extension", chunky + "5 ;a=b\r\nhello\r\n0\r\n\r\n", "bad body", "", ""},
	{"a size with a tab", chunky + "5\t\r\nhello\r\n0\r\n\r\n", "bad body", "fine, probe", "plain digits only"},
	{"a size with an underscore", chunky + "1_0\r\nhello\r\n0\r\n\r\n", "bad body", "", ""},
	{"no size", chunky + "\r\nhello\r\n0\r\n\r\n", "bad body", "", ""},
	{"no size but an extension", chunky + ";a=b\r\nhello\r\n0\r\n\r\n", "bad body", "", ""},
	{"a size of 16 digits", chunky + "ffffffffffffffff\r\nhello\r\n0\r\n\r\n", "bad body", "", ""},
	{"a size of 17 digits", chunky + "00000000000000005\r\nhello\r\n0\r\n\r\n", "bad body", "", ""},
	{"a size that overflows", chunky + "10000000000000005\r\nhello\r\n0\r\n\r\n", "bad body", "", ""},
	{"LF after a size", chunky + "5\nhello\r\n0\r\n\r\n", "bad body", "", ""},
	{"LF after data", chunky + "5\r\nhello\n0\r\n\r\n", "bad body", "", ""},
	{"LF in an extension", chunky + "5;a\nhello\r\n0\r\n\r\n", "bad body", "", ""},
	{"bare CR in an extension", chunky + "5;a\rb\r\nhello\r\n0\r\n\r\n", "bad body", "", ""},
	{"bare CR before the end of an extension", chunky + "5;a\r\r\nhello\r\n0\r\n\r\n", "bad body", "", ""},
	{"NUL in an extension", chunky + "5;\x00\r\nhello\r\n0\r\n\r\n", "bad body", "fine, probe", "control characters"},
	{"LF after the last size", chunky + "5\r\nhello\r\n0\n\r\n", "bad body", "", ""},
	{"LF for the last line", chunky + "5\r\nhello\r\n0\r\n\n", "bad body", "fine, probe", "lines end with CRLF"},
	{"data shorter than its size", chunky + "6\r\nhello\r\n0\r\n\r\n", "bad body", "", ""},
	{"data longer than its size", chunky + "4\r\nhello\r\n0\r\n\r\n", "bad body", "", ""},
	{"data that ends within", chunky + "500\r\nhello\r\n", "bad body", "", ""},
	{"no last chunk, but a request", chunky + "5\r\nhello\r\n", "bad body", "", ""},
	{"a chunk without its end, but a request", chunky + "5\r\nhello", "bad body", "", ""},
	{"an extension of 10 KB", chunky + "5;" + lines(10_000, "x") + "\r\nhello\r\n0\r\n\r\n", "bad body", "", ""},
	{"extensions without end", chunky + lines(10_000, "1;"+lines(100, "x")+"\r\nx\r\n") + "0\r\n\r\n", "bad body", "", ""},
	{"many zeros", chunky + lines(10_000, "0") + "\r\n\r\n", "bad body", "", ""},

	// Trailers.
	{"a trailer with a bare LF", chunky + "0\r\nA: b\n\r\n", "bad body", "fine, probe", "lines end with CRLF"},
	{"a trailer that is folded", chunky + "0\r\nA: b\r\n c\r\n\r\n", "bad body", "fine, probe", "folded"},
	{"a trailer with a blank before the colon", chunky + "0\r\nA : b\r\n\r\n", "bad body", "fine, probe", "a name is a token"},
	{"a trailer without a colon", chunky + "0\r\nA\r\n\r\n", "bad body", "", ""},
	{"a trailer with NUL", chunky + "0\r\nA: \x00\r\n\r\n", "bad body", "", ""},
	{"a trailer with a bare CR", chunky + "0\r\nA: b\rc\r\n\r\n", "bad body", "", ""},
	{"a trailer with a bare CR at its end", chunky + "0\r\nA: b\r\r\n\r\n", "bad body", "", ""},
	{"trailers of 80 KB", chunky + "0\r\n" + lines(10_000, "A: bcde\r\n") + "\r\n", "bad body", "", ""},
	{"trailers without end", chunky + "0\r\n" + lines(100_000, "A: bcde\r\n"), "bad body", "", ""},
	{"a trailer that is announced and must not be one", post + coded + "Trailer: Content-Length\r\n\r\n0\r\n\r\n", "400", "", ""},
	{"a trailer that changes the framing", chunky + "0\r\nContent-Length: 500\r\nTransfer-Encoding: x\r\nHost: y\r\n\r\n", "fine, probe", "", ""},

	// Valid requests that the servers handle differently.
	{"HTTP/1.0 that wants to keep and to close", "GET / HTTP/1.0\r\nConnection: keep-alive, close\r\n\r\n", "fine", "fine, probe", "close is the safer of the two"},
}

func TestBothServersMalformedRequests(t *testing.T) {
	both := map[string]*serverUnderTest{}
	for _, p := range implementations {
		both[p.name] = p.open(t, rules{}, probed(heard))
	}
	for _, c := range malformedRequests {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if got := verdict(t, both[ours], c.raw); got != c.ours {
				t.Errorf("verdict of %q = %q, want %q", brief(c.raw), got, c.ours)
			}
			want := c.library
			if want == "" {
				want = c.ours
			}
			if got := verdict(t, both[library], c.raw); got != want {
				t.Errorf("verdict of net/http's server = %q, want %q", got, want)
			}
		})
	}
}
