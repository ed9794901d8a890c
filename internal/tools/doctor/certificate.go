package doctor

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"portico.dev/internal/apiservice"
	"portico.dev/internal/pki"
)

// rootsConfigMap is the ConfigMap in every namespace with the authority of the API server's serving certificate. Some
// clusters use that authority for the certificates of extension servers too.
const rootsConfigMap = "kube-root-ca.crt"

// strangeAuthority handles a chain that does not verify against the bundle. It reports the issuer, the authorities
// that the APIService trusts, and the location of the right bundle if that can be found.
func (x *exam) strangeAuthority(ctx context.Context, chain []*x509.Certificate, err error) (string, []string) {
	var unknownAuthority x509.UnknownAuthorityError
	if !errors.As(err, &unknownAuthority) {
		return "the serving certificate does not verify: " + err.Error(), x.renew()
	}
	trusted := "the APIService has no caBundle, and the authorities of this machine did not sign it either"
	if certs, err := pki.ParseBundle(x.spec.CABundle); err == nil {
		var names []string
		for _, c := range certs {
			names = append(names, fmt.Sprintf("%q", nameOf(c)))
		}
		trusted = "caBundle holds " + strings.Join(names, ", ")
	}
	return fmt.Sprintf("the serving certificate is signed by %s; %s", issuerOf(chain), trusted), x.otherAuthority(ctx, chain)
}

// otherAuthority returns the commands to set the bundle. chain is nil if this machine cannot see it.
func (x *exam) otherAuthority(ctx context.Context, chain []*x509.Certificate) []string {
	ns := x.object.Spec.Service.Namespace
	var roots corev1.ConfigMap
	if len(chain) > 0 && x.api.get(ctx, namespacePath(ns)+"/configmaps/"+rootsConfigMap, &roots) == nil {
		data := roots.Data["ca.crt"]
		if bundle, err := pki.StaticBundle([]byte(data)); err == nil {
			if _, err := chain[0].Verify(x509.VerifyOptions{Roots: bundle.Pool()}); err == nil {
				return []string{"# the cluster's own authority signed it:",
					x.setBundleFrom(x.inNamespace("get", "configmap", rootsConfigMap, "-o", `jsonpath={.data.ca\.crt}`) + " | base64")}
			}
		}
	}
	about := "# ca.crt is the certificate of the authority that signs the serving certificate:"
	if len(chain) > 0 {
		about = fmt.Sprintf("# ca.crt is the certificate of %s:", issuerOf(chain))
	}
	return append([]string{about, x.setBundle("ca.crt")}, x.injectBundle()...)
}

// otherName returns the fix for a certificate with other names. The APIService may refer to the wrong Service.
func (x *exam) otherName(ctx context.Context, leaf *x509.Certificate) []string {
	var fix []string
	if leaf != nil {
		for _, name := range leaf.DNSNames {
			parts := strings.Split(name, ".")
			if len(parts) != 3 || parts[2] != "svc" {
				continue
			}
			var service corev1.Service
			if x.api.get(ctx, namespacePath(parts[1])+"/services/"+url.PathEscape(parts[0]), &service) == nil {
				fix = append(fix, fmt.Sprintf("# if the APIService was meant for Service %s in %s:", parts[0], parts[1]),
					x.patchAPIService(fields{"service": fields{"namespace": parts[1], "name": parts[0]}}))
			}
		}
	}
	return append(fix, append([]string{fmt.Sprintf("# issue a certificate with the DNS name %s, and have the server read it:", x.spec.ServerName)}, x.restart())...)
}

// renew returns the fix for a certificate that has expired or is not yet valid.
func (x *exam) renew() []string {
	return []string{"# renew the certificate (servers that make their own do it at their start):", x.restart()}
}

// restart returns a command that restarts the extension server.
func (x *exam) restart() string {
	if pods := x.pods(); len(pods) > 0 {
		return x.inNamespace("delete", "pod", pods[0])
	}
	if host := x.service.Spec.ExternalName; host != "" {
		return "# start the extension server at " + apiservice.SingleLine(host) + " anew"
	}
	if len(x.service.Spec.Selector) == 0 {
		return x.inNamespace("get", "endpointslices", "-l", discoveryv1.LabelServiceName+"="+x.service.Name) +
			" # says where it runs; start it anew there"
	}
	return x.inNamespace("rollout", "restart", "deployment", x.service.Name)
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func nameOf(c *x509.Certificate) string {
	if c.Subject.CommonName != "" {
		return c.Subject.CommonName
	}
	return c.Subject.String()
}

// issuerOf returns the issuer of the last certificate in the chain that a server presented.
func issuerOf(chain []*x509.Certificate) string {
	last := chain[len(chain)-1]
	name := last.Issuer.CommonName
	if name == "" {
		name = last.Issuer.String()
	}
	if len(chain) == 1 && string(last.RawIssuer) == string(last.RawSubject) {
		return fmt.Sprintf("itself (%q)", name)
	}
	return fmt.Sprintf("%q", name)
}

// namesIn returns the names that a certificate is valid for. The common name does not count. It is shown because it
// is a frequent cause of confusion.
func namesIn(leaf *x509.Certificate) string {
	names := append([]string(nil), leaf.DNSNames...)
	for _, ip := range leaf.IPAddresses {
		names = append(names, ip.String())
	}
	if len(names) == 0 {
		return fmt.Sprintf("no name (its common name %q does not count)", leaf.Subject.CommonName)
	}
	return strings.Join(names, ", ")
}

// subjectsOf decodes DER subjects.
func subjectsOf(raw [][]byte) []string {
	var out []string
	for _, der := range raw {
		var sequence pkix.RDNSequence
		if _, err := asn1.Unmarshal(der, &sequence); err != nil {
			continue
		}
		var name pkix.Name
		name.FillFromRDNSequence(&sequence)
		if name.CommonName != "" {
			out = append(out, fmt.Sprintf("%q", name.CommonName))
		} else {
			out = append(out, fmt.Sprintf("%q", name.String()))
		}
	}
	return out
}
