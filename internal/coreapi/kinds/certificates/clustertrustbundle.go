package certificates

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico.dev/internal/coreapi/columns"
	"portico.dev/internal/coreapi/registry"
	"portico.dev/internal/coreapi/selectable"
	"portico.dev/internal/coreapi/validate"
)

func clusterTrustBundleResource() registry.Resource {
	return registry.Resource{
		Name: "clustertrustbundles", Singular: "clustertrustbundle", ClusterScoped: true,
		Object: &certificatesv1.ClusterTrustBundle{}, List: &certificatesv1.ClusterTrustBundleList{},
		Samples: []string{
			"metadata: {name: a}\n" +
				`spec: {trustBundle: "` + sampleAuthority + `"}`,
		},
		Rules:   validate.OnUpdate(validateClusterTrustBundle, validateClusterTrustBundleUpdate),
		Columns: clusterTrustBundleColumns,
		Fields:  clusterTrustBundleFields(),
	}
}

func clusterTrustBundleColumns() columns.Printer {
	return columns.Show(func(b *certificatesv1.ClusterTrustBundle, _ time.Time) []any {
		return []any{b.Name, columns.OrElse(b.Spec.SignerName, columns.None)}
	}, columns.Name(), columns.Text("SignerName", certificatesv1.ClusterTrustBundleSpec{}.SwaggerDoc()["signerName"]))
}

func clusterTrustBundleFields() *selectable.Fields {
	return selectable.Of(selectable.Own("spec.signerName"), func(set fields.Set, o *certificatesv1.ClusterTrustBundle) {
		set["spec.signerName"] = o.Spec.SignerName
	})
}

// maxTrustBundleBytes is the maximum size of a bundle of trust anchors.
const maxTrustBundleBytes = 1 << 20

// omitted replaces values that are too long for an error message.
const omitted = "<value omitted>"

func validateClusterTrustBundle(b *certificatesv1.ClusterTrustBundle) field.ErrorList {
	return append(trustBundleRules(b), trustAnchors(b.Spec.TrustBundle, field.NewPath("spec", "trustBundle"))...)
}

// validateClusterTrustBundleUpdate skips unchanged anchors: the set of certificates that Go can parse may change between
// releases.
func validateClusterTrustBundleUpdate(b, old *certificatesv1.ClusterTrustBundle) field.ErrorList {
	errs := trustBundleRules(b)
	if b.Spec.TrustBundle != old.Spec.TrustBundle {
		errs = append(errs, trustAnchors(b.Spec.TrustBundle, field.NewPath("spec", "trustBundle"))...)
	}
	return append(errs, validate.Immutable(b.Spec.SignerName, old.Spec.SignerName, field.NewPath("spec", "signerName"))...)
}

func trustBundleRules(b *certificatesv1.ClusterTrustBundle) field.ErrorList {
	signer := b.Spec.SignerName
	errs := validate.ObjectMeta(&b.ObjectMeta, validate.ClusterScoped, func(name string, prefix bool) []string {
		return trustBundleName(name, signer, prefix)
	})
	if signer != "" {
		errs = append(errs, validate.SignerName(signer, field.NewPath("spec", "signerName"))...)
	}
	return errs
}

// trustBundleName reserves names with the prefix of a signer for bundles of that signer.
func trustBundleName(name, signer string, prefix bool) []string {
	if signer == "" {
		if strings.Contains(name, ":") {
			return []string{`ClusterTrustBundle without signer name must not have ":" in its name`}
		}
		return validation.NameIsDNSSubdomain(name, prefix)
	}
	start := strings.ReplaceAll(signer, "/", ":") + ":"
	rest, ok := strings.CutPrefix(name, start)
	if !ok {
		return []string{fmt.Sprintf("ClusterTrustBundle for signerName %s must be named with prefix %s", signer, start)}
	}
	return validation.NameIsDNSSubdomain(rest, prefix)
}

// trustAnchors requires unique CA certificates and nothing else.
func trustAnchors(text string, path *field.Path) field.ErrorList {
	if len(text) > maxTrustBundleBytes {
		return field.ErrorList{field.TooLong(path, "", maxTrustBundleBytes)}
	}
	var errs field.ErrorList
	places := map[string][]int{}
	rest := []byte(text)
	for i := 0; ; i++ {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if fault := trustAnchorFault(block); fault != "" {
			errs = append(errs, field.Invalid(path, omitted, fmt.Sprintf("entry %d %s", i, fault)))
			continue
		}
		places[string(block.Bytes)] = append(places[string(block.Bytes)], i)
	}
	switch {
	case len(errs) > 0:
		return errs
	case len(places) == 0:
		return field.ErrorList{field.Invalid(path, omitted, "at least one trust anchor must be provided")}
	}
	for _, key := range slices.Sorted(maps.Keys(places)) {
		if len(places[key]) > 1 {
			errs = append(errs, field.Invalid(path, omitted, fmt.Sprintf("duplicate trust anchor (indices %v)", places[key])))
		}
	}
	return errs
}

func trustAnchorFault(block *pem.Block) string {
	if block.Type != "CERTIFICATE" {
		return "has bad block type: " + block.Type
	}
	if len(block.Headers) > 0 {
		return "has PEM block headers"
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	switch {
	case err != nil:
		return "does not parse as X.509"
	case !certificate.IsCA:
		return "does not have the CA bit set"
	case !certificate.BasicConstraintsValid:
		return "has invalid basic constraints"
	}
	return ""
}

// sampleAuthority is a self-signed certificate until 2120, in PEM with line feeds escaped for YAML.
const sampleAuthority = "" +
	"-----BEGIN CERTIFICATE-----\\nMIIBWzCCAQGgAwIBAgIBATAKBggqhkjOPQQDAjAUMRIwEAYDVQQDEwlzZW1hbnRp\\nY3MwIBc" +
	"NMjAwMTAxMDAwMDAwWhgPMjEyMDAxMDEwMDAwMDBaMBQxEjAQBgNVBAMT\\nCXNlbWFudGljczBZMBMGByqGSM49AgEGCCqGSM49AwEH" +
	"A0IABAwE2DgNaUeVG2I/\\nOS0g7KQ9BR8uogEVP71eKvZ1Ur2dZJ8Sb/qrUEzadpp7znNKN1MsrTwWbywrU2t6\\ndGNW0r2jQjBAMA" +
	"4GA1UdDwEB/wQEAwICBDAPBgNVHRMBAf8EBTADAQH/MB0GA1Ud\\nDgQWBBTGGBtpcV5EOFYX3TamFmyTtSaC0DAKBggqhkjOPQQDAgN" +
	"IADBFAiEAul/P\\nGSxTx4dABmeETCeaqsIU3p7SqxQEfzqPweOOPXACIC5lArIpGJrM5AZNs0GXxp8Q\\nbeyZ4BRbMMzynUkeXvq6" +
	"\\n-----END CERTIFICATE-----\\n"
