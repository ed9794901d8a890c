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

	"portico.dev/internal/httpengine"
	"portico.dev/internal/httpengine/enginetest"
	"portico.dev/internal/httpengine/portico/http1"
	"portico.dev/internal/pki"
)

func short(s *Server) {
	s.limits = limits{handshake: 2 * time.Second, readHeader: 2 * time.Second, idle: 3 * time.Second, stall: time.Second}
}

// Slow clients. A hundred of each kind are disconnected soon. Until then another client is served.
func TestD5SlowClientsAreDisconnected(t *testing.T) {
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
					t.Errorf("time until another client was served = %s, want at most a second", took)
				}
				gone := 4 * time.Second
				if enginetest.HTTP(t) == httpengine.Library {
					gone = 11 * time.Second // net/http waits 10 seconds for a preface
				}
				for i, c := range slow {
					_ = c.SetReadDeadline(start.Add(gone))
					if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
						t.Fatalf("slow client %d is still connected after %s, want it disconnected", i, gone)
					}
				}
			})
		})
	}
}

// A client that does not read does not block a handler forever.
func TestD5StalledReaderDoesNotBlockHandler(t *testing.T) {
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
					t.Error("handler still writes after 10 seconds to a client that does not read, want an error from Write")
				}
			})
		})
	}
}

// The server closes a connection that announces a handshake message of 16 MiB. It neither waits for the message nor buffers it.
func TestD6HugeHandshakeMessageClosesConnection(t *testing.T) {
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
		t.Errorf("server accepted %d bytes of one handshake message, want less than %d", sent, 4<<20)
	}
	answered(t, l)
}

func TestD7WeakTLSVersionsAndSuitesAreRejected(t *testing.T) {
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
				t.Errorf("handshake with %s succeeded = %v with the error %v, want %v", o.name, err == nil, err, o.ok)
			}
			if err == nil {
				_ = c.Close()
			}
		})
	}
}

// The certificate changes fifty times under load. Before each change, the server rejects a key that does not match.
func TestD8CertificateReloadUnderLoadRejectsWrongKey(t *testing.T) {
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
				client := l.client(t, h2) // a new connection
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
			t.Errorf("Set accepted certificate %d with another key, want an error", i)
		}
		if err := l.pair.Set(cert, key); err != nil {
			t.Fatal(err)
		}
		c, err := tls.Dial("tcp", l.address, &tls.Config{RootCAs: l.roots})
		if err != nil {
			t.Fatal(err)
		}
		if got := c.ConnectionState().PeerCertificates[0].Subject.CommonName; got != fmt.Sprint("front ", i) {
			t.Errorf("common name of the server's certificate after change %d = %q, want %q", i, got, fmt.Sprint("front ", i))
		}
		_ = c.Close()
	}
	close(stop)
	wg.Wait()
	if failed.Load() > 0 || served.Load() == 0 {
		t.Errorf("%d requests failed and %d were served during the changes, want 0 and more than 0", failed.Load(), served.Load())
	}
}

// fdChild is set in the child process whose file descriptors run out.
const fdChild = "PORTICO_TEST_FEW_DESCRIPTORS"

// serveWithFewDescriptors runs in the child process: a server with a low limit on open files, until its standard input ends.
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

func TestD9ServerRecoversFromDescriptorExhaustion(t *testing.T) {
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
		t.Fatalf("first line of the child = %q, want its address and certificate (error %v)", line, err)
	}
	var handlerCounter []net.Conn
	for range 200 { // the kernel accepts all of them; the process can accept a quarter
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatalf("dialing %s failed: %v, want a connection", address, err)
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
		t.Errorf("time until the server served again = %s, want at most a minute", took)
	}
}
