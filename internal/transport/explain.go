package transport

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"syscall"
)

// Explain says why a request got no response, in words without addresses that begin with "it" or "its", for the server that
// could not be reached. cause is the same in one word, for programs.
func (e *Error) Explain() (cause, text string) {
	var (
		forbidden *ForbiddenAddressError
		unknown   x509.UnknownAuthorityError
		name      x509.HostnameError
		invalid   x509.CertificateInvalidError
		alert     tls.AlertError
		dns       *net.DNSError
		timeout   interface{ Timeout() bool }
	)
	slow := errors.Is(e.Err, context.DeadlineExceeded) || errors.As(e.Err, &timeout) && timeout.Timeout()
	switch {
	case e.Protocol:
		return "BackendProtocol", "it answered with something that is not HTTP"
	case errors.As(e.Err, &forbidden):
		return "ForbiddenAddress", "its Service leads to an address that must not be dialled"
	case errors.Is(e.Err, ErrNoEndpoints):
		return "NoEndpoints", "its Service has no endpoints"
	case errors.Is(e.Err, ErrSaturated):
		return "Saturated", "it takes no more concurrent requests"
	case errors.As(e.Err, &unknown):
		return "CertificateUntrusted", "its certificate is not signed by the authority in caBundle"
	case errors.As(e.Err, &name):
		return "CertificateName", "its certificate is for another name than " + name.Host
	case errors.As(e.Err, &invalid) && invalid.Reason == x509.Expired:
		return "CertificateExpired", "its certificate has expired or is not yet valid"
	case errors.As(e.Err, &alert):
		return "TLSAlert", "it refused the TLS handshake"
	case errors.As(e.Err, &dns):
		return "NameNotResolved", "its name could not be resolved"
	case errors.Is(e.Err, syscall.ECONNREFUSED):
		return "ConnectionRefused", "it refused the connection"
	case e.Op == OpDial && slow:
		return "ConnectTimeout", "it could not be connected to in time"
	case e.Op == OpDial:
		return "ConnectFailed", "it could not be connected to"
	case e.Op == OpTLS && slow:
		return "TLSTimeout", "it did not complete the TLS handshake in time"
	case e.Op == OpTLS:
		return "TLSFailed", "the TLS handshake with it failed"
	case errors.Is(e.Err, ErrHeaderTimeout), e.Class == ClassCanceled && slow:
		return "Timeout", "it did not answer in time"
	case e.Class == ClassCanceled:
		return "Canceled", "the request was canceled before it answered"
	case !e.Sent:
		return "NotAccepted", "it did not accept the request"
	}
	return "ConnectionLost", "the connection to it broke before it answered; it may have acted on the request"
}
