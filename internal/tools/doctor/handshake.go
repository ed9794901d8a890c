package doctor

import (
	"context"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"portico.dev/internal/pki"
)

// minRSABits is the smallest RSA key size without a warning. Go refuses only keys below 1024 bits.
const minRSABits = 2048

// tls checks the certificate of every address that accepted a connection.
func (x *exam) tls(ctx context.Context) finding {
	if len(x.dialled) == 0 {
		return x.unseenTLS(ctx)
	}
	good := finding{}
	for _, place := range x.dialled {
		seen, err := x.inspect(ctx, place)
		f := x.judgeTLS(ctx, place, seen, err)
		if f.state != OK {
			return f
		}
		good = f
	}
	if f, yes := x.disputed(ctx, HopTLS); yes {
		return f
	}
	return good
}

// unseenTLS handles certificates that this machine cannot see. The API server's message is the only information.
func (x *exam) unseenTLS(ctx context.Context) finding {
	if x.accused(ctx) != HopTLS {
		return unknown(notReachableFromHere)
	}
	said := x.availableMessage(ctx)
	switch {
	case strings.Contains(said, "certificate signed by unknown authority"):
		return broken("the API server does not trust who signed the serving certificate", x.otherAuthority(ctx, nil)...).saying(said)
	case strings.Contains(said, "certificate is valid for"), strings.Contains(said, "not valid for any names"), strings.Contains(said, "legacy Common Name"):
		return broken("the serving certificate is not for "+x.spec.ServerName, x.otherName(ctx, nil)...).saying(said)
	case strings.Contains(said, "expired or is not yet valid"):
		return broken("the API server finds the serving certificate outside of its time", x.renew()...).saying(said)
	}
	return broken("the API server's handshake fails", x.lookAtServer()).saying(said)
}

// inspect performs a handshake that accepts any certificate.
func (x *exam) inspect(ctx context.Context, place string) (*pki.Inspection, error) {
	raw, err := x.dial(ctx, place)
	if err != nil {
		return nil, err
	}
	defer func() { _ = raw.Close() }()
	ctx, cancel := context.WithTimeout(ctx, x.cfg.Timeout)
	defer cancel()
	seen := &pki.Inspection{}
	return seen, tls.Client(raw, pki.InspectionConfig(x.spec.ServerName, x.cfg.FrontProxy, seen)).HandshakeContext(ctx)
}

// judgeTLS repeats a client's checks in the client's order, because the condition names the first one that fails.
func (x *exam) judgeTLS(ctx context.Context, place string, seen *pki.Inspection, err error) finding {
	if err != nil && (seen == nil || len(seen.Chain) == 0) {
		return x.noHandshake(ctx, place, err)
	}
	leaf := seen.Chain[0]
	found, fix := "", []string(nil)
	switch now := time.Now(); {
	case seen.Version < tls.VersionTLS12:
		found = fmt.Sprintf("it speaks %s and nothing newer; TLS 1.2 is the least", tls.VersionName(seen.Version))
		fix = []string{"# give the extension server a newer TLS library, or --tls-min-version=VersionTLS12 where it has that flag:", x.lookAtServer()}
	case x.spec.Insecure:
	case now.After(leaf.NotAfter):
		found, fix = "the serving certificate expired at "+stamp(leaf.NotAfter), x.renew()
	case now.Before(leaf.NotBefore):
		found = fmt.Sprintf("the serving certificate is not valid before %s: one of the clocks is wrong, or it was made for later", stamp(leaf.NotBefore))
		fix = append([]string{"# compare `date` on both machines, then:"}, x.renew()...)
	case leaf.VerifyHostname(x.spec.ServerName) != nil:
		found = fmt.Sprintf("the serving certificate is for %s, and has to be for %s", namesIn(leaf), x.spec.ServerName)
		fix = x.otherName(ctx, leaf)
	default:
		if err := x.verify(seen.Chain); err != nil {
			if len(x.spec.CABundle) == 0 && x.answered(ctx) {
				return unknown("this machine does not trust " + issuerOf(seen.Chain) + "; the API server's does")
			}
			found, fix = x.strangeAuthority(ctx, seen.Chain, err)
		}
	}
	if found != "" {
		return broken(found, fix...).saying(x.sentence(ctx, errors.New(found)))
	}
	return ok(x.described(seen))
}

// noHandshake handles a server that does not complete a TLS handshake.
func (x *exam) noHandshake(ctx context.Context, place string, err error) finding {
	var header tls.RecordHeaderError
	var timeout net.Error
	found := place + ": the handshake fails: " + err.Error()
	fix := []string{x.lookAtServer()}
	switch {
	case errors.As(err, &header):
		found = place + " speaks no TLS"
		if string(header.RecordHeader[:]) == "HTTP/" {
			found = place + " speaks plain HTTP; the API server speaks HTTPS to extension servers, always"
		}
		fix = append([]string{"# serve HTTPS there, or lead the Service to the port that does:"}, x.redirectCommands()...)
	case errors.As(err, &timeout) && timeout.Timeout(), errors.Is(err, context.DeadlineExceeded):
		found = place + " takes the connection and never answers the handshake: it hangs, or something else listens there"
	case strings.Contains(err.Error(), "protocol version"):
		found = place + " speaks no version of TLS from 1.0 on"
	}
	return broken(found, fix...).saying(x.sentence(ctx, err))
}

func (x *exam) described(seen *pki.Inspection) string {
	leaf := seen.Chain[0]
	parts := []string{fmt.Sprintf("%s, for %s, by %s, until %s", tls.VersionName(seen.Version), namesIn(leaf), issuerOf(seen.Chain), stamp(leaf.NotAfter))}
	if key, isRSA := leaf.PublicKey.(*rsa.PublicKey); isRSA && key.N.BitLen() < minRSABits {
		parts = append(parts, fmt.Sprintf("its RSA key of %d bits is too short, %d are asked of new ones", key.N.BitLen(), minRSABits))
	}
	switch subjects := subjectsOf(seen.AcceptableCAs); {
	case !seen.Asked:
		parts = append(parts, "it asks for no client certificate, so that it cannot know the front proxy from anybody")
	case len(subjects) > 0:
		parts = append(parts, "it takes client certificates of "+strings.Join(subjects, ", "))
	}
	x.seen = seen
	return strings.Join(parts, "; ")
}

// verify checks only the chain. The caller has already checked the validity period of the leaf.
func (x *exam) verify(chain []*x509.Certificate) error {
	options := x509.VerifyOptions{Intermediates: x509.NewCertPool()}
	for _, c := range chain[1:] {
		options.Intermediates.AddCert(c)
	}
	if len(x.spec.CABundle) > 0 {
		bundle, err := pki.StaticBundle(x.spec.CABundle)
		if err != nil {
			return err
		}
		options.Roots = bundle.Pool()
	}
	_, err := chain[0].Verify(options)
	return err
}
