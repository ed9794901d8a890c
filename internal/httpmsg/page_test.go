package httpmsg

import (
	"bytes"
	"flag"
	"os"
	"testing"
)

var update = flag.Bool("update", false, "write docs/http-rules.md")

const pageHead = `# What a request may be made of

These are the rules for both versions of HTTP, for requests that the front door receives and for those that it sends to backends. They
are printed from ` + "`internal/httpmsg`" + ` by ` + "`go test ./internal/httpmsg -run TestPageOfRules -update`" + `, and a test checks that this page is
current. What is against a rule about bytes is answered 400, and over HTTP/2 the stream is reset where a name or a value of a field is
none; it reaches no backend.

`

// docs/http-rules.md says what the tables say.
func TestPageOfRules(t *testing.T) {
	const page = "../../docs/http-rules.md"
	b := bytes.NewBufferString(pageHead)
	if err := PrintRules(b); err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(page, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, b.Bytes()) {
		t.Error("docs/http-rules.md is not what the rules are: go test ./internal/httpmsg -run TestPageOfRules -update")
	}
}

// A39: what Content-Length may say.
func TestA39ContentLength(t *testing.T) {
	for value, want := range map[string]int64{"0": 0, "007": 7, "9223372036854775807": 1<<63 - 1} {
		if n, ok := ParseContentLength([]string{value}); !ok || n != want {
			t.Errorf("%s: %d, %v", value, n, ok)
		}
	}
	for _, value := range []string{"", "+1", "-1", " 1", "1 ", "1,1", "0x1", "1.0", "1_0", "9223372036854775808", "99999999999999999999", "\u0661"} {
		if n, ok := ParseContentLength([]string{value}); ok {
			t.Errorf("%q: %d", value, n)
		}
	}
	if _, ok := ParseContentLength([]string{"1", "1"}); ok {
		t.Error("two lengths")
	}
	if n, ok := ParseContentLength(nil); !ok || n != -1 {
		t.Errorf("none: %d", n)
	}
}

// A39: names that no trailer has, in any spelling that folds onto them.
func TestA39Trailers(t *testing.T) {
	for _, name := range []string{"Content-Length", "transfer_encoding", "Host", "If-Match", "Cookie", "Set-Cookie", "X-Remote-User", "X.Remote_Group",
		"Impersonate-User", "X-Forwarded-For", "TE", "", "a b"} {
		if ValidTrailer(name) {
			t.Errorf("%q may be a trailer", name)
		}
	}
	for _, name := range []string{"X-Sum", "Grpc-Status", "Etag", "Server-Timing", "X-Remote", "Iffy"} {
		if !ValidTrailer(name) {
			t.Errorf("%q may not be a trailer", name)
		}
	}
}
