package attacks

// class is a published class of attacks on HTTP.
type class struct {
	id    string
	title string
	known []string // CVEs and issues
	sides []string // sides with at least one attack
}

var (
	onServer = []string{"server"}
	onClient = []string{"client"}
	onBoth   = []string{"server", "client"}
)

// classes returns the complete list. An attack through the server on a backend is on the server side. An attack through the
// proxy's client on a client is on the client side.
func classes() []class {
	return []class{
		{"floods", "Floods of PING, SETTINGS, PRIORITY, RST_STREAM, WINDOW_UPDATE of one byte, empty frames",
			[]string{"CVE-2019-9511", "CVE-2019-9512", "CVE-2019-9513", "CVE-2019-9514", "CVE-2019-9515", "CVE-2019-9516", "CVE-2019-9517", "CVE-2019-9518"}, onBoth},
		{"rapid-reset", "Rapid reset", []string{"CVE-2023-44487", "CVE-2023-39325"}, onServer},
		{"made-you-reset", "MadeYouReset: frames that provoke stream resets by the server", []string{"CVE-2025-8671"}, onServer},
		{"continuation", "Endless CONTINUATION, also with zero length",
			[]string{"CVE-2023-45288", "CVE-2024-27316", "CVE-2024-28182", "CVE-2024-30255", "CVE-2024-27983", "CVE-2026-33871"}, onBoth},
		{"hpack", "HPACK: bombs, CPU, tiny fields, split cookies, one-byte references with closed windows",
			[]string{"CVE-2022-41723", "CVE-2016-6581", "CVE-2026-49975", "CVE-2026-47774"}, onBoth},
		{"unexpected", "Unexpected frames, and frames after GOAWAY", []string{"CVE-2026-27141", "CVE-2026-27135"}, onBoth},
		{"frame-size", "SETTINGS_MAX_FRAME_SIZE of 0 or out of range", []string{"CVE-2026-33814"}, onBoth},
		{"handshakes", "Slow prefaces, incomplete handshakes, KeyUpdate, resumption, idle connections",
			[]string{"CVE-2026-56853", "CVE-2026-56862", "CVE-2025-68121"}, onServer},
		{"windows", "Connection windows leaked by cancelled streams; one slow stream that blocks all others; connection pool deadlock",
			[]string{"golang/go#40423", "golang/go#16510", "golang/go#28204", "golang/go#32388"}, onBoth},
		{"zero-window", "Zero windows and slow readers, with many streams", []string{"CVE-2016-1546"}, onServer},
		{"framing", "Content-Length with Transfer-Encoding, bare LF, chunk extensions, 0.CL and Expect",
			[]string{"CVE-2025-22871", "CVE-2025-55315", "CVE-2025-58056", "CVE-2026-33870", "CVE-2026-2835"}, onBoth},
		{"names", "Names and lengths of header fields", []string{"CVE-2019-16276", "CVE-2021-40346", "CVE-2023-25725"}, onServer},
		{"downgrade", "HTTP/2 to HTTP/1.1: smuggled Content-Lengths and Transfer-Encodings, CR LF in fields", []string{"CVE-2021-21409"}, onServer},
		{"upgrade", "Upgrades: early, with a body, to h2c", []string{"CVE-2026-2833", "CVE-2026-58055", "golang/go#80416"}, onServer},
		{"connect", "Refused CONNECT with a body on a kept-alive connection", []string{"GHSA-3ccp-42pg-hgv6"}, onServer},
		{"interim", "1xx: hop-by-hop headers, END_STREAM, floods", []string{"golang/go#81319", "CVE-2023-0056"}, onClient},
		{"expect", "Mishandled Expect that loses the next request", []string{"CVE-2024-24791"}, onClient},
		{"connection", "Identity headers in Connection", []string{"CVE-2021-33197", "CVE-2021-32813"}, onServer},
		{"identity", "Alternative spellings of identity headers", []string{"CVE-2025-64484", "CVE-2026-54763", "CVE-2026-88011"}, onServer},
		{"targets", "A path without a leading slash; several values of one header", []string{"CVE-2026-33186", "CVE-2026-26308"}, onServer},
		{"late", "Work after a reset; NUL in a subject alternative name", []string{"CVE-2026-26311", "CVE-2026-47778"}, onBoth},
		{"redirects", "Redirects from backends, upgrades on other paths, WebSocket GETs that require the permission of POST",
			[]string{"CVE-2022-3172", "CVE-2018-1002105", "kubernetes/kubernetes#136550"}, onBoth},
	}
}

// rowsOfAll returns all attacks, in the order of the classes.
func rowsOfAll() []*attackRow {
	by := map[string][]*attackRow{}
	add := func(side string, rows []*attackRow) {
		for _, a := range rows {
			a.side = side
			by[a.class] = append(by[a.class], a)
		}
	}
	add("server", serverFloods())
	add("server", serverResets())
	add("server", serverHeaders())
	add("server", serverConnections())
	add("server", serverWindows())
	add("server", serverMessages())
	add("client", backendFloods())
	add("client", backendAnswers())
	var all []*attackRow
	for _, c := range classes() {
		all = append(all, by[c.id]...)
	}
	return all
}
