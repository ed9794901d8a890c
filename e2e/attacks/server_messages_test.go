package attacks

import (
	"crypto/tls"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"

	"golang.org/x/net/http2"
)

var statusLine = regexp.MustCompile(`HTTP/1\.[01] ([0-9]{3}) `)

// exchange sends the text and reads responses until the given number has begun, the connection ends, or no data arrives for a
// while. It returns their statuses and whether the connection ended.
func exchange(c *tls.Conn, text string, most int) (statuses string, ended bool) {
	_ = c.SetDeadline(time.Now().Add(3 * time.Second))
	if _, err := io.WriteString(c, text); err != nil {
		return "", true
	}
	var got []byte
	buffer := make([]byte, 16<<10)
	for {
		n, err := c.Read(buffer)
		got = append(got, buffer[:n]...)
		all := statusLine.FindAllSubmatch(got, -1)
		if len(all) >= most || err != nil || len(got) > 1<<20 {
			var said []string
			for _, m := range all {
				said = append(said, string(m[1]))
			}
			return strings.Join(said, " "), err != nil && brief(err) != "nothing"
		}
		if len(all) > 0 {
			_ = c.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		}
	}
}

// messages sends handwritten HTTP/1.1 requests, each on a separate connection.
func messages(all ...string) func(*attackRun) {
	return func(a *attackRun) {
		a.again(2, func() error {
			c, err := a.dial("http/1.1")
			if err != nil {
				return err
			}
			text := all[int(a.serial.Add(1))%len(all)]
			got, ended := exchange(c, text, 10)
			a.sent(1, len(text))
			a.mostOf(1)
			if got == "" {
				got = "nothing"
			}
			if ended {
				got += ", closed"
			}
			a.came("answered: %s", got)
			a.close(c.NetConn())
			return nil
		})
	}
}

// smuggled is a request that takes effect only if the front door reads it as a separate request after another one. It has no
// credential, so that the front door then refuses it.
func smuggled(a *attackRow) string {
	return "GET " + a.path() + "/smuggled HTTP/1.1\r\nHost: front.example.com\r\n\r\n"
}

// ended matches an error response after which the connection is closed.
const ended = `answered: (400|501|505|403|404|405|431|413|417|100 400), closed`

