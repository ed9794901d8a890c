package server

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"

	"portico.dev/internal/engine"
	"portico.dev/internal/engine/enginetest"
	"portico.dev/internal/http1"
	"portico.dev/internal/pki"
)

func short(s *Server) {
	s.limits = limits{handshake: 2 * time.Second, readHeader: 2 * time.Second, idle: 3 * time.Second, stall: time.Second}
}

// Clients that take their time. Each hundred of them is gone soon, and while they are there another client is served.
func TestD5SlowClients(t *testing.T) {
	const many = 100
	for _, test := range []struct {
		name string
		slow func(*testing.T, *listening) net.Conn
	}{
		{"D5 no ClientHello", func(t *testing.T, l *listening) net.Conn { return l.dial(t) }},
		{"D5 half a ClientHello", func(t *testing.T, l *listening) net.Conn {
			c := l.dial(t)
			_, _ = c.Write([]byte{22, 3, 1, 2, 0, 1, 0})
			return c
		}},
		{"D5 half a header", func(t *testing.T, l *listening) net.Conn {
			c := l.secure(t, "http/1.1")
			_, _ = io.WriteString(c, "GET /api HTTP/1.1\r\nHost: a\r\nX-Slow: ")
			return c
		}},
		{"D5 no HTTP/2 preface", func(t *testing.T, l *listening) net.Conn { return l.secure(t, "h2") }},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench("alice *")
				b.memory = true
				l := b.listen(t, time.Second, short)
				var slow []net.Conn
				for range many {
					slow = append(slow, test.slow(t, l))
				}
				start := time.Now()
				answered(t, l)
				if took := time.Since(start); took > time.Second {
					t.Errorf("another client waited %s", took)
				}
				gone := 4 * time.Second
				if enginetest.HTTP(t) == engine.Library {
					gone = 11 * time.Second // it waits for a preface for ten
				}
				for i, c := range slow {
					_ = c.SetReadDeadline(start.Add(gone))
					if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
						t.Fatalf("slow client %d is still there", i)
					}
				}
			})
		})
	}
}

// A reader that takes nothing does not hold a handler for ever.
func TestD5AReaderThatTakesNothing(t *testing.T) {
	for _, proto := range []string{"http/1.1", "h2"} {
		t.Run("D5 "+proto, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench("alice *")
				b.memory = true
				done := make(chan struct{})
				b.handler = func(w http.ResponseWriter, _ *http.Request) {
					defer close(done)
					chunk := make([]byte, 256<<10)
					for {
						if _, err := w.Write(chunk); err != nil {
							return
						}
					}
				}
				l := b.listen(t, time.Second, short)
				if proto == "h2" {
					a := l.attack(t)
					_ = a.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30})
					_ = a.WriteWindowUpdate(0, 1<<30)
					_, _ = a.open("alice")
				} else {
					_, _ = io.WriteString(l.secure(t, proto), "GET /api HTTP/1.1\r\nHost: a\r\nTest-User: alice\r\n\r\n")
				}
				select {
				case <-done:
				case <-time.After(10 * time.Second):
					t.Error("the handler still writes")
				}
			})
		})
	}
}

