package httpmsg

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/reference/http-rules.md")

const pageHead = `# HTTP rules

These rules apply to HTTP/1.1 and HTTP/2, to requests that the front door receives and to requests that it sends to backends. The test
` + "`go test ./internal/httpengine/httpmsg -run TestPageOfRules -update`" + ` writes this page from ` + "`internal/httpengine/httpmsg`" + `; without ` + "`-update`" + ` it checks that the
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

// lengthRules are the rules for Content-Length.
var lengthRules = []rule{
	{"digits only: no sign, no space, no fraction, no list", "RFC 9110, 8.6: 1*DIGIT"},
	{"no more than 9223372036854775807", "RFC 9110, 8.6: a recipient must guard against overflows"},
	{"once, also when the values agree", "RFC 9110, 8.6: a recipient may refuse; RFC 9112, 6.3"},
	{"not with Transfer-Encoding", "RFC 9112, 6.1 and 6.3; attack row A19. HTTP/2 has no Transfer-Encoding (RFC 9113, 8.2.2)"},
	{"equal to the length of the body", "RFC 9112, 6.3; RFC 9113, 8.1.1"},
	{"never sent in a 1xx, 204 or 304 response; refused in a 1xx or 204 response of a backend unless it is 0", "RFC 9110, 8.6 and 6.4.1; RFC 9112, 6.1"},
}

// connectionHeaders are fields that HTTP/2 does not have, and their handling.
var connectionHeaders = []rule{
	{"connection, keep-alive, proxy-connection, transfer-encoding, upgrade", "RFC 9113, 8.2.2: 400 in a request; removed from responses of backends; never sent"},
	{`te other than "trailers"`, "RFC 9113, 8.2.2: 400 in a request"},
	{"a pseudo-header field in trailers", "RFC 9113, 8.1: the stream is reset"},
	{"host that differs from :authority", "RFC 9113, 8.3.1: 400; the default port may be left out"},
}

// largeHeaderRules describes which clients may send a large header.
const largeHeaderRules = `
### Large headers

A header with more than 65536 bytes or 500 fields is large. kube-apiserver accepts such headers, and a user with thousands of groups
needs them: front proxies send one X-Remote-Group for each group, and impersonating clients one Impersonate-Group.

| client | may send large headers |
| --- | --- |
| front proxy or another replica, by the certificate of its connection | always |
| any other client, before it is authenticated | while [memory for large headers](../overload.md#bounds-that-always-hold) is free. Over HTTP/2, a connection on which no request was authenticated may send 100 at once and ten a second; more close it |
| authenticated user | while the user's share of that memory is free; beyond it 503 with Retry-After |

Each 64 KiB step of a header is charged before it is read. If there is no memory for it, the limits without a large header hold.
Identity headers may have 917504 bytes in total, counting 32 bytes more for each field, on the way to a backend. With
--http-engine=library only front proxies and other replicas may send more than 65536 bytes.
`

// printRules writes the tables of docs/reference/http-rules.md.
func printRules(w io.Writer) error {
	var b strings.Builder
	line := func(cells ...string) { b.WriteString("| " + strings.Join(cells, " | ") + " |\n") }
	b.WriteString("## Bytes\n\n")
	line("element", "bytes", "source")
	line("---", "---", "---")
	for _, e := range []*Element{Method, FieldName, FieldValue, Path, Query, Authority} {
		for _, r := range e.rows {
			line(e.name, printable(r.bytes), r.source)
		}
	}
	b.WriteString("\n## Lengths and numbers\n\n")
	line("element", "at most", "beyond it", "source")
	line("---", "---", "---", "---")
	for _, r := range limits {
		answer := "fails"
		if r.code != 0 {
			answer = strconv.Itoa(r.code)
		}
		line(r.element, fmt.Sprintf("%d %s", r.max, r.unit), answer, r.source)
	}
	line("all headers", fmt.Sprintf("%d bytes", MaxHeader), "431", "RFC 6585, 5; RFC 9113, 6.5.2. Over HTTP/1.1 the request line counts too; over HTTP/2 the size is counted as in that section, and 320 bytes more are allowed. "+
		"Headers of up to twice this size compressed, or four times decoded, reset the stream. Larger ones, or more than ten such headers at once and one a second, close the connection")
	line("all headers of a request with a large header", fmt.Sprintf("%d bytes", MaxLargeHeader), "431", "net/http's default limit, which kube-apiserver has; counted as the limit above. See [large headers](#large-headers)")
	b.WriteString(largeHeaderRules)
	b.WriteString("\n## Content-Length\n\n")
	line("rule", "source")
	line("---", "---")
	for _, r := range lengthRules {
		line(r.bytes, r.source)
	}
	b.WriteString("\n## Forbidden trailers\n\nThe names are forbidden in any spelling that a backend may fold onto them. The front door drops such a trailer, and answers a request that announces one with 400.\n\n")
	line("names", "source")
	line("---", "---")
	for _, r := range forbiddenTrailers {
		names := slices.Clone(r.names)
		for i, n := range names {
			if strings.HasSuffix(n, "-") {
				names[i] = n + "*"
			}
		}
		line(strings.Join(names, ", "), r.source)
	}
	b.WriteString("\n## Fields that HTTP/2 forbids\n\n")
	line("field", "source")
	line("---", "---")
	for _, r := range connectionHeaders {
		line(r.bytes, r.source)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// printable formats a set of bytes for the documentation. Runs of more than two bytes are shown as ranges.
func printable(bytes string) string {
	sorted := []byte(bytes)
	slices.Sort(sorted)
	var parts []string
	show := func(c byte) string {
		if c > ' ' && c < 0x7f && c != '|' && c != '`' && c != '\\' {
			return "`" + string(c) + "`"
		}
		return fmt.Sprintf("0x%02x", c)
	}
	for i := 0; i < len(sorted); {
		j := i
		for j+1 < len(sorted) && sorted[j+1] == sorted[j]+1 {
			j++
		}
		if j > i+1 {
			parts = append(parts, show(sorted[i])+" to "+show(sorted[j]))
		} else {
			for _, c := range sorted[i : j+1] {
				parts = append(parts, show(c))
			}
		}
		i = j + 1
	}
	return strings.Join(parts, " ")
}

