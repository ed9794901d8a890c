package attacks

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	crand "crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"math/big"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http2"
)

func serverConnections() []*attackRow {
	slow := []string{"CVE-2026-56853", "CVE-2026-56862"}
	held := bound{CPU: 8, Memory: 256, Heap: 64, Outcomes: "held|ended: .*|no connection: .*"}
	rows := []*attackRow{
		{name: "no preface", cves: slow, sends: "400 connections that complete the TLS handshake and send nothing", quick: true, proof: "server.TestD5SlowClientsAreDisconnected, http2.TestSlowClientsAreDisconnected",
			do: openMany(400, func(a *attackRun) (io.ReadWriteCloser, error) { return a.dial("h2") }), bound: held},
		{name: "incomplete HTTP/2 header block", cves: slow, sends: "400 connections that send a preface, SETTINGS, and an incomplete header block", proof: "server.TestD5SlowClientsAreDisconnected, http2.TestSlowClientsAreDisconnected",
			do: openMany(400, func(a *attackRun) (io.ReadWriteCloser, error) {
				c, err := a.dial("h2")
				if err == nil {
					_, err = io.WriteString(c, http2.ClientPreface+"\x00\x00\x00\x04\x00\x00\x00\x00\x00"+"\x00\x00\x64\x01\x05\x00\x00\x00\x01\x82")
				}
				return c, err
			}), bound: held},
		{name: "incomplete HTTP/1.1 headers", cves: slow, sends: "400 connections that send half of the request headers", proof: "server.TestD5SlowClientsAreDisconnected",
			do: openMany(400, func(a *attackRun) (io.ReadWriteCloser, error) {
				c, err := a.dial("http/1.1")
				if err == nil {
					_, err = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\nX: ")
				}
				return c, err
			}), bound: held},
		{name: "incomplete TLS handshake", cves: slow, sends: "1,000 TCP connections that send half of a ClientHello", quick: true, proof: "server.TestD5SlowClientsAreDisconnected",
			do: openMany(1000, func(a *attackRun) (io.ReadWriteCloser, error) {
				c, err := a.raw()
				if err == nil {
					_, err = c.Write([]byte{22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3, 1, 2, 3, 4})
				}
				return c, err
			}), bound: held},
		{name: "endless TLS handshake", cves: slow, sends: "a handshake message with a length of 16 MB", proof: "server.TestD6HugeHandshakeMessageClosesConnection",
			do: func(a *attackRun) {
				record := append([]byte{22, 3, 1, 0x40, 0}, make([]byte, 16<<10)...)
				copy(record[5:], []byte{1, 0xff, 0xff, 0xff})
				a.again(2, func() error {
					c, err := a.raw()
					if err != nil {
						return err
					}
					var n int64
					for !a.over() {
						_ = c.SetWriteDeadline(time.Now().Add(time.Second))
						written, err := c.Write(record)
						if err != nil {
							a.came("ended: closed")
							break
						}
						a.sent(1, written)
						n++
					}
					a.mostOf(n)
					a.close(c)
					return nil
				})
			}, bound: bound{Frames: 1000, CPU: 8, Outcomes: "ended: closed"}},
		{name: "consecutive TLS handshakes", cves: []string{"CVE-2025-68121"}, sends: "TLS handshakes without requests; each tries to resume the previous session", quick: true,
			proof: "auth/authn.TestCertificateTrustIsCheckedPerRequest (sessions are never resumed, because certificate trust can change)",
			do: func(a *attackRun) {
				sessions := tls.NewLRUClientSessionCache(10)
				a.again(4, func() error {
					c, err := a.dialWith("h2", func(c *tls.Config) { c.ClientSessionCache, c.ServerName = sessions, "127.0.0.1" })
					if err != nil {
						return err
					}
					a.sent(1, 0)
					if c.ConnectionState().DidResume {
						a.fault("a session was resumed")
					}
					a.came("handshake completed")
					a.close(c.NetConn())
					return nil
				})
			}, bound: bound{CPU: 6, Outcomes: "handshake completed|no connection: .*"}},
		{name: "KeyUpdate flood", cves: slow, sends: "TLS 1.3 KeyUpdates that request a KeyUpdate in return, in handwritten records", quick: true,
			do: keyUpdates, bound: bound{Frames: 100_000, Outcomes: "ended: .*"}, proof: "crypto/tls limits them: CVE-2026-32283"},
		{name: "idle HTTP/1.1 connections", cves: slow, sends: "10,000 connections with one request each, which stay open (300 in the reduced set)",
			proof: "http1.TestBothServersServeThreeHundredClients, server.TestD9ServerRecoversFromDescriptorExhaustion", do: idle("http/1.1", 10_000), most: 45 * time.Second, bound: bound{CPU: 8, Memory: 900, Heap: 300, P99: time.Second, Outcomes: "held|no connection: .*"}},
		{name: "idle HTTP/2 connections", cves: slow, sends: "2,000 connections with one request each, which stay open",
			proof: "http2.TestIdleConnectionsEndWithGoAway", do: idle("h2", 2000), most: 15 * time.Second, bound: bound{CPU: 8, Heap: 80, P99: time.Second, Outcomes: "held|answered: 200|no connection: .*"}},
		{name: "idle connections after large headers", cves: slow, sends: "500 connections with one request with 60 KB of headers each, which stay open", quick: true,
			proof: "http2.TestIdleConnectionsEndWithGoAway", do: idleAfterLarge(500), most: 8 * time.Second, bound: bound{CPU: 12, Memory: 256, Heap: 64, Outcomes: "held|answered: .*|no connection: .*"}},
	}
	for _, a := range rows {
		a.class = "handshakes"
	}
	return append(rows, &attackRow{
		class: "late", name: "a certificate with a NUL in its names", cves: []string{"CVE-2026-47778"}, sends: "GETs with an untrusted client certificate; its common name is root, a NUL and a suffix", quick: true,
		do: nulCertificate, bound: bound{CPU: 8, Outcomes: "answered: 401|answered: 403"}, proof: "auth/authn.TestAuthenticateRequest, pki.TestInvalidBundleKeepsPreviousBundle",
	})
}

