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

` + pagePaths

// pagePaths are the rules of package request.
const pagePaths = `## Paths

kube-apiserver decodes a path before it parses it. The front door accepts a path only if its authorization attributes (verb, group,
version, namespace, resource, subresource, name) are the same before and after decoding. Other paths get 400. The extension server host
applies the same rules.

| part of a path | rejected | accepted |
| --- | --- | --- |
| all of it | dot segments, backslashes, ` + "`;`" + ` and control bytes, escaped or not; escapes of ` + "`.`" + `, letters and digits | |
| up to the subresource of a resource; all of any other path | ` + "`%2F`" + `, ` + "`%25`" + `, empty segments | one slash at the end |
| tail: after the subresource | dot segments and control bytes after two or three rounds of decoding; four rounds of escapes | ` + "`%2F`" + `, ` + "`%25`" + `, double escapes such as ` + "`%252F`" + `, empty segments |

No authorization attribute depends on the tail. An example is ` + "`stats%2Fsummary`" + ` in ` + "`/api/v1/nodes/NAME/proxy/stats%2Fsummary`" + `. It is forwarded
unchanged to extension servers, kubelets, pods and Services, and to other replicas. If it begins with ` + "`//`" + ` after ` + "`proxy`" + `, the bytes
` + "``^ ` { | }``" + ` in it are escaped. The deprecated ` + "`/api/v1/watch/...`" + ` and ` + "`/api/v1/proxy/...`" + ` have no tail.

Generated clients escape all slashes of a custom metric: ` + "`/apis/custom.metrics.k8s.io/v1beta1/namespaces/NS/pods%2F%2A%2Fmetric`" + `. Here the
attributes depend on the escaped slashes. So they become slashes before the request is authorized, audited and routed, and the backend
receives ` + "`/pods/%2A/metric`" + `, as from kube-apiserver. This applies to the group ` + "`custom.metrics.k8s.io`" + ` alone. The result must pass the rules above.

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
