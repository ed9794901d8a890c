package thirdparty

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/xml"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"portico.dev/e2e/programs"
	"portico.dev/internal/httpengine"
	"portico.dev/internal/httpengine/enginetest"
)

// beyondH2spec are the cases of h2spec that the front door does not pass, and why that is right. h2spec tests RFC 7540, of
// which RFC 9113 took some rules back. A case that passes must not be here.
var beyondH2spec = map[httpengine.Name]map[string]string{
	httpengine.Portico: {
		"http2/5.3.1 Sends PRIORITY frame that depend on itself": "RFC 9113 took priorities back (5.3.2), and a stream that has not begun cannot be reset.",
		connectionSpecific: answered400,
		teOther:            answered400,
	},
	httpengine.Library: {
		"http2/6.5.3 Sends multiple values of SETTINGS_INITIAL_WINDOW_SIZE": "golang.org/x/net ends connections whose SETTINGS name a parameter twice.",
		connectionSpecific: answered400,
		teOther:            answered400,
	},
}

const (
	connectionSpecific = "http2/8.1.2.2 Sends a HEADERS frame that contains the connection-specific header field"
	teOther            = `http2/8.1.2.2 Sends a HEADERS frame that contains the TE header field with any value other than "trailers"`
	answered400        = "It is answered 400, as by net/http: RFC 9113 allows an answer to what is malformed (8.1.1)."
)

// h2specReport is the file of h2spec's flag --junit-report.
type h2specReport struct {
	Suites []struct {
		Cases []struct {
			Section string `xml:"package,attr"`
			Name    string `xml:"classname,attr"`
			Failure *text  `xml:"failure"`
			Error   *text  `xml:"error"`
			Skipped *text  `xml:"skipped"`
		} `xml:"testcase"`
	} `xml:"testsuite"`
}

// text is the content of an element.
type text struct {
	Says string `xml:",chardata"`
}

func (t *text) String() string {
	if t == nil {
		return ""
	}
	return t.Says
}

// TestH2spec runs h2spec, a test suite of HTTP/2 servers (RFC 7540 and RFC 7541), against the front door.
func TestH2spec(t *testing.T) {
	d := startFrontDoor(t, "front door of h2spec")
	known := beyondH2spec[enginetest.HTTP(t)]
	port := d.relay(t)
	failed, passed := runH2spec(t, port, "/version", "generic", "http2", "hpack")
	if passed < 130 {
		t.Errorf("%d cases passed, want at least 130", passed)
	}
	again := map[string]string{} // sections of the cases
	for name, said := range failed {
		if why, expected := known[name]; expected {
			t.Logf("%s: %s", name, why)
			continue
		}
		t.Logf("%s: is tried again: %s", name, said)
		again[name], _, _ = strings.Cut(name, " ")
	}
	for name := range known {
		if _, ok := failed[name]; !ok {
			t.Errorf("known case %s passes or does not exist, want it removed from the list", name)
		}
	}
	if len(again) == 0 {
		return
	}
	// Some cases break a rule on a stream that h2spec thinks is open. They need an answer that does not end before.
	failed, _ = runH2spec(t, port, "/api/v1/namespaces?watch=1&timeoutSeconds=2", slices.Compact(slices.Sorted(maps.Values(again)))...)
	for name := range again {
		if said, ok := failed[name]; ok {
			t.Errorf("case %s failed in the second run, want it passed: %s", name, said)
		}
	}
}

// runH2spec runs sections of h2spec, and returns the failed cases with their messages, and the number of passed ones.
func runH2spec(t *testing.T, port int, path string, sections ...string) (failed map[string]string, passed int) {
	t.Helper()
	report := filepath.Join(t.TempDir(), "report.xml")
	ctx, cancel := context.WithTimeout(t.Context(), programs.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(binaries, "h2spec"), append(sections,
		"--host", "127.0.0.1", "--port", strconv.Itoa(port), "--path", path, "--strict", "--timeout", "4", "--junit-report", report)...)
	out, err := cmd.CombinedOutput() // an error when cases fail
	data, missing := os.ReadFile(report)
	if missing != nil {
		t.Fatalf("report of h2spec: %v, %v; want a file\n%s", missing, err, out)
	}
	var r h2specReport
	if err := xml.Unmarshal(bytes.ReplaceAll(data, []byte{0}, []byte("NUL")), &r); err != nil { // it quotes frames as they are
		t.Fatal(err)
	}
	failed = map[string]string{}
	for _, suite := range r.Suites {
		for _, c := range suite.Cases {
			name := c.Section + " " + c.Name
			switch {
			case c.Skipped != nil:
				t.Logf("%s: skipped by h2spec", name)
			case c.Failure != nil || c.Error != nil:
				failed[name] = c.Failure.String() + c.Error.String()
			default:
				passed++
			}
		}
	}
	t.Logf("%s: %d cases passed, %d failed", path, passed, len(failed))
	return failed, passed
}

// relay forwards connections without TLS to the front door, with an administrator's certificate, which h2spec cannot present: a
// client without a credential gets GOAWAY after a response. It returns its port.
func (d *frontDoor) relay(t *testing.T) int {
	t.Helper()
	pair := must[tls.Certificate](t)(tls.X509KeyPair(d.config.CertData, d.config.KeyData))
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(d.config.CAData)
	dialer := tls.Dialer{Config: &tls.Config{
		RootCAs: roots, Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2"}, ServerName: "localhost", MinVersion: tls.VersionTLS12,
	}}
	listener := must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	carry := func(from net.Conn) {
		defer from.Close()
		to, err := dialer.DialContext(ctx, "tcp", "127.0.0.1:"+strconv.Itoa(d.port))
		if err != nil {
			return // h2spec finds its connection closed
		}
		defer to.Close()
		defer context.AfterFunc(ctx, func() { _ = to.Close() })()
		all.Go(func() {
			_, _ = io.Copy(from, to)
			_ = from.Close()
		})
		_, _ = io.Copy(to, from)
	}
	all.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			all.Go(func() { carry(conn) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		cancel()
		all.Wait()
	})
	return listener.Addr().(*net.TCPAddr).Port
}
