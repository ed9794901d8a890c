package httpmsg

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"golang.org/x/net/http/httpguts"
)

// The expected tables are repeated here by their refused bytes, so that an accidental change of a row fails.
func TestRuleTablesRejectExpectedBytes(t *testing.T) {
	controls := byteRange(0, 0x1f) + "\x7f"
	beyondASCII := byteRange(0x80, 0xff)
	separators := " \"(),/:;<=>?@[\\]{}"
	for _, test := range []struct {
		element *Element
		refused string
	}{
		{Method, controls + separators + beyondASCII},
		{FieldName, controls + separators + beyondASCII},
		{FieldValue, strings.ReplaceAll(controls, "\t", "")},
		{Path, controls + ` "#<>?\` + beyondASCII},
		{Query, controls + " #" + beyondASCII},
		{Authority, controls + " \"#%/<>?@\\^`{|}!$&'()*+,;=" + beyondASCII},
	} {
		for c := range 256 {
			if refused := strings.IndexByte(test.refused, byte(c)) >= 0; test.element.Allows(byte(c)) == refused {
				t.Errorf("%s: Allows(0x%02x) = %v, want %v", test.element.name, c, refused, !refused)
			}
		}
		for _, r := range test.element.rows {
			if !strings.Contains(r.source, "RFC") {
				t.Errorf("%s: source of the row %q = %q, want an RFC", test.element.name, r.bytes, r.source)
			}
		}
	}
}

func TestTargets(t *testing.T) {
	for _, test := range []struct {
		method, target string
		refused        string // a part of the reason; empty: valid
	}{
		{"GET", "/", ""},
		{"GET", "/a%20b?c=%2f&d=[x]", ""},
		{"GET", "//a//b", ""},
		{"GET", "/x HTTP/1.1", "0x20 at offset 2"},
		{"GET", "/x\tHTTP/1.1", "0x09"},
		{"GET", "/x\r\nA: b", "0x0d"},
		{"GET", "/x?a b", "0x20"},
		{"GET", "/x?a\xa0HTTP/1.1", "escaped as %A0"}, // A space in Latin-1.
		{"GET", "/x\x85", "escaped as %85"},
		{"GET", "/x#y", "0x23"},
		{"GET", "/x?y#z", "0x23"},
		{"GET", "/%", "begins no escape"},
		{"GET", "/%2", "begins no escape"},
		{"GET", "/%2g", "begins no escape"},
		{"GET", "/a?%zz", "begins no escape"},
		{"GET", "/a?b%", "begins no escape"},
		{"GET", "a", "slash"},
		{"GET", "", "slash"},
		{"GET", "urn:a:b", "slash"},
		{"GET", "*", "only OPTIONS"},
		{"OPTIONS", "*", ""},
		{"GET", "https://h:1/a?b", ""},
		{"GET", "HTTP://h", ""},
		{"GET", "https://h?a", ""},
		{"GET", "https://u@h/", "0x40"},
		{"GET", "https:///a", "authority of the request is empty"},
		{"GET", "https://h/a b", "0x20"},
		{"GET", "https://h%41/", "0x25"},
		{"CONNECT", "h:443", ""},
		{"CONNECT", "[::1]:443", ""},
		{"CONNECT", "h", "no port"},
		{"CONNECT", "[::1]", "no port"},
		{"CONNECT", "h:", "no port"},
		{"CONNECT", "/a", "0x2f"},
		{"CONNECT", "https://h:1/", "0x2f"},
	} {
		var u url.URL
		err := ParseTarget(test.method, test.target, &u)
		if test.refused == "" && err != nil || test.refused != "" && (err == nil || !strings.Contains(err.Error(), test.refused)) {
			t.Errorf("ParseTarget(%s, %q) error = %v, want %q", test.method, test.target, err, test.refused)
		}
		if _, ok := err.(*RequestError); err != nil && !ok {
			t.Errorf("ParseTarget(%s, %q) error has type %T, want *RequestError", test.method, test.target, err)
		}
	}
}

func TestAuthorities(t *testing.T) {
	for authority, fine := range map[string]bool{
		"": true, "a": true, "a.b-c_d~": true, "a:1": true, "a:": true, "a:65535": true, "1.2.3.4:5": true, "[::1]": true, "[::1]:6443": true,
		"a:123456": false, "a:b": false, "a:1:2": false, "a:-1": false, ":1": false, "u@a": false, "a,b": false, "a b": false, "a/b": false, "a%62": false,
		"[::1": false, "::1": false, "[::1]x": false, "[a]": false, "[1.2.3.4]": false, "a[::1]": false, "[fe80::1%25eth0]": false, "a]": false, "\u00e4": false,
	} {
		if err := CheckAuthority(authority); (err == nil) != fine {
			t.Errorf("CheckAuthority(%q) = %v, want valid: %t", authority, err, fine)
		}
	}
}

// An outgoing request is checked in the form in which it will be written.
func TestInvalidOutgoingRequestsAreRejected(t *testing.T) {
	for _, test := range []struct {
		name    string
		change  func(*http.Request)
		element string // empty: it can be sent
	}{
		{"an ordinary one", func(*http.Request) {}, ""},
		{"no method, which is GET", func(r *http.Request) { r.Method = "" }, ""},
		{"a path as it was spelled", func(r *http.Request) { r.URL.Opaque = "/a%2Fb" }, ""},
		{"an opaque URL with its host", func(r *http.Request) { r.URL.Opaque = "//example.com/a" }, ""},
		{"a path to be escaped", func(r *http.Request) { r.URL.Path = "/a b?" }, ""},
		{"a path that says it is spelled so", func(r *http.Request) { r.URL.Path, r.URL.RawPath = "/a b", "/a b" }, ""}, // RawPath is invalid, and net/url ignores it.
		{"no URL", func(r *http.Request) { r.URL = nil }, "path"},
		{"a blank in the path", func(r *http.Request) { r.URL.Opaque = "/x HTTP/1.1" }, "path"},
		{"a question mark in the path", func(r *http.Request) { r.URL.Opaque = "/x?y" }, "path"},
		{"a path without a slash", func(r *http.Request) { r.URL.Opaque = "x" }, "path"},
		{"an asterisk", func(r *http.Request) { r.URL.Opaque = "*" }, "path"},
		{"a blank in the query", func(r *http.Request) { r.URL.RawQuery = "a b" }, "query"},
		{"a line end in the query", func(r *http.Request) { r.URL.RawQuery = "a\r\n" }, "query"},
		{"a blank in the method", func(r *http.Request) { r.Method = "GET /x HTTP/1.1\r\n" }, "method"},
		{"CONNECT", func(r *http.Request) { r.Method = "CONNECT" }, "method"},
		{"a blank in the host", func(r *http.Request) { r.Host = "a b" }, "authority"},
		{"a user in the host", func(r *http.Request) { r.Host = "u@a" }, "authority"},
		{"a host in another script", func(r *http.Request) { r.Host = "b\u00fccher.example" }, ""},
		{"a name that is no token", func(r *http.Request) { r.Header["a b"] = []string{"c"} }, "field name"},
		{"a name that is no token, without a value", func(r *http.Request) { r.Header["a:b"] = nil }, "field name"},
		{"a line end in a value", func(r *http.Request) { r.Header["A"] = []string{"b", "c\nd"} }, "field value"},
		{"a blank at the end of a value", func(r *http.Request) { r.Header["A"] = []string{"b "} }, "field value"},
		{"bytes beyond ASCII in a value", func(r *http.Request) { r.Header["A"] = []string{"\xff \xa0"} }, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://example.com/a?b=c", nil)
			if err != nil {
				t.Fatal(err)
			}
			test.change(r)
			err = CheckRequest(r)
			wrong, ok := err.(*RequestError)
			switch {
			case test.element == "" && err != nil:
				t.Error(err)
			case test.element != "" && (!ok || wrong.Element != test.element):
				t.Errorf("error = %v, want an error about the %s", err, test.element)
			}
		})
	}
}

func FuzzFieldValues(f *testing.F) {
	for i := range 256 {
		f.Add(string([]byte{'1', '2', '3', byte(i), '5', '6', '7', '8', byte(i)}))
	}
	f.Fuzz(func(t *testing.T, value string) {
		if got, want := ValidFieldValue(value), httpguts.ValidHeaderFieldValue(value); got != want {
			t.Errorf("field value %q: %v, want %v", value, got, want)
		}
	})
}
