package attacks

import (
	"bytes"
	"time"

	"golang.org/x/net/http2"
)

func serverWindows() []*attackRow {
	leak := []string{"golang/go#40423", "golang/go#16510"}
	rows := []*attackRow{
		{class: "windows", name: "cancelled uploads", cves: leak, sends: "200 uploads on one connection, each reset after 16 KB, three times the connection window in total; then an upload that must succeed", quick: true, hand: true,
			do: cancelledUploads, proof: "http2.TestConnectionWindowIsReturnedForUnreadData", bound: bound{Outcomes: "reset: .*|answered: .*|left open|ended: closed|went through"}},
		{class: "windows", name: "one slow stream", cves: []string{"golang/go#28204"}, sends: "20 unread responses and 20 stalled uploads on one connection; other requests on it must get responses", quick: true,
			do: slowStreams, proof: "http2.TestClosedStreamWindowBlocksNoOtherStream", bound: bound{Outcomes: "reset: .*|answered: .*|left open|ended: closed|went through"}},
		{class: "windows", name: "all streams of a connection in use", cves: []string{"golang/go#32388"}, sends: "connections with 100 stalled uploads", proof: "transport.TestD17UnreadUploadsDoNotBlockOtherUploads",
			do: holding(2, func(p *peer) {
				for range 100 {
					p.open(false, request("POST", things(), "content-length", "100000")...)
				}
			}), bound: bound{Heap: 64, Outcomes: "held|reset: .*|answered: .*|ended: .*"}},
		{class: "zero-window", name: "zero windows", cves: []string{"CVE-2016-1546"}, sends: "8 connections with 100 GETs of 100 KB each and windows of zero", quick: true, hand: true,
			do: holding(8, func(p *peer) {
				for range 100 {
					p.open(true, request("GET", things())...)
				}
			}, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}), bound: bound{CPU: 100, Memory: 384, Heap: 192, P99: 2 * time.Second, Outcomes: "held|answered: .*|reset: .*|ended: .*"},
			proof: "server.TestD14UnreadResponsesDoNotBlockOtherUsers, server.TestD14UnreadResponseMemoryIsLimited"},
		{class: "zero-window", name: "unread connections", cves: []string{"CVE-2016-1546"}, sends: "8 connections with 100 GETs of 100 KB each and windows of 2 GiB; the attacker reads nothing",
			do: func(a *attackRun) {
				for range 8 {
					conn, err := a.dial("h2")
					if err != nil {
						a.came("no connection: %s", brief(err))
						continue
					}
					p := newPeer(a, conn)
					p.out.WriteString(http2.ClientPreface)
					_ = p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1<<31 - 1})
					_ = p.WriteWindowUpdate(0, 1<<30)
					for range 100 {
						p.open(true, request("GET", things())...)
					}
					_ = p.flush()
					a.mostOf(p.frames)
					a.came("held")
				}
				a.rest()
			}, bound: bound{CPU: 100, Memory: 384, Heap: 192, P99: 2 * time.Second, Outcomes: "held|no connection: .*"}, proof: "server.TestD5StalledReaderDoesNotBlockHandler, server.TestD14UnreadResponseMemoryIsLimited"},
		{class: "zero-window", name: "slow HTTP/1.1 readers", cves: []string{"CVE-2016-1546"}, sends: "100 connections that repeatedly request 100 KB and read nothing",
			do: func(a *attackRun) {
				a.atOnce(100, func() error {
					c, err := a.dial("http/1.1")
					if err != nil {
						return err
					}
					_ = c.SetWriteDeadline(time.Now().Add(time.Second))
					n, _ := c.Write(bytes.Repeat([]byte(message("GET", things())), 50))
					a.sent(50, n)
					a.came("held")
					return nil
				})
				a.rest()
			}, bound: bound{CPU: 100, Memory: 384, Heap: 192, P99: 2 * time.Second, Outcomes: "held|no connection: .*"}, proof: "server.TestD5StalledReaderDoesNotBlockHandler"},
		{class: "late", name: "work after a reset", cves: []string{"CVE-2026-26311"}, sends: "watches that are reset after their responses have begun; their handlers must end", quick: true,
			do: func(a *attackRun) {
				a.again(4, func() error {
					p, err := a.greet()
					if err != nil {
						return err
					}
					for range 100 {
						id := p.next
						if p.ask("GET", things()+"?watch=1&every=1ms") == "" {
							break
						}
						_ = p.WriteRSTStream(id, http2.ErrCodeCancel)
						if p.ended() || p.flush() != nil || a.over() {
							break
						}
					}
					p.leave()
					return nil
				})
			}, bound: bound{CPU: 10, Outcomes: calm + "|answered: .*|left open"}, proof: "http2.TestFloodMemoryIsBoundedAndOtherClientsAreServed, proxy.TestDrainEndsWatch"},
	}
	return rows
}

// data sends n bytes of a body when the connection's window permits it.
func (p *peer) data(id uint32, end bool, n int) bool {
	until := time.Now().Add(3 * time.Second)
	for p.window.Load() < int64(n) {
		if p.flush() != nil || time.Now().After(until) {
			return false
		}
		select {
		case <-p.gone:
			return false
		case <-time.After(time.Millisecond):
		}
	}
	p.window.Add(-int64(n))
	_ = p.WriteData(id, end, make([]byte, n))
	return p.flush() == nil
}

func cancelledUploads(a *attackRun) {
	a.again(1, func() error {
		p, err := a.greet()
		if err != nil {
			return err
		}
		for range 200 {
			id := p.open(false, request("POST", things(), "content-length", "32000")...)
			if !p.data(id, false, 16_000) {
				if !a.over() {
					a.fault("an upload got no window: the cancelled uploads leaked it")
				}
				break
			}
			_ = p.WriteRSTStream(id, http2.ErrCodeCancel)
		}
		if !a.over() {
			p.through("after 200 cancelled uploads")
		}
		p.leave()
		return nil
	})
}

// through checks that an upload completes on a connection.
func (p *peer) through(when string) {
	answer := p.expect(p.next)
	id := p.open(false, request("POST", things(), "content-length", "16000")...)
	if p.data(id, true, 16_000) {
		if got := p.wait(answer); got == "201" || got == "200" {
			p.a.came("went through")
			return
		}
	}
	if !p.a.over() {
		p.a.fault("%s, an upload on the same connection did not complete", when)
	}
}

func slowStreams(a *attackRun) {
	a.again(1, func() error {
		p, err := a.greet(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
		if err != nil {
			return err
		}
		for range 20 {
			p.open(true, request("GET", things())...)
			p.data(p.open(false, request("POST", things(), "content-length", "32000")...), false, 100)
		}
		for range 20 {
			if got := p.ask("GET", things()+"/small"); got != "200" && !a.over() {
				a.fault("with slow streams, the response to a request on the same connection was %q", got)
			}
		}
		if !a.over() {
			p.through("with slow streams")
		}
		p.leave()
		return nil
	})
}
