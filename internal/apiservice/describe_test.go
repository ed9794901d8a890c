package apiservice

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"portico.dev/internal/transport"
)

func TestDescribeGivesTheSameFaultTheSameWords(t *testing.T) {
	tcp := func(port int) net.Addr { return &net.TCPAddr{IP: net.IPv4(10, 1, 2, 3), Port: port} }
	certificate := &x509.Certificate{NotBefore: time.Unix(0, 0), NotAfter: time.Unix(1_700_000_000, 0)}
	for name, test := range map[string]struct {
		err  func(i int) error // the i-th occurrence of the fault
		want string
	}{
		"refused, another endpoint each time": {
			func(i int) error {
				return &transport.Error{Op: transport.OpDial, Endpoint: fmt.Sprintf("10.1.2.%d:8443", i),
					Err: &net.OpError{Op: "dial", Net: "tcp", Addr: tcp(i), Err: syscall.ECONNREFUSED}}
			},
			"dial tcp: connection refused",
		},
		"reset, another local port each time": {
			func(i int) error {
				return &net.OpError{Op: "read", Net: "tcp", Source: tcp(40000 + i), Addr: tcp(8443), Err: syscall.ECONNRESET}
			},
			"read tcp: connection reset by peer",
		},
		"addresses inside an untyped text": {
			func(i int) error {
				return fmt.Errorf("read tcp 10.0.0.%d:%d->10.0.0.9:8443: broken; write [fd00::%d]:443", i, 40000+i, i)
			},
			"read tcp <endpoint>: broken; write <endpoint>",
		},
		"another stream each time": {
			func(i int) error { return http2.StreamError{StreamID: uint32(i), Code: http2.ErrCodeInternal} },
			"stream error: stream ID <n>; INTERNAL_ERROR",
		},
		"GOAWAY": {
			func(i int) error {
				return fmt.Errorf("http2: server sent GOAWAY and closed the connection; LastStreamID=%d, ErrCode=NO_ERROR, debug=%q", i, "bye")
			},
			`http2: server sent GOAWAY and closed the connection; LastStreamID=<n>, ErrCode=NO_ERROR, debug="bye"`,
		},
		"expired certificate, whose text holds the time of day": {
			func(i int) error {
				return x509.CertificateInvalidError{Cert: certificate, Reason: x509.Expired, Detail: fmt.Sprintf("current time is %d", i)}
			},
			"x509: certificate has expired or is not yet valid: it is valid from 1970-01-01T00:00:00Z to 2023-11-14T22:13:20Z",
		},
		"unknown name": {
			func(i int) error {
				return &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: "nowhere.test", Server: fmt.Sprintf("10.0.0.%d:53", i), IsNotFound: true}}
			},
			"lookup nowhere.test: no such host",
		},
		"no answer in time": {
			func(i int) error {
				return &transport.Error{Op: transport.OpRoundTrip, Endpoint: fmt.Sprint(i), Err: context.DeadlineExceeded}
			},
			"context deadline exceeded",
		},
		"an address that must not be dialled": {
			func(int) error {
				return &transport.Error{Op: transport.OpDial, Err: &transport.ForbiddenAddressError{Why: "it is link-local"}}
			},
			"the Service leads to an address that must not be dialled: it is link-local",
		},
	} {
		t.Run(name, func(t *testing.T) {
			for i := 1; i < 4; i++ {
				if got := describe(test.err(i)); got != test.want {
					t.Errorf("occurrence %d: got %q, want %q", i, got, test.want)
				}
			}
		})
	}
}

func TestDescribeBoundsWhatABackendCanSay(t *testing.T) {
	got := describe(errors.New("evil\x1b[2J\n" + strings.Repeat("x", 10_000)))
	if len(got) > maxDescription+len("...") || strings.ContainsAny(got, "\x1b\n") {
		t.Errorf("a backend wrote %d bytes into a status: %.40q", len(got), got)
	}
}

func TestFailureOf(t *testing.T) {
	for name, test := range map[string]struct {
		err  error
		want failure
	}{
		"refused": {
			&transport.Error{Op: transport.OpDial, Err: syscall.ECONNREFUSED},
			failure{unreachable: true},
		},
		"no answer to the dial": {
			&transport.Error{Op: transport.OpDial, Err: context.DeadlineExceeded},
			failure{unreachable: true, slow: true},
		},
		"wrong certificate": {
			&transport.Error{Op: transport.OpTLS, Err: x509.UnknownAuthorityError{}},
			failure{unreachable: true},
		},
		"no answer to the request": {
			&transport.Error{Op: transport.OpRoundTrip, Sent: true, Err: context.DeadlineExceeded},
			failure{slow: true},
		},
		"a connection that broke under the request": {
			&transport.Error{Op: transport.OpRoundTrip, Sent: true, Err: syscall.ECONNRESET},
			failure{slow: true},
		},
		"forbidden": {
			&transport.Error{Op: transport.OpDial, Err: &transport.ForbiddenAddressError{}},
			failure{unreachable: true, forbidden: true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := *failureOf(test.err)
			got.cause = ""
			if got != test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}

func TestMergedFailuresDoNotDependOnTheirOrder(t *testing.T) {
	all := []*failure{
		refused(), slow(), failureOfStatus(404), failureOfStatus(503),
		{cause: "forbidden", forbidden: true, unreachable: true},
	}
	for _, a := range all {
		for _, b := range all {
			ab, ba := (*failure)(nil).merge(a).merge(b), (*failure)(nil).merge(b).merge(a)
			if *ab != *ba {
				t.Errorf("%+v and %+v give %+v or %+v", a, b, ab, ba)
			}
			if ab.slow != (a.slow || b.slow) || ab.unreachable != (a.unreachable && b.unreachable) {
				t.Errorf("%+v and %+v give %+v", a, b, ab)
			}
		}
	}
}
