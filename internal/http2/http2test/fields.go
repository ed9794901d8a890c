package http2test

import (
	"bytes"
	"strings"

	"golang.org/x/net/http2/hpack"
)

type field struct{ name, value string }

// one chooses of a list: the first are the ordinary ones, of which most messages should be.
func (g *generator) one(ordinary int, list []string) string {
	b := g.next()
	if b < 0xc0 {
		return list[int(b)%ordinary]
	}
	return list[int(b)%len(list)]
}

var (
	methods     = []string{"GET", "POST", "HEAD", "PUT", "OPTIONS", "DELETE", "CONNECT", "", "get", "G T", "GE\x00", "PRI"}
	paths       = []string{"/echo", "/now", "/wait", "/large", "/early", "/trailers", "/echo?a=b", "*", "", "echo", "/a b", "/a%2Fb", "/a%zz", "/a#b", "//x/y", "/\x80", "/?a=%zz", "/a?b c", "https://a/b", "/a:b;c", "/\x7f"}
	authorities = []string{"a", "a:443", "", "u@a", "a:b", "[::1]", "[::1", "a b", "a/b", "a,b", "\x80", "A"}
	schemes     = []string{"https", "http", "", "ftp", "HTTPS"}
	statuses    = []string{"200", "404", "204", "304", "103", "100", "101", "500", "", "abc", "2000", "099", "99", "+20", "999", "1000", " 200"}
)

// others are fields that mean something to somebody, and some that cannot be.
var others = []field{
	{"x-a", "b"}, {"x-a", "c"}, {"accept", "application/json"}, {"user-agent", "kubectl/v1.37.0"}, {"authorization", "Bearer a.b.c"},
	{"content-type", "application/json"}, {"accept-encoding", "gzip"}, {"content-length", "5"}, {"content-length", "0"}, {"cookie", "a=b"},
	{"cookie", "c=d"}, {"te", "trailers"}, {"expect", "100-continue"}, {"trailer", "x-t"}, {"x-t", "1"}, {"host", "a"}, {"priority", "u=1"},
	{"content-length", "3"}, {"content-length", "+5"}, {"content-length", "05"}, {"content-length", "a"}, {"content-length", "5, 5"},
	{"content-length", ""}, {"content-length", "18446744073709551621"}, {"content-length", "9223372036854775808"}, {"content-length", "-1"},
	{"host", "b"}, {"host", "a b"}, {"host", ""}, {"connection", "close"}, {"connection", "x-a"}, {"keep-alive", "1"}, {"proxy-connection", "close"},
	{"transfer-encoding", "chunked"}, {"transfer-encoding", "identity"}, {"upgrade", "h2c"}, {"te", "gzip"}, {"te", ""}, {"expect", "200-ok"},
	{"trailer", "content-length"}, {"trailer", "x-t, x-u"}, {"trailer", ""}, {"x-u", "2"}, {"x-remote-user", "admin"}, {"date", "now"},
	{"X-Upper", "a"}, {"x y", "a"}, {"x\r\nb", "a"}, {"", "a"}, {":", "a"}, {":extra", "a"}, {":path", "/b"}, {":status", "200"}, {":method", "GET"},
	{":scheme", "https"}, {":authority", "b"}, {":protocol", "websocket"}, {"x-a", "a\r\nb: c"}, {"x-a", "a\x00b"}, {"x-a", " a "}, {"x-a", "a\t"}, {"x-a", "\x7f"},
	{"x-a", "\x80"}, {"x-a", ""}, {"x_a", "b"}, {"x-long", strings.Repeat("v", 4000)}, {"x-longer", strings.Repeat("v", 15000)},
	{"x-longest", strings.Repeat("v", 70000)}, {"x-bomb", strings.Repeat("v", 300000)},
}

// ordinaryFields is how many of others are what ordinary messages have.
const ordinaryFields = 17

// fields is a header block of these, and of what the input adds.
func (g *generator) fields(first []field) []byte {
	n := int(g.next())
	for range n % 6 {
		b := int(g.next())
		switch {
		case b < 0xa0:
			first = append(first, others[b%ordinaryFields])
		case b < 0xf8:
			first = append(first, others[b%len(others)])
		default:
			first = append(first, field{string(g.take(int(g.next() % 24))), string(g.take(int(g.next() % 64)))})
		}
	}
	if n >= 0xf8 { // somewhere else in the block
		first = append(first[1%max(len(first), 1):], first[:1%max(len(first), 1)]...)
	}
	if n >= 0xf0 && n < 0xf8 {
		g.encoder.SetMaxDynamicTableSize(uint32(g.next()) * 64)
	}
	g.block.Reset()
	for _, f := range first {
		h := hpack.HeaderField{Name: f.name, Value: f.value, Sensitive: n&0x10 != 0}
		g.note("%s", describe(h))
		_ = g.encoder.WriteField(h) // a buffer has no errors
	}
	return bytes.Clone(g.block.Bytes())
}

func (g *generator) request() []byte {
	missing := g.next()
	var list []field
	for i, f := range []field{
		{":method", g.one(5, methods)}, {":scheme", g.one(1, schemes)}, {":authority", g.one(2, authorities)}, {":path", g.one(6, paths)},
	} {
		if missing < 0xf0 || missing>>i&1 == 0 {
			list = append(list, f)
		}
	}
	return g.fields(list)
}

func (g *generator) response() []byte {
	if b := g.next(); b >= 0xf0 {
		return g.fields(nil)
	}
	return g.fields([]field{{":status", g.one(5, statuses)}})
}
