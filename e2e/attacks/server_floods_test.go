package attacks

import (
	"golang.org/x/net/http2"
)

// calm is how the front door ends a connection that floods. Who goes on flooding may not get to read the word.
const calm = "ended: GOAWAY ENHANCE_YOUR_CALM|ended: closed"

// taken is how many frames a connection may carry before it ends: ten thousand that carry nothing, what comes back by time,
// and what the kernel holds for us by then, up to 6 MiB.
const taken = 500_000

func serverFloods() []*attackRow {
	waiting := func(p *peer) { p.open(false, request("POST", things())...) }
	rows := []*attackRow{
		{name: "PING flood", cves: []string{"CVE-2019-9512"}, sends: "PING, as fast as they go", quick: true, hand: true,
			do: floods(nil, frame(http2.FramePing, 0, 0, "12345678")), bound: bound{Frames: taken, Outcomes: calm}},
		{name: "SETTINGS flood", cves: []string{"CVE-2019-9515"}, sends: "empty SETTINGS", quick: true,
			do: floods(nil, frame(http2.FrameSettings, 0, 0, "")), bound: bound{Frames: taken, Outcomes: calm}},
		{name: "PRIORITY flood", cves: []string{"CVE-2019-9513"}, sends: "PRIORITY that reorders one stream again and again", quick: true,
			do: floods(nil, frame(http2.FramePriority, 0, 1, "\x00\x00\x00\x00\x10")), bound: bound{Frames: taken, Outcomes: calm}},
		{name: "empty DATA flood", cves: []string{"CVE-2019-9518"}, sends: "DATA without bytes on an open stream", quick: true,
			do: floods(waiting, frame(http2.FrameData, 0, 1, "")), bound: bound{Frames: taken, Outcomes: calm + "|answered: .*"}},
		{name: "rapid reset", cves: []string{"CVE-2023-44487", "CVE-2023-39325"}, sends: "a proxied GET with a credential, and RST_STREAM at once", quick: true, hand: true,
			do: floods(nil, func(p *peer) {
				_ = p.WriteRSTStream(p.open(true, request("GET", things()+"/small")...), http2.ErrCodeCancel)
			}), bound: bound{Frames: taken, Outcomes: calm + "|answered: .*"}},
	}
	for _, a := range rows {
		a.class, a.side = "floods", "server"
	}
	return rows
}