// docs/reference/http-rules.md contains the current tables.
func TestPageOfRules(t *testing.T) {
	const page = "../../../docs/reference/http-rules.md"
	b := bytes.NewBufferString(pageHead)
	if err := printRules(b); err != nil {
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
		t.Error("docs/reference/http-rules.md differs from the rules, want equal text: go test ./internal/httpengine/httpmsg -run TestPageOfRules -update")
	}
}

// A39: valid values of Content-Length.
func TestA39ContentLength(t *testing.T) {
	for value, want := range map[string]int64{"0": 0, "007": 7, "9223372036854775807": 1<<63 - 1} {
		if n, ok := ParseContentLength([]string{value}); !ok || n != want {
			t.Errorf("ParseContentLength(%s) = %d, %v, want %d", value, n, ok, want)
		}
	}
	for _, value := range []string{"", "+1", "-1", " 1", "1 ", "1,1", "0x1", "1.0", "1_0", "9223372036854775808", "99999999999999999999", "\u0661"} {
		if n, ok := ParseContentLength([]string{value}); ok {
			t.Errorf("ParseContentLength(%q) = %d, want an error", value, n)
		}
	}
	if _, ok := ParseContentLength([]string{"1", "1"}); ok {
		t.Error("ParseContentLength of two values succeeded, want an error")
	}
	if n, ok := ParseContentLength(nil); !ok || n != -1 {
		t.Errorf("ParseContentLength(nil) = %d, want -1", n)
	}
}

// A39: names that are not allowed as trailers, in all spellings that map to them.
func TestA39Trailers(t *testing.T) {
	for _, name := range []string{"Content-Length", "transfer_encoding", "Host", "If-Match", "Cookie", "Set-Cookie", "X-Remote-User", "X.Remote_Group",
		"Impersonate-User", "X-Forwarded-For", "TE", "", "a b"} {
		if ValidTrailer(name) {
			t.Errorf("ValidTrailer(%q) = true, want false", name)
		}
	}
	for _, name := range []string{"X-Sum", "Grpc-Status", "Etag", "Server-Timing", "X-Remote", "Iffy"} {
		if !ValidTrailer(name) {
			t.Errorf("ValidTrailer(%q) = false, want true", name)
		}
	}
}
