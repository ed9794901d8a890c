package transport

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"portico.dev/internal/httpengine/enginetest"
)

var errHung = errors.New("requests are taken and none is answered")

// inBackground sends a request, and returns a channel with its result.
func inBackground(ctx context.Context, b http.RoundTripper, method string, body io.Reader) <-chan error {
	done := make(chan error, 1)
	go func() {
		r, err := http.NewRequestWithContext(ctx, method, "https://ignored/", body)
		if err == nil {
			var resp *http.Response
			if resp, err = b.RoundTrip(r); err == nil {
				_, err = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
		}
		done <- err
	}()
	return done
}

func within(t *testing.T, limit time.Duration, done <-chan error, what string) error {
	t.Helper()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
		t.Fatalf("%s has no result after %s, want one", what, limit)
		return nil
	}
}

func stillWaits(t *testing.T, done <-chan error, what string) {
	t.Helper()
	select {
	case err := <-done:
		t.Fatalf("%s ended with the error %v, want it to wait", what, err)
	default:
	}
}

func TestBlockEndsRequestsWaitingForHeaders(t *testing.T) {
	for _, proto := range []string{"h2", "http/1.1"} {
		t.Run(proto, func(t *testing.T) {
			if proto == "http/1.1" {
				enginetest.NotOnLibraryBackend(t, "requests that wait over HTTP/1.1 at an endpoint that is ejected")
			}
			w := newTestEnv(t)
			began, release := make(chan string, 10), make(chan struct{})
			s := w.serveProto(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/fast" {
					return
				}
				began <- r.Method
				select {
				case <-release:
				case <-r.Context().Done():
				}
			}), proto)
			b := w.backend(w.set(), s.address)
			get := inBackground(t.Context(), b, http.MethodGet, nil)
			post := inBackground(t.Context(), b, http.MethodPost, strings.NewReader("{}"))
			<-began
			<-began

			b.Block(errHung, false)
			stillWaits(t, get, "a GET at a backend that is not silent")
			b.Block(errHung, true)
			err := within(t, time.Minute, get, "GET")
			var failed *Error
			if !errors.Is(err, ErrUnresponsive) || !errors.As(err, &failed) || !failed.Sent || failed.Class != ClassBackend {
				t.Errorf("GET at a blocked backend error = %v (%+v), want ErrUnresponsive, sent, of class %v", err, failed, ClassBackend)
			}
			stillWaits(t, post, "a POST that the backend has")
			if err := within(t, time.Minute, inBackground(t.Context(), b, http.MethodPost, nil), "a new request"); !errors.Is(err, ErrUnresponsive) {
				t.Errorf("POST at a blocked backend error = %v, want ErrUnresponsive", err)
			}
			r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://ignored/fast", nil)
			resp, err := b.Probe().RoundTrip(r)
			if err != nil {
				t.Fatalf("probe of a blocked backend failed: %v, want a response", err)
			}
			_ = resp.Body.Close()

			close(release)
			if err := within(t, time.Minute, post, "POST"); err != nil {
				t.Errorf("POST that waited failed: %v, want a response", err)
			}
			b.Unblock()
			if err := within(t, time.Minute, inBackground(t.Context(), b, http.MethodGet, nil), "a request after Unblock"); err != nil {
				t.Error(err)
			}
		})
	}
}

// The kernel still accepts connections for a stopped process.
func TestBlockEndsRequestsWaitingForConnection(t *testing.T) {
	w := newTestEnv(t)
	connected := make(chan struct{}, 10)
	address := w.tcp(func(c net.Conn) {
		connected <- struct{}{}
		_, _ = io.Copy(io.Discard, c)
	})
	b := w.backend(w.set(func(o *Options) { o.TLSTimeout = time.Minute }), address)
	post := inBackground(t.Context(), b, http.MethodPost, strings.NewReader("{}"))
	upgrade := make(chan error, 1)
	go func() {
		_, err := b.DialUpgrade(t.Context())
		upgrade <- err
	}()
	<-connected
	<-connected
	b.Block(errHung, true)
	for what, done := range map[string]<-chan error{"POST": post, "an upgrade": upgrade} {
		err := within(t, time.Minute, done, what)
		var failed *Error
		if !errors.Is(err, ErrUnresponsive) || !errors.As(err, &failed) || failed.Sent {
			t.Errorf("%s at a blocked backend error = %v (%+v), want ErrUnresponsive, not sent", what, err, failed)
		}
	}
}

func TestBlockAppliesToNewEndpoints(t *testing.T) {
	w := newTestEnv(t)
	s := w.serve(text("ok"))
	set := w.set()
	b := w.backend(set, w.deadAddress())
	b.Block(errHung, true)
	if again := w.backend(set, s.address); again != b {
		t.Fatal("Backend with another endpoint returned another backend, want the same")
	}
	if _, err := get(t, b); !errors.Is(err, ErrUnresponsive) {
		t.Errorf("GET at a blocked backend with a new endpoint error = %v, want ErrUnresponsive", err)
	}
	b.Unblock()
	if body, err := get(t, b); err != nil || body != "ok" {
		t.Errorf("GET after Unblock = %q with the error %v, want ok", body, err)
	}
}