func serverMessages() []*attackRow {
	type row = attackRow
	// text makes a row of messages that need the row's own path.
	text := func(a *row, all func(path, smuggled string) []string) *row {
		a.do = func(s *attackRun) { messages(all(s.row.path()+"/"+attackedName, smuggled(s.row))...)(s) }
		if a.beside == 0 {
			a.beside = 1
		}
		return a
	}
	fields := func(a *row, all func(p *peer, path string)) *row {
		if a.beside == 0 {
			a.beside = 1
		}
		a.do = func(s *attackRun) { floods(nil, func(p *peer) { all(p, s.row.path()+"/"+attackedName) })(s) }
		return a
	}
	chunked := func(body string) func(path, smuggled string) []string {
		return func(path, smuggled string) []string {
			return []string{message("POST", path, "Transfer-Encoding: chunked") + strings.ReplaceAll(body, "SMUGGLED", smuggled)}
		}
	}
	head := func(lines ...string) func(path, smuggled string) []string {
		return func(path, smuggled string) []string {
			var all []string
			for _, line := range lines {
				all = append(all, message("GET", path, line)+smuggled)
			}
			return all
		}
	}
	const closedOrReset = calm + "|reset: .*|answered: (400|431|403|404|405|501)|ended: GOAWAY (PROTOCOL_ERROR|COMPRESSION_ERROR)"
	rows := []*row{
		text(&row{class: "framing", name: "CL with TE", sends: "POSTs with a Content-Length and a Transfer-Encoding in either order, duplicate, and in other spellings; a request follows the shorter body", quick: true, hand: true,
			bound: bound{Outcomes: ended}, proof: "server.TestBytesAfterRequestAreNotServedAsRequest, http1.TestBothServersMalformedRequests"}, func(path, smuggled string) []string {
			var all []string
			for _, lines := range [][]string{
				{"Content-Length: 6", "Transfer-Encoding: chunked"}, {"Transfer-Encoding: chunked", "Content-Length: 6"}, {"Content-Length: 6", "Content-Length: 5"},
				{"Content-Length: +6"}, {"Content-Length: 6, 6, 7"}, {"Transfer-Encoding: xchunked"}, {"Transfer-Encoding: chunked", "Transfer-Encoding: identity"},
				{"Transfer-Encoding : chunked"}, {"Transfer-Encoding:\x0bchunked"}, {"Content-Length: 0x6"}, {"Content-Length: 99999999999999999999"},
			} {
				all = append(all, message("POST", path, lines...)+"0\r\n\r\n"+smuggled)
			}
			return all
		}),
		text(&row{class: "framing", name: "bare LF", cves: []string{"CVE-2025-22871"}, sends: "headers and chunks with lines that end in a bare LF", quick: true,
			bound: bound{Outcomes: ended}, proof: "server.TestBytesAfterRequestAreNotServedAsRequest, http1.TestBothServersMalformedRequests"}, func(path, smuggled string) []string {
			chunky := message("POST", path, "Transfer-Encoding: chunked")
			return []string{
				strings.ReplaceAll(message("GET", path), "\r\n", "\n") + smuggled, chunky + "1\nx\r\n0\r\n\r\n" + smuggled, chunky + "1\r\nx\n0\r\n\r\n" + smuggled,
				chunky + "1;a\nb\r\nx\r\n0\r\n\r\n" + smuggled, chunky + "0\r\nA: b\n\r\n" + smuggled, strings.Replace(message("GET", path), "\r\n", "\n", 1) + smuggled,
			}
		}),
		text(&row{class: "framing", name: "chunk extensions", cves: []string{"CVE-2025-55315", "CVE-2025-58056", "CVE-2026-33870"}, sends: "chunk extensions that contain line ends, quotes and CR, followed by a request", quick: true,
			bound: bound{Outcomes: ended}, proof: "http1.TestBothServersMalformedRequests, http1.TestBothServersAcceptTinyChunks"}, func(path, smuggled string) []string {
			chunky := message("POST", path, "Transfer-Encoding: chunked")
			return []string{
				chunky + "1;a\rb\r\nx\r\n0\r\n\r\n" + smuggled, chunky + "1;a=\"\r\n\"\r\nx\r\n0\r\n\r\n" + smuggled, chunky + "1;\n\r\nx\r\n0\r\n\r\n" + smuggled, chunky + "1 ;\x00\r\nx\r\n0\r\n\r\n" + smuggled,
				chunky + "-1\r\nx\r\n0\r\n\r\n" + smuggled, chunky + "10000000000000001\r\nx\r\n0\r\n\r\n" + smuggled, chunky + "1\r\nxx\r\n0\r\n\r\n" + smuggled,
			}
		}),
		text(&row{class: "framing", name: "endless chunk extensions", sends: "a body in chunks of one byte, each with 30 bytes of chunk extension", bound: bound{CPU: 8, Outcomes: ended + "|answered: .*"}, proof: "http1.TestBothServersAcceptTinyChunks"},
			chunked(strings.Repeat("1;"+strings.Repeat("x", 30)+"\r\nx\r\n", 20_000)+"0\r\n\r\n")),
		text(&row{class: "framing", name: "0.CL and Expect", cves: []string{"CVE-2026-2835"}, sends: "Expect in several spellings, with a request as the body; HTTP/1.0 with a Transfer-Encoding; a GET with a folded Content-Length", quick: true,
			bound: bound{Outcomes: ended + "|answered: (100 )?20[01]( 40[0-9])?(, closed)?|answered: (417|400)( 40[0-9])?(, closed)?|answered: nothing(, closed)?|answered: 100 400.*"}, proof: "http1.TestBothServersSendContinueWhenBodyIsRead, proxy.TestA20UnreadExpectedBodyIsNotLeftOnConnection"}, func(path, smuggled string) []string {
			n := fmt.Sprint("Content-Length: ", len(smuggled))
			return []string{
				message("POST", path, "Expect: 100-continue", n) + smuggled, message("GET", path, "Expect: y 100-continue", n) + smuggled, message("POST", path, "Expect: 100-continue", "Expect: z", n) + smuggled,
				message("GET", path, "Content-Length:\r\n "+fmt.Sprint(len(smuggled))) + smuggled, strings.Replace(message("POST", path, "Transfer-Encoding: chunked"), "HTTP/1.1", "HTTP/1.0", 1) + "0\r\n\r\n" + smuggled,
			}
		}),
		text(&row{class: "names", name: "header field names", cves: []string{"CVE-2019-16276", "CVE-2021-40346", "CVE-2023-25725"}, sends: "spaces before the colon, empty names, NUL, CR and folded lines, names of 300 bytes that contain a Content-Length, 2,000 fields, names and values of 100 KB", quick: true,
			bound: bound{Outcomes: ended + "|answered: (200|400|431)( 40[0-9])?.*"}, proof: "http1.TestBothServersMalformedRequests, server.TestMalformedRawRequestsAreRejected"}, head(
			"X-Remote-User : root", ": empty", "X\x00: a", "X: a\x00b", "X: a\rb", "X: a\r\n folded", "Content-Length0"+strings.Repeat("a", 255)+": 1", strings.Repeat("a", 100_000)+": b", "X: "+strings.Repeat("b", 100_000),
			strings.TrimSuffix(strings.Repeat("X: a\r\n", 2000), "\r\n"), "X", "(x): y", "X-Remote-User\t: root")),
		fields(&row{class: "downgrade", name: "smuggled lengths and transfer codings", cves: []string{"CVE-2021-21409"}, sends: "HTTP/2 bodies that are longer or shorter than their Content-Length, Transfer-Encodings, and two Content-Lengths, to an HTTP/1.1 extension server", quick: true, hand: true,
			bound: bound{Frames: taken, Outcomes: closedOrReset}, proof: "server.TestA19ByteOutsideElementTableIsRejected, httpmsg.TestInvalidOutgoingRequestsAreRejected"}, func(p *peer, path string) {
			hidden := []byte("xGET " + path + "/smuggled HTTP/1.1\r\nHost: x\r\n\r\n")
			switch p.a.serial.Add(1) % 4 {
			case 0:
				_ = p.WriteData(p.open(false, request("POST", path, "content-length", "1")...), true, hidden)
			case 1:
				p.open(true, request("POST", path, "content-length", "10")...)
			case 2:
				_ = p.WriteData(p.open(false, request("POST", path, "transfer-encoding", "chunked")...), true, append([]byte("0\r\n\r\n"), hidden[1:]...))
			case 3:
				_ = p.WriteData(p.open(false, request("POST", path, "content-length", "1", "content-length", fmt.Sprint(len(hidden)))...), true, hidden)
			}
		}),
		fields(&row{class: "downgrade", name: "line ends in HTTP/2 fields", cves: []string{"CVE-2021-21409"}, sends: "CR LF and a request in the value, the name, the path, the method, the authority and the scheme, to an HTTP/1.1 extension server", quick: true,
			bound: bound{Frames: taken, Outcomes: closedOrReset}, proof: "server.TestA19ByteOutsideElementTableIsRejected, httpmsg.FuzzParseTarget"}, func(p *peer, path string) {
			hidden := " HTTP/1.1\r\nHost: x\r\n\r\nGET " + path + "/smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
			f := request("GET", path, "x", "y")
			switch p.a.serial.Add(1) % 6 {
			case 0:
				f[len(f)-1] += "\r\n\r\n" + hidden
			case 1:
				f[len(f)-2] += ": a\r\n\r\nSMUGGLED / HTTP/1.1\r\nx"
			case 2:
				f[7] += hidden
			case 3:
				f[1] = "SMUGGLED / HTTP/1.1\r\nHost: x\r\n\r\nGET"
			case 4:
				f[5] += "\r\n\r\nSMUGGLED / HTTP/1.1\r\n"
			case 5:
				f[3] += "://x" + hidden
			}
			_ = p.WriteHeaders(http2.HeadersFrameParam{StreamID: p.id(), BlockFragment: literal(f...), EndHeaders: true, EndStream: true})
		}),
		text(&row{class: "upgrade", name: "data before the upgrade response", cves: []string{"CVE-2026-2833"}, sends: "a WebSocket GET directly followed by another request, to an extension server that does not switch protocols", quick: true,
			bound: bound{Outcomes: "answered: (200|400|426|502|503|501)( (400|403|404))?(, closed)?|answered: nothing(, closed)?"}, proof: "proxy.TestA1A4BytesAfterRefusedUpgradeAreNotForwarded"}, func(path, smuggled string) []string {
			return []string{message("GET", path, "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==") + smuggled}
		}),
		text(&row{class: "upgrade", name: "upgrades with a body", cves: []string{"CVE-2026-58055"}, sends: "upgrades with a Content-Length or a Transfer-Encoding; their bodies are requests",
			bound: bound{Outcomes: "answered: (200|201|400|403|426|502|501)( (400|403|404))?(, closed)?|answered: nothing(, closed)?"}, proof: "proxy.TestA1A4BytesAfterRefusedUpgradeAreNotForwarded, http1.TestBothServersMalformedRequests"}, func(path, smuggled string) []string {
			upgrade := []string{"Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA=="}
			return []string{
				message("GET", path, append(upgrade, fmt.Sprint("Content-Length: ", len(smuggled)))...) + smuggled,
				message("POST", path, append(upgrade, "Transfer-Encoding: chunked")...) + fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(smuggled), smuggled),
			}
		}),
		text(&row{class: "upgrade", name: "upgrades to h2c", cves: []string{"golang/go#80416"}, sends: "upgrades to h2c with HTTP2-Settings, and the preface of HTTP/2, both over HTTP/1.1", quick: true,
			bound: bound{Outcomes: ended + "|answered: (200|403|400|501)( (400|403|404|505))?(, closed)?"}, proof: "proxy.TestA2A3UnsafeUpgradesAreNotForwarded, server.TestRejectedRequestsDoNotReachBackend"}, func(path, smuggled string) []string {
			return []string{
				message("GET", path, "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__") + http2.ClientPreface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00",
				http2.ClientPreface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00",
			}
		}),
		text(&row{class: "connect", name: "CONNECT with a body", cves: []string{"GHSA-3ccp-42pg-hgv6"}, sends: "CONNECT with a Content-Length, with a Transfer-Encoding and with neither; the body is a request", quick: true,
			bound: bound{Outcomes: ended}, proof: "server.TestMalformedRawRequestsAreRejected, server.TestTraceConnectAndAbsoluteFormAreRejected"}, func(path, smuggled string) []string {
			return []string{
				message("CONNECT", "example.com:443", fmt.Sprint("Content-Length: ", len(smuggled))) + smuggled, message("CONNECT", "example.com:443") + smuggled,
				message("CONNECT", path, "Transfer-Encoding: chunked") + fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(smuggled), smuggled),
			}
		}),
		fields(&row{class: "connect", name: "CONNECT over HTTP/2", cves: []string{"GHSA-3ccp-42pg-hgv6"}, sends: "CONNECT with DATA, and extended CONNECT, which the server does not offer",
			bound: bound{Frames: taken, Outcomes: closedOrReset}, proof: "server.TestA9A18ConnectionFieldsOverHTTP2AreRejected"}, func(p *peer, path string) {
			if p.a.serial.Add(1)%2 == 0 {
				_ = p.WriteData(p.open(false, ":method", "CONNECT", ":authority", "example.com:443", "authorization", "Bearer "+attackerToken), true, []byte("x"))
				return
			}
			p.open(false, ":method", "CONNECT", ":protocol", "websocket", ":scheme", "https", ":authority", "example.com", ":path", path, "authorization", "Bearer "+attackerToken)
		}),
		text(&row{class: "connection", name: "identity headers in Connection", cves: []string{"CVE-2021-33197", "CVE-2021-32813"}, sends: "Connection with the names X-Remote-User, X-Remote-Group and X-Forwarded-For, to an extension server that reads the caller's identity", quick: true, hand: true,
			bound: bound{Outcomes: "answered: (200|400)( (400|403|404|200))?(, closed)?"}, proof: "proxy.TestA7A8A9ForgedHeadersAreDropped"}, head(
			"Connection: close, X-Remote-User, X-Remote-Group\r\nX-Remote-User: root", "Connection: X-Forwarded-For, keep-alive", "Connection: X-Remote-User\r\nConnection: close")),
		text(&row{class: "identity", name: "alternative spellings of identity headers", cves: []string{"CVE-2025-64484", "CVE-2026-54763", "CVE-2026-88011"}, sends: "X_Remote_User, X.Remote.User and similar names, to an extension server that reads the caller's identity", quick: true, hand: true,
			bound: bound{Outcomes: "answered: (200|400)( (400|403|404|200))?(, closed)?"}, proof: "proxy.TestA7A8A9ForgedHeadersAreDropped, auth/authn.TestIdentityHeaders"}, head(
			"X_Remote_User: root\r\nX_Remote_Group: system:masters", "X.Remote.User: root", "X-Remote_User: root", "x-remote-user: root", "X-REMOTE-GROUP: system:masters", "X~Remote~User: root")),
		{class: "identity", name: "alternative spellings of identity headers over HTTP/2", cves: []string{"CVE-2025-64484", "CVE-2026-54763", "CVE-2026-88011"}, sends: "the same over HTTP/2, to an HTTP/2 extension server",
			beside: 2, bound: bound{CPU: 30, Outcomes: calm + "|answered: (200|400|429)|left open|reset: .*|ended: GOAWAY .*"}, proof: "proxy.TestA7A8A9ForgedHeadersAreDropped", do: func(a *attackRun) {
				a.again(2, func() error {
					p, err := a.greet()
					if err != nil {
						return err
					}
					for range 100 {
						if a.over() || p.ended() || p.ask("GET", a.row.path()+"/"+attackedName, "x_remote_user", "root", "x.remote.user", "root", "x-remote-user", "root") == "" {
							break
						}
					}
					p.leave()
					return nil
				})
			}},
		text(&row{class: "targets", name: "paths without a leading slash", cves: []string{"CVE-2026-33186"}, sends: "targets without a slash, with two, with traversals, absolute and with another authority", quick: true,
			bound: bound{Outcomes: ended + "|answered: (400|403|404|301)( (400|403|404))?"}, proof: "server.TestMalformedRawRequestsAreRejected, request.TestCheckTarget"}, func(path, smuggled string) []string {
			return []string{
				message("GET", path[1:]), message("GET", "/"+path), message("GET", "*"), message("GET", "/api/.."+path), message("GET", "/%2e%2e"+path), message("GET", "https://other.example.com:1"+path+"%2f.."),
				message("GET", "https:"+path), message("GET", "\\"+path[1:]),
			}
		}),
		fields(&row{class: "targets", name: "paths without a leading slash over HTTP/2", cves: []string{"CVE-2026-33186"}, sends: ":path without a slash, empty, absolute",
			bound: bound{Frames: taken, Outcomes: closedOrReset + "|answered: 301"}, proof: "http2.TestInvalidBytesInRequestAreRejected, httpmsg.TestTargets"}, func(p *peer, path string) {
			p.open(true, request("GET", []string{path[1:], "", "https://x" + path, "*", "/.." + path}[p.a.serial.Add(1)%5])...)
		}),
		text(&row{class: "targets", name: "several values of one header", cves: []string{"CVE-2026-26308"}, sends: "two Hosts, two credentials, two users to impersonate", quick: true,
			bound: bound{Outcomes: ended + "|answered: (400|401|403)( (400|401|403|404))?"}, proof: "server.TestA18SecondHostOverHTTP2IsRejected, auth/authn.TestAuthenticateRequest, server.TestA10AmbiguousImpersonationHeadersAreRejected"}, head(
			"Host: other.example.com", "Authorization: Bearer nobody", "Impersonate-User: a\r\nImpersonate-User: b")),
		text(&row{class: "redirects", name: "upgrades on other paths", cves: []string{"CVE-2018-1002105"}, sends: "WebSocket and SPDY upgrades of discovery, OpenAPI, health checks and the collection, each followed by a request", quick: true,
			bound: bound{Outcomes: ended + "|answered: (400|403|404|405|406|426|200)( (400|403|404))?(, closed)?"}, proof: "proxy.TestA2A3UnsafeUpgradesAreNotForwarded, server.TestRejectedRequestsDoNotReachBackend"}, func(path, smuggled string) []string {
			var all []string
			for _, target := range []string{"/apis", "/openapi/v3", "/healthz", "/version", "/apis/" + strings.Split(path, "/")[2] + "/v1"} {
				for _, to := range []string{"websocket", "SPDY/3.1", "tls/1.0"} {
					all = append(all, message("GET", target, "Connection: Upgrade", "Upgrade: "+to)+smuggled)
				}
			}
			return all
		}),
		text(&row{class: "redirects", name: "a WebSocket GET of exec without permission", cves: []string{"kubernetes/kubernetes#136550"}, sends: "GETs of exec with a WebSocket upgrade, by a user without permission",
			bound: bound{Outcomes: "answered: 403( (400|403|404))?(, closed)?"}, proof: "server.TestA29UpgradeRequiresCreateInStrictMode"}, func(path, smuggled string) []string {
			return []string{message("GET", "/apis/"+strings.Split(path, "/")[2]+"/v1/namespaces/default/things/x/exec", "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==") + smuggled}
		}),
	}
	for _, a := range rows {
		if a.bound.CPU == 0 {
			a.bound.CPU = 6
		}
	}
	return rows
}
