package transport

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// A Plain server receives the request unchanged, and an error states how far the request got.
func TestPlainServerReceivesRequestUnchanged(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s %s", r.Method, r.URL.RequestURI(), body)
	}))
	defer s.Close()
	address := s.Listener.Addr().String()
	ask := func(set *Plains, address string) (string, error) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://ignored/", strings.NewReader("body"))
		if err != nil {
			t.Fatal(err)
		}
		r.URL.Opaque = "/a%C3%A4/b"
		resp, err := set.To(address).RoundTrip(r)
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		return string(text), err
	}
	open := NewPlains(Options{AllowLoopback: true})
	defer open.Close()
	if text, err := ask(open, address); err != nil || text != "POST /a%C3%A4/b body" {
		t.Errorf("POST = %q with the error %v, want \"POST /a%%C3%%A4/b body\"", text, err)
	}
	conn, err := open.To(address).DialUpgrade(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()

	guarded := NewPlains(Options{})
	defer guarded.Close()
	var failed *Error
	var forbidden *ForbiddenAddressError
	if _, err := ask(guarded, address); !errors.As(err, &failed) || !errors.As(err, &forbidden) || failed.Sent || failed.Op != OpDial {
		t.Errorf("POST to a loopback address error = %v, want ForbiddenAddressError of the dial, not sent", err)
	}
	if _, err := guarded.To(address).DialUpgrade(t.Context()); !errors.As(err, &forbidden) {
		t.Errorf("DialUpgrade to a loopback address error = %v, want ForbiddenAddressError", err)
	}
	s.Close()
	fresh := NewPlains(Options{AllowLoopback: true})
	defer fresh.Close()
	if _, err := ask(fresh, address); !errors.As(err, &failed) || failed.Sent {
		t.Errorf("POST to a closed server error = %v, want an error, not sent", err)
	}

	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	impatient := NewPlains(Options{AllowLoopback: true, HeaderTimeout: 10 * time.Millisecond})
	defer impatient.Close()
	if _, err := ask(impatient, silent.Addr().String()); !errors.As(err, &failed) || !failed.Sent || failed.Op != OpRoundTrip {
		t.Errorf("POST to a silent server error = %v, want an error of the round trip, sent", err)
	}
}