// What begins a handshake message of 16 MiB is not waited for, let alone kept.
func TestD6AHugeHandshakeMessage(t *testing.T) {
	b := newBench("alice *")
	l := b.listen(t, time.Second)
	c, err := net.Dial("tcp", l.address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	record := make([]byte, 5+16384)
	copy(record, []byte{22, 3, 1})
	binary.BigEndian.PutUint16(record[3:], 16384)
	copy(record[5:], []byte{1, 0xff, 0xff, 0xff}) // ClientHello, 16 MiB
	sent := 0
	for sent < 4<<20 {
		n, err := c.Write(record)
		sent += n
		if err != nil {
			break
		}
		copy(record[5:], []byte{0, 0, 0, 0})
	}
	if sent >= 4<<20 {
		t.Errorf("%d bytes of one handshake message were taken", sent)
	}
	answered(t, l)
}

func TestD7VersionsAndSuites(t *testing.T) {
	b := newBench("alice *")
	l := b.listen(t, time.Second)
	type offer struct {
		name     string
		from, to uint16
		suites   []uint16
		curves   []tls.CurveID
		ok       bool
	}
	offers := []offer{
		{"TLS 1.0", tls.VersionTLS10, tls.VersionTLS10, nil, nil, false},
		{"TLS 1.1", tls.VersionTLS11, tls.VersionTLS11, nil, nil, false},
		{"TLS 1.2", tls.VersionTLS12, tls.VersionTLS12, nil, nil, true},
		{"TLS 1.3", tls.VersionTLS13, tls.VersionTLS13, nil, nil, true},
		{"TLS 1.3 with a hybrid of ML-KEM", tls.VersionTLS13, tls.VersionTLS13, nil, []tls.CurveID{tls.X25519MLKEM768}, true},
	}
	for _, s := range append(tls.CipherSuites(), tls.InsecureCipherSuites()...) {
		if s.SupportedVersions[0] == tls.VersionTLS13 {
			continue
		}
		// The server's key is ECDSA: suites that sign with RSA could not be chosen in any case.
		aead := strings.Contains(s.Name, "GCM") || strings.Contains(s.Name, "POLY1305")
		offers = append(offers, offer{s.Name, tls.VersionTLS12, tls.VersionTLS12, []uint16{s.ID}, nil, aead && strings.Contains(s.Name, "ECDHE_ECDSA")})
	}
	for _, o := range offers {
		t.Run("D7 "+o.name, func(t *testing.T) {
			c, err := tls.Dial("tcp", l.address, &tls.Config{
				RootCAs: l.roots, MinVersion: o.from, MaxVersion: o.to, CipherSuites: o.suites, CurvePreferences: o.curves,
				Renegotiation: tls.RenegotiateFreelyAsClient,
			})
			if (err == nil) != o.ok {
				t.Errorf("shook hands: %v, want %v (%v)", err == nil, o.ok, err)
			}
			if err == nil {
				_ = c.Close()
			}
		})
	}
}

// The certificate changes a hundred times under load, half of the times with a key that does not fit.
func TestD8CertificatesChangeUnderLoad(t *testing.T) {
	b := newBench("alice *")
	l := b.listen(t, 5*time.Second)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var served, failed atomic.Int64
	for _, h2 := range []bool{true, false} {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				client := l.client(t, h2) // a connection of its own
				r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+l.address+"/livez", nil)
				r.Header.Set("Test-User", "alice")
				res, err := client.Do(r)
				if err != nil {
					failed.Add(1)
					t.Log(err)
					continue
				}
				_ = res.Body.Close()
				client.CloseIdleConnections()
				served.Add(1)
			}
		})
	}
	issue := func(i int) ([]byte, []byte) {
		cert, key, err := l.authority.Issue(pki.Leaf{CommonName: fmt.Sprint("front ", i), IPs: []net.IP{net.IPv4(127, 0, 0, 1)}, Server: true})
		if err != nil {
			t.Fatal(err)
		}
		return cert, key
	}
	_, otherKey := issue(-1)
	for i := range 50 {
		cert, key := issue(i)
		if err := l.pair.Set(cert, otherKey); err == nil {
			t.Error("a key that does not fit was taken")
		}
		if err := l.pair.Set(cert, key); err != nil {
			t.Fatal(err)
		}
		c, err := tls.Dial("tcp", l.address, &tls.Config{RootCAs: l.roots})
		if err != nil {
			t.Fatal(err)
		}
		if got := c.ConnectionState().PeerCertificates[0].Subject.CommonName; got != fmt.Sprint("front ", i) {
			t.Errorf("after change %d the server shows %q", i, got)
		}
		_ = c.Close()
	}
	close(stop)
	wg.Wait()
	if failed.Load() > 0 || served.Load() == 0 {
		t.Errorf("%d failed, %d served", failed.Load(), served.Load())
	}
}

// fdChild is set in the process whose file descriptors run out.
const fdChild = "PORTICO_TEST_FEW_DESCRIPTORS"

// serveWithFewDescriptors is that process: a server that may open few files, until its standard input ends.
func serveWithFewDescriptors() {
	limit := syscall.Rlimit{Cur: 64, Max: 64}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		fmt.Println("setrlimit:", err)
		return
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println("listen:", err)
		return
	}
	authority, _ := pki.NewAuthority("cluster")
	cert, key, _ := authority.Issue(pki.Leaf{CommonName: "front", IPs: []net.IP{net.IPv4(127, 0, 0, 1)}, Server: true})
	pair, err := pki.StaticKeyPair(cert, key)
	if err != nil {
		fmt.Println(err)
		return
	}
	s := http1.New(http1.Config{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })})
	a := newAcceptor(listener, pki.ServerConfig(pair), defaultLimits, new(Server).handshakes(), s.Begin)
	ended := a.Start()
	fmt.Println(listener.Addr(), base64.StdEncoding.EncodeToString(authority.PEM()))
	_, _ = io.Copy(io.Discard, os.Stdin)
	a.Close()
	s.Close()
	if err := <-ended; err != nil {
		fmt.Println("accept:", err)
	}
}

func TestD9FileDescriptorsRunOut(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.Command(self)
	child.Env = append(os.Environ(), fdChild+"=1")
	in, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = in.Close(); _ = child.Wait() }()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	address, encoded, _ := strings.Cut(strings.TrimSpace(line), " ")
	roots := x509.NewCertPool()
	if text, err := base64.StdEncoding.DecodeString(encoded); err != nil || !roots.AppendCertsFromPEM(text) {
		t.Fatalf("the child said %q", line)
	}
	var handlerCounter []net.Conn
	for range 200 { // the kernel takes them; the process can accept a quarter
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(address, err)
		}
		handlerCounter = append(handlerCounter, c)
	}
	for _, c := range handlerCounter {
		_ = c.Close()
	}
	start := time.Now()
	client := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots},
	}}
	defer client.CloseIdleConnections()
	res, err := client.Get("https://" + address + "/livez")
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if took := time.Since(start); took > time.Minute {
		t.Errorf("served again after %s", took)
	}
}
