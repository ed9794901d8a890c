package transport

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

const (
	okHead  = "HTTP/1.1 200 OK\r\n"
	okChunk = okHead + "Transfer-Encoding: chunked\r\n\r\n"
)

// fine lists responses that must pass unchanged.
var fine = map[string]struct {
	method, text string
	status       int
	body         string
	trailer      string
	closes       bool // the response ends with the connection
}{
	"known length":                 {text: okHead + "Content-Length: 5\r\n\r\nhello", body: "hello"},
	"nothing":                      {text: okHead + "Content-Length: 0\r\n\r\n"},
	"length with blanks around":    {text: okHead + "Content-Length:  \t 5 \t\r\n\r\nhello", body: "hello"},
	"length with leading zeros":    {text: okHead + "content-length:005\r\n\r\nhello", body: "hello"},
	"no reason":                    {text: "HTTP/1.1 200\r\nContent-Length: 5\r\n\r\nhello", body: "hello"},
	"empty reason":                 {text: "HTTP/1.1 200 \r\nContent-Length: 5\r\n\r\nhello", body: "hello"},
	"long reason":                  {text: "HTTP/1.1 200 " + strings.Repeat("well, ", 300) + "\r\nContent-Length: 5\r\n\r\nhello", body: "hello"},
	"reason beyond ASCII":          {text: "HTTP/1.1 200 tr\xe8s bien\r\nContent-Length: 5\r\n\r\nhello", body: "hello"},
	"chunks":                       {text: okChunk + "3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n", body: "hello"},
	"no chunk":                     {text: okChunk + "0\r\n\r\n"},
	"chunked in capitals":          {text: okHead + "transfer-encoding: CHUNKED \r\n\r\n5\r\nhello\r\n0\r\n\r\n", body: "hello"},
	"chunk sizes of many digits":   {text: okChunk + "000005\r\nhello\r\n0A\r\n0123456789\r\n00\r\n\r\n", body: "hello0123456789"},
	"chunk extensions":             {text: okChunk + "5;a=b;c=\"d e\"\r\nhello\r\n0;last\r\n\r\n", body: "hello"},
	"trailers":                     {text: okHead + "Trailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-Sum: 7\r\n\r\n", body: "hello", trailer: "7"},
	"trailers not announced":       {text: okChunk + "5\r\nhello\r\n0\r\nx-sum: 7\r\nX-Other:\r\n\r\n", body: "hello", trailer: "7"},
	"until the end":                {text: okHead + "\r\nhello", body: "hello", closes: true},
	"HTTP/1.0":                     {text: "HTTP/1.0 200 OK\r\n\r\nhello", body: "hello", closes: true},
	"HTTP/1.0 with a length":       {text: "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 5\r\n\r\nhello", body: "hello"},
	"said to close":                {text: okHead + "Connection: close\r\nContent-Length: 5\r\n\r\nhello", body: "hello"},
	"HEAD":                         {method: http.MethodHead, text: okHead + "Content-Length: 5\r\n\r\n"},
	"HEAD of chunks":               {method: http.MethodHead, text: okChunk},
	"HEAD without a length":        {method: http.MethodHead, text: okHead + "\r\n"},
	"no content":                   {text: "HTTP/1.1 204 No Content\r\n\r\n", status: 204},
	"no content, with a length":    {text: "HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n", status: 204},
	"not modified, with a length":  {text: "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", status: 304},
	"100 first":                    {text: "HTTP/1.1 100 Continue\r\n\r\n" + okHead + "Content-Length: 2\r\n\r\nok", body: "ok"},
	"early hints, three times":     {text: strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n", 3) + okHead + "Content-Length: 2\r\n\r\nok", body: "ok"},
	"an error":                     {text: "HTTP/1.1 503 Later\r\nContent-Length: 2\r\n\r\nno", status: 503, body: "no"},
	"many cookies":                 {text: okHead + strings.Repeat("Set-Cookie: a=b; path=/; expires=Thu, 01 Jan 2030 00:00:00 GMT\r\n", 50) + "Content-Length: 2\r\n\r\nok", body: "ok"},
	"tabs and bytes beyond ASCII":  {text: okHead + "X:\ta\tb\t\xc3\xa9\xff" + strings.Repeat("\t", 100) + "z\r\nContent-Length: 2\r\n\r\nok", body: "ok"},
	"headers without a value":      {text: okHead + "X:\r\nY: \r\nContent-Length: 2\r\n\r\nok", body: "ok"},
	"names that nearly matter":     {text: okHead + "Content-Lengt: a\r\nContent-Length-: +\r\nX-Transfer-Encoding: gzip\r\nTransfer_Encoding: gzip\r\nContent-Length: 2\r\n\r\nok", body: "ok"},
	"every byte of a token":        {text: okHead + "!#$%&'*+-.^_`|~09azAZ: x\r\nContent-Length: 2\r\n\r\nok", body: "ok"},
	"an Upgrade header in a 200":   {text: okHead + "Upgrade: h2c\r\nContent-Length: 2\r\n\r\nok", body: "ok"},
	"a body that looks like heads": {text: okHead + "Content-Length: 20\r\n\r\nHTTP/1.1 200 OK\r\n\n\x00\r", body: "HTTP/1.1 200 OK\r\n\n\x00\r"},
}

// headLies and bodyLies list malformed responses, each with its violation. A response of headLies is never returned. A response of bodyLies
// never looks complete.
var headLies = map[string]struct {
	text  string
	wrong error
}{
	"folded header":               {okHead + "X: a\r\n b\r\nContent-Length: 0\r\n\r\n", errFolded},
	"folded with a tab":           {okHead + "X: a\r\n\tb\r\nContent-Length: 0\r\n\r\n", errFolded},
	"first header folded":         {okHead + " X: a\r\nContent-Length: 0\r\n\r\n", errFolded},
	"bare LF after the status":    {"HTTP/1.1 200 OK\nContent-Length: 0\r\n\r\n", errBareLF},
	"bare LF after the code":      {"HTTP/1.1 200\nContent-Length: 0\r\n\r\n", errBareLF},
	"bare LF after a header":      {okHead + "X: a\nContent-Length: 0\r\n\r\n", errBareLF},
	"bare LF after a length":      {okHead + "Content-Length: 0\n\r\n", errBareLF},
	"bare LF at the end":          {okHead + "Content-Length: 0\r\n\n", errBareLF},
	"blank before the colon":      {okHead + "Content-Length : 5\r\n\r\nhello", errName},
	"tab before the colon":        {okHead + "Content-Length\t: 5\r\n\r\nhello", errName},
	"blank within a name":         {okHead + "Content Length: 5\r\n\r\nhello", errName},
	"name that is no token":       {okHead + "X(y): 5\r\nContent-Length: 0\r\n\r\n", errName},
	"name beyond ASCII":           {okHead + "X\xc3\xa9: 5\r\nContent-Length: 0\r\n\r\n", errName},
	"header without a name":       {okHead + ": x\r\nContent-Length: 0\r\n\r\n", errName},
	"header without a colon":      {okHead + "nonsense\r\nContent-Length: 0\r\n\r\n", errNoColon},
	"NUL in a value":              {okHead + "X: a\x00b\r\nContent-Length: 0\r\n\r\n", errControl},
	"DEL in a value":              {okHead + "X: a\x7fb\r\nContent-Length: 0\r\n\r\n", errControl},
	"NUL in the reason":           {"HTTP/1.1 200 O\x00K\r\nContent-Length: 0\r\n\r\n", errControl},
	"CR in a value":               {okHead + "X: a\rSet-Cookie: b\r\nContent-Length: 0\r\n\r\n", errBareCR},
	"CR at the end":               {okHead + "Content-Length: 0\r\n\rX", errBareCR},
	"protocols switched":          {"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n", errSwitched},
	"two lengths":                 {okHead + "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!", errTwoLengths},
	"two lengths that agree":      {okHead + "Content-Length: 5\r\nX: y\r\ncontent-length: 5\r\n\r\nhello", errTwoLengths},
	"length and an empty one":     {okHead + "Content-Length: 5\r\nContent-Length:\r\n\r\nhello", errTwoLengths},
	"length and coding":           {okHead + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", errTwoFramings},
	"coding and length":           {okHead + "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n5\r\nhello\r\n0\r\n\r\n", errTwoFramings},
	"length with a sign":          {okHead + "Content-Length: +5\r\n\r\nhello", errLength},
	"negative length":             {okHead + "Content-Length: -5\r\n\r\nhello", errLength},
	"length in hexadecimal":       {okHead + "Content-Length: 0x5\r\n\r\nhello", errLength},
	"length with a fraction":      {okHead + "Content-Length: 5.0\r\n\r\nhello", errLength},
	"length that is a list":       {okHead + "Content-Length: 5, 5\r\n\r\nhello", errLength},
	"length with a blank within":  {okHead + "Content-Length: 5 5\r\n\r\nhello", errLength},
	"length that is empty":        {okHead + "Content-Length:\r\n\r\nhello", errLength},
	"length beyond any":           {okHead + "Content-Length: 9223372036854775808\r\n\r\nhello", errLength},
	"length that wraps":           {okHead + "Content-Length: 18446744073709551621\r\n\r\nhello", errLength},
	"another coding":              {okHead + "Transfer-Encoding: gzip\r\n\r\n", errCoding},
	"coding with another":         {okHead + "Transfer-Encoding: gzip, chunked\r\n\r\n", errCoding},
	"coding with a parameter":     {okHead + "Transfer-Encoding: chunked;q=1\r\n\r\n0\r\n\r\n", errCoding},
	"coding in quotes":            {okHead + "Transfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n", errCoding},
	"coding cut short":            {okHead + "Transfer-Encoding: chunke\r\n\r\n0\r\n\r\n", errCoding},
	"coding that is empty":        {okHead + "Transfer-Encoding:\r\n\r\n0\r\n\r\n", errCoding},
	"two codings":                 {okHead + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", errCoding},
	"coding and an empty one":     {okHead + "Transfer-Encoding: chunked\r\nTransfer-Encoding:\r\n\r\n0\r\n\r\n", errCoding},
	"no content of a length":      {"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\nhello", errNoBody},
	"no content in chunks":        {"HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", errNoBody},
	"early hints of a length":     {"HTTP/1.1 103 Early Hints\r\nContent-Length: 40\r\n\r\n" + okHead + "Content-Length: 0\r\n\r\n", errNoBody},
	"early hints in chunks":       {"HTTP/1.1 103 Early Hints\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + okHead + "Content-Length: 0\r\n\r\n", errNoBody},
	"coding in HTTP/1.0":          {"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", errOldCoding},
	"not HTTP":                    {"SSH-2.0-OpenSSH\r\n\r\n", errStatusLine},
	"HTTP/0.9":                    {"<html>hello</html>\r\n\r\n", errStatusLine},
	"HTTP/2 in words":             {"HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n", errStatusLine},
	"HTTP/2 in frames":            {"\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x64", errStatusLine},
	"HTTP/1.2":                    {"HTTP/1.2 200 OK\r\nContent-Length: 0\r\n\r\n", errStatusLine},
	"an empty line first":         {"\r\n" + okHead + "Content-Length: 0\r\n\r\n", errStatusLine},
	"an LF first":                 {"\n" + okHead + "Content-Length: 0\r\n\r\n", errStatusLine},
	"two blanks":                  {"HTTP/1.1  200 OK\r\nContent-Length: 0\r\n\r\n", errStatusLine},
	"a tab":                       {"HTTP/1.1\t200 OK\r\nContent-Length: 0\r\n\r\n", errStatusLine},
	"status that is no number":    {"HTTP/1.1 abc OK\r\nContent-Length: 0\r\n\r\n", errStatusLine},
	"status with a sign":          {"HTTP/1.1 +20 OK\r\nContent-Length: 0\r\n\r\n", errStatusLine},
	"status of four digits":       {"HTTP/1.1 2000 OK\r\nContent-Length: 0\r\n\r\n", errStatusLine},
	"status below 100":            {"HTTP/1.1 099 OK\r\nContent-Length: 0\r\n\r\n", errStatusLine},
	"lie after an interim answer": {"HTTP/1.1 103 Early Hints\r\n\r\n" + okHead + "X: a\r\n b\r\nContent-Length: 0\r\n\r\n", errFolded},
	"lie in an interim answer":    {"HTTP/1.1 103 Early Hints\r\nX : y\r\n\r\n" + okHead + "Content-Length: 0\r\n\r\n", errName},
}

var bodyLies = map[string]struct {
	text  string
	wrong error
}{
	"chunk size that is no number": {okChunk + "zz\r\nhello\r\n0\r\n\r\n", errChunkSize},
	"chunk size with plus":         {okChunk + "+5\r\nhello\r\n0\r\n\r\n", errChunkSize},
	"chunk size with minus":        {okChunk + "-5\r\nhello\r\n0\r\n\r\n", errChunkSize},
	"chunk size with 0x":           {okChunk + "0x5\r\nhello\r\n0\r\n\r\n", errChunkSize},
	"chunk size beyond any":        {okChunk + "ffffffffffffffffff\r\nhello\r\n0\r\n\r\n", errChunkSize},
	"chunk size that wraps":        {okChunk + "10000000000000005\r\nhello\r\n0\r\n\r\n", errChunkSize},
	"chunk size that is empty":     {okChunk + "\r\nhello\r\n0\r\n\r\n", errChunkSize},
	"chunk size of an extension":   {okChunk + ";a\r\nhello\r\n0\r\n\r\n", errChunkSize},
	"blank before a chunk size":    {okChunk + " 5\r\nhello\r\n0\r\n\r\n", errChunkSize},
	"blank after a chunk size":     {okChunk + "5 \r\nhello\r\n0\r\n\r\n", errChunkSize},
	"bare LF after a chunk size":   {okChunk + "5\nhello\r\n0\r\n\r\n", errBareLF},
	"bare CR after a chunk size":   {okChunk + "5\rXhello\r\n0\r\n\r\n", errBareCR},
	"bare LF after an extension":   {okChunk + "5;a\nhello\r\n0\r\n\r\n", errBareLF},
	"NUL in an extension":          {okChunk + "5;a\x00\r\nhello\r\n0\r\n\r\n", errControl},
	"chunk that is longer":         {okChunk + "3\r\nhello\r\n0\r\n\r\n", errChunkEnd},
	"chunk ended by LF":            {okChunk + "5\r\nhello\n0\r\n\r\n", errChunkEnd},
	"chunk ended by CR":            {okChunk + "5\r\nhello\r0\r\n\r\n", errChunkEnd},
	"second chunk is wrong":        {okChunk + "5\r\nhello\r\n-1\r\n\r\n", errChunkSize},
	"trailer that frames":          {okChunk + "5\r\nhello\r\n0\r\nContent-Length: 7\r\n\r\n", errTrailerFrame},
	"trailer that encodes":         {okChunk + "5\r\nhello\r\n0\r\nTransfer-Encoding: chunked\r\n\r\n", errCoding},
	"trailer that splits":          {okChunk + "5\r\nhello\r\n0\r\nX: a\rb\r\n\r\n", errBareCR},
	"trailer that is folded":       {okChunk + "5\r\nhello\r\n0\r\nX: a\r\n b\r\n\r\n", errFolded},
	"trailer with a blank":         {okChunk + "5\r\nhello\r\n0\r\nX : a\r\n\r\n", errName},
	"bare LF after the last chunk": {okChunk + "5\r\nhello\r\n0\r\n\n", errBareLF},
	"bare LF after a trailer":      {okChunk + "5\r\nhello\r\n0\r\nX: a\n\r\n", errBareLF},
}

// read parses a response to method that arrives in parts, and returns the number of accepted bytes.
func read(method string, parts ...string) (taken int, done bool, err error) {
	var m messageParser
	m.expectResponse(method == http.MethodHead, false)
	for _, part := range parts {
		n, good, done, err := m.feed([]byte(part))
		taken += n
		if good > n || !done && err == nil && n != len(part) {
			return taken, done, fmt.Errorf("%d taken, %d good", n, good)
		}
		if done || err != nil {
			return taken, done, err
		}
	}
	return taken, false, nil
}

func TestParserFindsEndOfResponses(t *testing.T) {
	const excess = "HTTP/1.1 200 OK\r\n"
	for name, a := range fine {
		for cut := range len(a.text) {
			n, done, err := read(a.method, a.text[:cut], a.text[cut:]+excess)
			want := len(a.text)
			if a.closes {
				want += len(excess)
			}
			if n != want || done == a.closes || err != nil {
				t.Errorf("feed of %s, cut at %d = %d, done %v, error %v, want %d, done %v, no error", name, cut, n, done, err, want, !a.closes)
			}
		}
	}
}

func TestParserRejectsMalformedResponsesAtAnySplit(t *testing.T) {
	for name, lie := range headLies {
		for cut := range len(lie.text) {
			if n, done, err := read(http.MethodGet, lie.text[:cut], lie.text[cut:]); done || !errors.Is(err, lie.wrong) {
				t.Errorf("feed of %s, cut at %d = %d, done %v, error %v, want %v", name, cut, n, done, err, lie.wrong)
			}
		}
	}
	for name, lie := range bodyLies {
		for cut := range len(lie.text) {
			if n, done, err := read(http.MethodGet, lie.text[:cut], lie.text[cut:]); done || !errors.Is(err, lie.wrong) {
				t.Errorf("feed of %s, cut at %d = %d, done %v, error %v, want %v", name, cut, n, done, err, lie.wrong)
			}
		}
	}
}

func TestParserFindsEndOfRequests(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		asks uint32
	}{
		"GET":              {"GET / HTTP/1.1\r\nHost: x\r\n\r\n", inFlightRequest},
		"HEAD":             {"HEAD / HTTP/1.1\r\nHost: x\r\n\r\n", inFlightHead},
		"a method like it": {"HEADS / HTTP/1.1\r\nHost: x\r\n\r\n", inFlightRequest},
		"a long method":    {"HEADHEADHEADHEADHEADHEAD / HTTP/1.1\r\nHost: x\r\n\r\n", inFlightRequest},
		"upgrade":          {"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", inFlightUpgrade},
		"body":             {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 20\r\n\r\nHEAD / HTTP/1.1\r\n\r\n\n", inFlightRequest},
		"chunks":           {"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n14\r\nHEAD / HTTP/1.1\r\n\r\n\n\r\n0\r\nX: y\r\n\r\n", inFlightRequest},
	} {
		for cut := range len(c.text) {
			var m messageParser
			m.expectRequest()
			n, _, done, err := m.feed([]byte(c.text[:cut]))
			if n != cut || done || err != nil {
				t.Fatalf("feed of the first %d bytes of %s = %d, done %v, error %v, want all, not done", cut, name, n, done, err)
			}
			n, _, done, err = m.feed([]byte(c.text[cut:] + "GET"))
			if n != len(c.text)-cut || !done || err != nil || m.inFlight() != c.asks {
				t.Errorf("feed of the rest of %s after %d = %d, done %v, error %v, in flight %d, want %d, done, no error, %d", name, cut, n, done, err, m.inFlight(), len(c.text)-cut, c.asks)
			}
		}
	}
}

func TestTextLength(t *testing.T) {
	for c := range 256 {
		for at := range 20 {
			p := []byte(strings.Repeat("\xffa\t~", 5))
			p[at] = byte(c)
			want := len(p)
			if c < ' ' && c != '\t' || c == 0x7f {
				want = at
			}
			if got := textLength(p); got != want {
				t.Errorf("textLength with %#x at %d = %d, want %d", c, at, got, want)
			}
		}
	}
}

// FuzzAnswers compares the parser with net/http: a response that passes must be a response for net/http, with a body that
// ends at the same byte.
func FuzzAnswers(f *testing.F) {
	for _, a := range fine {
		f.Add(a.method == http.MethodHead, a.text+okHead, 7)
	}
	for _, l := range headLies {
		f.Add(false, l.text, 3)
	}
	for _, l := range bodyLies {
		f.Add(true, l.text, 3)
		f.Add(false, l.text, 60)
	}
	f.Fuzz(func(t *testing.T, head bool, text string, cut int) {
		method := http.MethodGet
		if head {
			method = http.MethodHead
		}
		cut = max(0, min(cut, len(text)))
		taken, done, err := read(method, text[:cut], text[cut:])
		if whole, wholly, err2 := read(method, text); whole != taken || wholly != done || !errors.Is(err, err2) {
			t.Fatalf("cut at %d: %d bytes, done %v, error %v, want %d, %v, %v as for the whole text", cut, taken, done, err, whole, wholly, err2)
		}
		if !done {
			return
		}
		source := strings.NewReader(text)
		in := bufio.NewReader(source)
		resp := libraryReads(t, in, method)
		if resp == nil {
			return
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			if strings.Contains(err.Error(), textTrailersLong) || strings.Contains(err.Error(), "too much non-data") || strings.Contains(err.Error(), "line too long") {
				return // limits of net/http, which are stricter
			}
			t.Fatalf("net/http's error for the body of an accepted response = %v, want none", err)
		}
		if at := len(text) - source.Len() - in.Buffered(); at != taken {
			t.Fatalf("end of the response = %d, want %d as for net/http", taken, at)
		}
	})
}

// libraryReads reads like net/http's client: up to the last response. Nil means that only net/http rejects it.
func libraryReads(t *testing.T, in *bufio.Reader, method string) *http.Response {
	for {
		resp, err := http.ReadResponse(in, &http.Request{Method: method})
		if err != nil {
			if strings.Contains(err.Error(), textTrailerKey) {
				return nil
			}
			t.Fatalf("net/http's error for an accepted response = %v, want none", err)
		}
		if resp.StatusCode >= 200 {
			return resp
		}
	}
}
