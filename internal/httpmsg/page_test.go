package httpmsg

import (
	"bytes"
	"flag"
	"os"
	"testing"
)

var update = flag.Bool("update", false, "write docs/http-rules.md")

const pageHead = `# HTTP rules

These rules apply to HTTP/1.1 and HTTP/2, to requests that the front door receives and to requests that it sends to backends. The test
` + "`go test ./internal/httpmsg -run TestPageOfRules -update`" + ` writes this page from ` + "`internal/httpmsg`" + `; without ` + "`-update`" + ` it checks that the
page is current. A request that violates a rule about bytes gets a 400 and is not sent to a backend. Over HTTP/2, an invalid name or value
of a field resets the stream.

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
