package serviceaccount

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/golang-jwt/jwt/v5"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	"portico.dev/internal/auth/authn"
)

// claims are the claims of a token in Kubernetes' format.
type claims struct {
	Issuer     string        `json:"iss"`
	Subject    string        `json:"sub"`
	Audience   audience      `json:"aud"`
	ID         string        `json:"jti,omitempty"`
	Expires    authn.Seconds `json:"exp"`
	NotBefore  authn.Seconds `json:"nbf,omitempty"`
	IssuedAt   authn.Seconds `json:"iat,omitempty"`
	Kubernetes *kubernetes   `json:"kubernetes.io"`
}

// kubernetes is the private claim, with references to live objects.
type kubernetes struct {
	Namespace      string        `json:"namespace"`
	ServiceAccount ref           `json:"serviceaccount"`
	Pod            *ref          `json:"pod,omitempty"`
	Secret         *ref          `json:"secret,omitempty"`
	Node           *ref          `json:"node,omitempty"`
	WarnAfter      authn.Seconds `json:"warnafter,omitempty"`
}

type ref struct {
	Name string `json:"name"`
	UID  string `json:"uid"`
}

// audience is decoded from a string or a list of strings, and encoded as a list.
type audience []string

func (a *audience) UnmarshalJSON(data []byte) error {
	var one string
	if json.Unmarshal(data, &one) == nil {
		*a = audience{one}
		return nil
	}
	return json.Unmarshal(data, (*[]string)(a))
}

// The methods of jwt.Claims, used by the jwt package for validation.

func (c *claims) GetExpirationTime() (*jwt.NumericDate, error) { return numericDate(c.Expires), nil }
func (c *claims) GetIssuedAt() (*jwt.NumericDate, error)       { return numericDate(c.IssuedAt), nil }
func (c *claims) GetNotBefore() (*jwt.NumericDate, error)      { return numericDate(c.NotBefore), nil }
func (c *claims) GetIssuer() (string, error)                   { return c.Issuer, nil }
func (c *claims) GetSubject() (string, error)                  { return c.Subject, nil }
func (c *claims) GetAudience() (jwt.ClaimStrings, error)       { return jwt.ClaimStrings(c.Audience), nil }

// numericDate converts a time for the jwt package. It returns nil for zero.
func numericDate(s authn.Seconds) *jwt.NumericDate {
	if s == 0 {
		return nil
	}
	return jwt.NewNumericDate(s.Time())
}

// Validate is called by the jwt package after its own checks. The subject and the private claim must be consistent.
func (c *claims) Validate() error {
	k := c.Kubernetes
	switch {
	case k == nil:
		return errors.New("no kubernetes.io claim")
	case k.Namespace == "" || k.ServiceAccount.Name == "" || k.ServiceAccount.UID == "":
		return errors.New("the kubernetes.io claim does not name a service account")
	case c.Subject != serviceaccount.MakeUsername(k.Namespace, k.ServiceAccount.Name):
		return fmt.Errorf("the subject %q is not the service account of the kubernetes.io claim", c.Subject)
	}
	for _, r := range []*ref{k.Pod, k.Secret, k.Node} {
		if r != nil && (r.Name == "" || r.UID == "") {
			return errors.New("a bound object has no name or no uid")
		}
	}
	return nil
}

// intersect returns the members of wanted for which the token is valid.
func (a audience) intersect(wanted []string) []string {
	var both []string
	for _, w := range wanted {
		if slices.Contains(a, w) {
			both = append(both, w)
		}
	}
	return both
}

func (c *claims) user() user.Info {
	k := c.Kubernetes
	info := serviceaccount.ServiceAccountInfo{Namespace: k.Namespace, Name: k.ServiceAccount.Name, UID: k.ServiceAccount.UID}
	if k.Pod != nil {
		info.PodName, info.PodUID = k.Pod.Name, k.Pod.UID
	}
	if k.Node != nil {
		info.NodeName, info.NodeUID = k.Node.Name, k.Node.UID
	}
	info.CredentialID = c.credentialID()
	return info.UserInfo()
}

// credentialID returns the credential id, or "" for a token without an id.
func (c *claims) credentialID() string {
	if c.ID == "" {
		return ""
	}
	return "JTI=" + c.ID
}
