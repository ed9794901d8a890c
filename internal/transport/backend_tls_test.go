package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"testing"
)

func TestBackendWithTLS(t *testing.T) {
	s := New(Options{})
	config := &tls.Config{NextProtos: []string{"http/1.1"}, ServerName: "other", MinVersion: tls.VersionTLS12}
	spec := Spec{Name: "hook/webhook:443", ServerName: "webhook.hook.svc", Endpoints: []Endpoint{{Address: "192.0.2.1:443"}}}
	a, err := s.BackendWithTLS(spec, "a", config)
	if err != nil {
		t.Fatal(err)
	}
	if a.tls == config || a.tls.ServerName != spec.ServerName || fmt.Sprint(a.tls.NextProtos) != "[h2 http/1.1]" || config.ServerName != "other" {
		t.Errorf("got %+v", a.tls)
	}
	if len(a.Endpoints()) != 1 || a.Name() != spec.Name {
		t.Errorf("got %+v", a.Report())
	}
	spec.Endpoints = nil
	if again, err := s.BackendWithTLS(spec, "a", config); err != nil || again != a || len(a.Endpoints()) != 0 {
		t.Errorf("the same id: %v, %v", again.Report(), err)
	}
	if b, err := s.BackendWithTLS(spec, "b", config); err != nil || b == a {
		t.Errorf("another id: %v, %v", b, err)
	}
	s.Close()
	if _, err := s.BackendWithTLS(spec, "c", config); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

func TestExplain(t *testing.T) {
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	for want, e := range map[string]*Error{
		"ConnectionRefused: it refused the connection":                                         {Op: OpDial, Err: &connectError{OpDial, refused}},
		"ConnectTimeout: it could not be connected to in time":                                 {Op: OpDial, Err: context.DeadlineExceeded},
		"TLSTimeout: it did not complete the TLS handshake in time":                            {Op: OpTLS, Err: context.DeadlineExceeded},
		"NoEndpoints: its Service has no endpoints":                                            {Op: OpPick, Err: ErrNoEndpoints},
		"Unresponsive: it answers no requests":                                                 {Op: OpRoundTrip, Err: ErrUnresponsive, Sent: true},
		"TLSAlert: it refused the TLS handshake; it lasts":                                     {Op: OpTLS, Err: &connectError{OpTLS, tls.AlertError(42)}},
		"NotAccepted: it did not accept the request":                                           {Op: OpRoundTrip, Err: errors.New("x")},
		"ForbiddenAddress: its Service leads to an address that must not be dialled; it lasts": {Op: OpDial, Err: &ForbiddenAddressError{}},
	} {
		cause, text, passing := e.Explain()
		got := cause + ": " + text
		if !passing {
			got += "; it lasts"
		}
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
