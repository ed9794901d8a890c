package apiservice

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"regexp"
	"strings"
	"time"
	"unicode"

	"portico.dev/internal/transport"
)

// maxDescription bounds what a backend can put into a status by choosing its words (GOAWAY debug data, certificate
// names).
const maxDescription = 512

// describe says what went wrong so that the same fault always gives the same words. The incumbent prints the error as
// it comes: with the address of whichever endpoint was last, an ephemeral port, a stream number or the time of day in
// it, each message differs from the one before, is written to the status, and wakes every watcher of APIServices.
// It names no endpoint either: the status of an APIService is readable by more people than pods are.
func describe(err error) string {
	return plain(scrub(words(err)))
}

// plain makes one line of bounded length of a text that a backend may have had a hand in.
func plain(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
	if len(text) > maxDescription {
		text = strings.ToValidUTF8(text[:maxDescription], "") + "..."
	}
	return text
}

func words(err error) string {
	var (
		ours      *transport.Error
		forbidden *transport.ForbiddenAddressError
		op        *net.OpError
		dns       *net.DNSError
		invalid   x509.CertificateInvalidError
	)
	switch {
	case errors.As(err, &forbidden):
		return "the Service leads to an address that must not be dialled: " + forbidden.Why
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired && invalid.Cert != nil:
		// The standard text holds the current time, to the second.
		return fmt.Sprintf("x509: certificate has expired or is not yet valid: it is valid from %s to %s",
			invalid.Cert.NotBefore.UTC().Format(time.RFC3339), invalid.Cert.NotAfter.UTC().Format(time.RFC3339))
	case errors.As(err, &dns):
		if dns.IsNotFound {
			return "lookup " + dns.Name + ": no such host"
		}
		return "lookup " + dns.Name + ": " + dns.Err
	case errors.As(err, &op) && op.Err != nil:
		return strings.TrimSpace(op.Op+" "+op.Net) + ": " + words(op.Err)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return "context deadline exceeded"
	case errors.As(err, &ours) && ours.Err != nil:
		return words(ours.Err)
	}
	// Transport names the step that failed, and crypto/tls names itself.
	return strings.Replace(err.Error(), "tls: tls: ", "tls: ", 1)
}

// What may still change from one occurrence to the next, in the texts of errors that have no type to ask.
var (
	address4 = regexp.MustCompile(`\b\d{1,3}(\.\d{1,3}){3}(:\d+)?(->\d{1,3}(\.\d{1,3}){3}(:\d+)?)?`)
	address6 = regexp.MustCompile(`\[[0-9a-fA-F:.]*:[0-9a-fA-F:.]*(%\w+)?\](:\d+)?(->\[[0-9a-fA-F:.%\w]*\](:\d+)?)?`)
	streamID = regexp.MustCompile(`(LastStreamID=|stream ID |stream )\d+`)
)

func scrub(text string) string {
	text = address4.ReplaceAllString(text, "<endpoint>")
	text = address6.ReplaceAllString(text, "<endpoint>")
	return streamID.ReplaceAllString(text, "${1}<n>")
}

// failureOf sorts an error of the probe lane.
func failureOf(err error) *failure {
	f := &failure{cause: describe(err)}
	var forbidden *transport.ForbiddenAddressError
	f.forbidden = errors.As(err, &forbidden)
	var timeout net.Error
	f.slow = errors.Is(err, context.DeadlineExceeded) || (errors.As(err, &timeout) && timeout.Timeout())
	var ours *transport.Error
	if errors.As(err, &ours) {
		f.unreachable = ours.Op != transport.OpRoundTrip
		// A connection that breaks under a request may be one that the backend was closing anyway.
		f.slow = f.slow || ours.Sent
	}
	return f
}

// failureOfStatus sorts an answer that is not 2xx. Overload and a server that is still starting pass; a 404 or a
// redirect does not.
func failureOfStatus(code int) *failure {
	return &failure{status: code, slow: code >= http.StatusInternalServerError || code == http.StatusTooManyRequests}
}

// message is the failure in the incumbent's form. The URL names the Service, not the endpoint.
func (f *failure) message(url string) string {
	switch {
	case f.status != 0:
		return fmt.Sprintf("failing or missing response from %s: bad status from %s: %d", url, url, f.status)
	default:
		return fmt.Sprintf("failing or missing response from %s: %s", url, f.cause)
	}
}
