package oidc

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/install"
	"k8s.io/apiserver/pkg/apis/apiserver/validation"
	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"
	oidclib "k8s.io/apiserver/plugin/pkg/authenticator/token/oidc"

	"portico.dev/internal/pki"
)

// maxConfigBytes is the maximum size of the configuration file.
const maxConfigBytes = 1 << 20

// Flags are kube-apiserver's --oidc-* flags, which configure one issuer.
type Flags struct {
	// IssuerURL is the iss claim of its tokens, an https URL. Empty disables the issuer.
	IssuerURL string
	// ClientID is the required audience of tokens.
	ClientID string
	// CAFile contains the CAs of the issuer's server. Empty uses the system roots. It is reloaded when it changes.
	CAFile string
	// UsernameClaim is the claim that contains the user name. Default sub.
	UsernameClaim string
	// UsernamePrefix is prepended to the user name. If empty, it is the issuer's URL and "#", unless the claim is
	// email. "-" disables the prefix.
	UsernamePrefix string
	// GroupsClaim is the claim that contains the groups. If empty, no groups are read.
	GroupsClaim string
	// GroupsPrefix is prepended to each group.
	GroupsPrefix string
	// RequiredClaims are claims that a token must contain with the given values.
	RequiredClaims map[string]string
	// SigningAlgs are the accepted algorithms. Default RS256.
	SigningAlgs []string
}

// Validate returns errors for inconsistent flags, each with the next step.
func (f Flags) Validate() error {
	var errs []error
	switch {
	case (f.IssuerURL == "") != (f.ClientID == ""):
		errs = append(errs, errors.New("--oidc-issuer-url and --oidc-client-id are only of use together"))
	case f.IssuerURL == "" && (f.CAFile != "" || f.GroupsClaim != "" || len(f.RequiredClaims) > 0):
		errs = append(errs, errors.New("--oidc flags are only of use together with --oidc-issuer-url"))
	}
	for _, alg := range f.SigningAlgs {
		if valid := oidclib.AllValidSigningAlgorithms(); !slices.Contains(valid, alg) {
			errs = append(errs, fmt.Errorf("--oidc-signing-algs: %q is none of %q", alg, valid))
		}
	}
	return errors.Join(errs...)
}

// configuration returns the equivalent of the flags as an AuthenticationConfiguration.
func (f Flags) configuration() (*apiserver.AuthenticationConfiguration, error) {
	c := &apiserver.AuthenticationConfiguration{}
	if f.IssuerURL == "" {
		return c, nil
	}
	jwt := apiserver.JWTAuthenticator{Issuer: apiserver.Issuer{URL: f.IssuerURL, Audiences: []string{f.ClientID}}}
	if f.CAFile != "" {
		data, err := os.ReadFile(f.CAFile)
		if err != nil {
			return nil, fmt.Errorf("--oidc-ca-file: %w", err)
		}
		jwt.Issuer.CertificateAuthority = string(data)
	}
	claim, prefix := f.UsernameClaim, f.UsernamePrefix
	claim = cmp.Or(claim, "sub")
	switch {
	case prefix == "-":
		prefix = ""
	case prefix == "" && claim != "email":
		prefix = f.IssuerURL + "#" // the same subject may exist at two issuers
	}
	jwt.ClaimMappings.Username = apiserver.PrefixedClaimOrExpression{Claim: claim, Prefix: &prefix}
	if f.GroupsClaim != "" {
		jwt.ClaimMappings.Groups = apiserver.PrefixedClaimOrExpression{Claim: f.GroupsClaim, Prefix: &f.GroupsPrefix}
	}
	for _, name := range slices.Sorted(maps.Keys(f.RequiredClaims)) {
		jwt.ClaimValidationRules = append(jwt.ClaimValidationRules, apiserver.ClaimValidationRule{Claim: name, RequiredValue: f.RequiredClaims[name]})
	}
	c.JWT = append(c.JWT, jwt)
	return c, nil
}

// readConfiguration reads an AuthenticationConfiguration of apiserver.config.k8s.io. Decoding is strict, so that a
// misspelled field is an error.
func readConfiguration(file string) (*apiserver.AuthenticationConfiguration, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("authentication configuration: %w", err)
	}
	if len(data) == 0 || len(data) > maxConfigBytes {
		return nil, fmt.Errorf("authentication configuration %s: has %d bytes; between 1 and %d are read", file, len(data), maxConfigBytes)
	}
	scheme := runtime.NewScheme()
	install.Install(scheme)
	object, err := runtime.Decode(serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDecoder(), data)
	if err != nil {
		return nil, fmt.Errorf("authentication configuration %s: %w", file, err)
	}
	c, ok := object.(*apiserver.AuthenticationConfiguration)
	if !ok {
		return nil, fmt.Errorf("authentication configuration %s: is a %T; expected an AuthenticationConfiguration of apiserver.config.k8s.io/v1", file, object)
	}
	return c, nil
}

// check returns upstream's validation errors. It also refuses an egress selector, and CA bundles for which
// pki.ParseBundle returns an error.
func check(compiler authenticationcel.Compiler, c *apiserver.AuthenticationConfiguration, disallowed []string) error {
	errs := []error{validation.ValidateAuthenticationConfiguration(compiler, c, disallowed).ToAggregate()}
	for i, jwt := range c.JWT {
		if jwt.Issuer.EgressSelectorType != "" {
			errs = append(errs, fmt.Errorf("jwt[%d].issuer.egressSelectorType: the egress selector is not used for issuers; remove it", i))
		}
		if ca := jwt.Issuer.CertificateAuthority; ca != "" {
			if _, err := pki.ParseBundle([]byte(ca)); err != nil {
				errs = append(errs, fmt.Errorf("jwt[%d].issuer.certificateAuthority: %w", i, err))
			}
		}
	}
	return errors.Join(errs...)
}
