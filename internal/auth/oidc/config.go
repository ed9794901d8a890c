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

// maxConfigBytes bounds the configuration file and a CA file.
const maxConfigBytes = 1 << 20

// Flags are kube-apiserver's --oidc-* flags: one issuer.
type Flags struct {
	// IssuerURL is the iss of its tokens, an https URL. Empty: no issuer.
	IssuerURL string
	// ClientID is the audience that tokens must be for.
	ClientID string
	// CAFile verifies the issuer's server. Empty: the system's authorities. It is reloaded when it changes.
	CAFile string
	// UsernameClaim is the claim that names the user. Default sub.
	UsernameClaim string
	// UsernamePrefix is put before the name. Empty: the issuer's URL and #, unless the claim is email. "-": nothing.
	UsernamePrefix string
	// GroupsClaim is the claim with the groups. Empty: none are read.
	GroupsClaim string
	// GroupsPrefix is put before each group.
	GroupsPrefix string
	// RequiredClaims must be in the token with these values.
	RequiredClaims map[string]string
	// SigningAlgs are the algorithms that are accepted. Default RS256.
	SigningAlgs []string
}

// Validate reports flags that cannot work together, each with what to do.
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

// configuration is the flags as the file would say it.
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
		prefix = f.IssuerURL + "#" // two issuers may both know a "1234"
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

// readConfiguration reads an AuthenticationConfiguration of apiserver.config.k8s.io, strictly: a field that is
// misspelt would otherwise be ignored.
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

// check reports everything that upstream would refuse, and CA bundles that are only partly parsed.
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