// openMany opens connections that stay open until the attack is over.
func openMany(many int, open func(*attackRun) (io.ReadWriteCloser, error)) func(*attackRun) {
	return func(a *attackRun) {
		a.atOnce(many, func() error {
			if _, err := open(a); err != nil {
				return err
			}
			a.sent(1, 0)
			a.mostOf(1)
			a.came("held")
			return nil
		})
		a.rest()
	}
}

// atOnce calls do the given number of times, a few in parallel, until the attack is over.
func (a *attackRun) atOnce(many int, do func() error) {
	var all sync.WaitGroup
	turns := make(chan struct{}, 4) // the test measures established connections, not their creation
	for range many {
		turns <- struct{}{}
		if a.over() {
			<-turns
			break
		}
		all.Go(func() {
			defer func() { <-turns }()
			if err := do(); err != nil {
				a.came("no connection: %s", brief(err))
			}
		})
	}
	all.Wait()
}

// idle opens connections, sends one request on each, and keeps them open.
func idle(protocol string, many int) func(*attackRun) {
	return func(a *attackRun) {
		if time.Until(a.until) < 5*time.Second {
			many = 300
		}
		a.atOnce(many, func() error {
			if protocol == "h2" {
				p, err := a.greet()
				if err != nil {
					return err
				}
				if got := p.ask("GET", things()+"/small"); got != "200" {
					a.fault("the response to a request was %q", got)
				}
				a.came("held")
				return nil
			}
			c, err := a.dial(protocol)
			if err != nil {
				return err
			}
			got, _ := exchange(c, message("GET", things()+"/small"), 1)
			a.sent(1, 0)
			if got != "200" {
				a.fault("the response to a request was %q", got)
			}
			a.came("held")
			return nil
		})
	}
}

func idleAfterLarge(many int) func(*attackRun) {
	return func(a *attackRun) {
		filler := repeat(string(literal("x-filler", strings.Repeat("y", 1000))), 55)
		if time.Until(a.until) < 5*time.Second {
			many = 100
		}
		a.atOnce(many, func() error {
			p, err := a.greet()
			if err != nil {
				return err
			}
			id := p.next
			answer := p.expect(id)
			p.long(true, append(p.encode(request("GET", things()+"/small")...), filler...))
			if err := p.flush(); err != nil {
				return err
			}
			if p.wait(answer) != "" {
				a.came("held")
			}
			return nil
		})
	}
}

// nulCertificate connects with a name that begins with another user's name.
func nulCertificate(a *attackRun) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), crand.Reader)
	if err != nil {
		a.fault("%v", err)
		return
	}
	t := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "root\x00.example.com", Organization: []string{"system:masters\x00x"}},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		DNSNames: []string{"front\x00.example.com"},
	}
	der, err := x509.CreateCertificate(crand.Reader, t, t, key.Public(), key)
	if err != nil {
		a.fault("%v", err)
		return
	}
	a.again(2, func() error {
		c, err := a.dialWith("http/1.1", func(c *tls.Config) {
			c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { // independent of the CAs that the server lists
				return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
			}
		})
		if err != nil {
			return err
		}
		got, _ := exchange(c, "GET "+things()+"/small HTTP/1.1\r\nHost: x\r\n\r\n", 1)
		a.sent(1, 0)
		a.came("answered: %s", got)
		a.close(c.NetConn())
		return nil
	})
}

// message returns a request of the attacker over HTTP/1.1. more are additional header lines.
func message(method, target string, more ...string) string {
	return method + " " + target + " HTTP/1.1\r\nHost: front.example.com\r\nAuthorization: Bearer " + attackerToken + "\r\n" + strings.Join(append(more, ""), "\r\n") + "\r\n"
}
