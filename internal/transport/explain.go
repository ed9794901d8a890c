package transport

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"syscall"
)

// An alert of the peer is a net.OpError with an unexported error type of crypto/tls that has the same text as an
// AlertError.
const (
	alerted            = "remote error"
	alertInternalError = tls.AlertError(80) // RFC 8446; sent by Go servers without a certificate
)

// Explain describes an Error of ClassBackend in a text without addresses, in which "it" is the backend. cause is a
// machine-readable form of text. passing reports whether the failure may be transient. A wrong certificate is not:
// clients that retry would only learn of it later.
func (e *Error) Explain() (cause, text string, passing bool) {
	var (
		forbidden *ForbiddenAddressError
		unknown   x509.UnknownAuthorityError
		name      x509.HostnameError
		invalid   x509.CertificateInvalidError
		remote    *net.OpError
		dns       *net.DNSError
		timeout   interface{ Timeout() bool }
		tunnel    *TunnelError
	)
	slow := errors.Is(e.Err, context.DeadlineExceeded) || errors.As(e.Err, &timeout) && timeout.Timeout()
	switch {
	case errors.As(e.Err, &forbidden):
		return "ForbiddenAddress", "its Service leads to an address that must not be dialled", false
	case errors.As(e.Err, &tunnel):
		return tunnel.explain()
	case errors.Is(e.Err, ErrUnresponsive):
		return "Unresponsive", "it answers no requests", true
	case errors.Is(e.Err, ErrNoEndpoints):
		return "NoEndpoints", "its Service has no endpoints", true
	case errors.Is(e.Err, ErrSaturated):
		return "Saturated", "it takes no more concurrent requests", true
	case errors.As(e.Err, &unknown):
		return "CertificateUntrusted", "its certificate is not signed by the authority in caBundle", false
	case errors.As(e.Err, &name):
		return "CertificateName", "its certificate is for another name than " + name.Host, false
	case errors.As(e.Err, &invalid) && invalid.Reason == x509.Expired:
		return "CertificateExpired", "its certificate has expired or is not yet valid", false
	case errors.As(e.Err, &remote) && remote.Op == alerted && remote.Err.Error() == alertInternalError.Error():
		return "TLSInternalError", "it could not complete the TLS handshake: it may have no certificate yet", true
	case errors.As(e.Err, &remote) && remote.Op == alerted:
		return "TLSAlert", "it refused the TLS handshake", false
	case errors.As(e.Err, &dns):
		return "NameNotResolved", "its name could not be resolved", true
	case errors.Is(e.Err, syscall.ECONNREFUSED):
		return "ConnectionRefused", "it refused the connection", true
	case e.Op == OpDial && slow:
		return "ConnectTimeout", "it could not be connected to in time", true
	case e.Op == OpDial:
		return "ConnectFailed", "it could not be connected to", true
	case e.Op == OpTLS && slow:
		return "TLSTimeout", "it did not complete the TLS handshake in time", true
	case e.Op == OpTLS:
		return "TLSFailed", "the TLS handshake with it failed", true
	case !e.Sent:
		return "NotAccepted", "it did not accept the request", true
	}
	return "ConnectionLost", "the connection to it broke before it answered; it may have acted on the request", true
}

// explain implements Explain for a tunnel's error.
func (e *TunnelError) explain() (cause, text string, passing bool) {
	switch e.Problem {
	case TunnelRefused:
		return "TunnelRefused", "the tunnel to the " + e.Network + " network refused to connect", true
	case TunnelSilent:
		return "TunnelSilent", "the tunnel to the " + e.Network + " network did not connect in time: its server or its agents hang, or nothing answers at the backend's address", true
	case TunnelBusy:
		return "TunnelBusy", "the tunnel to the " + e.Network + " network has too many dials under way", true
	}
	return "TunnelUnreachable", "the tunnel to the " + e.Network + " network cannot be reached", true
}
