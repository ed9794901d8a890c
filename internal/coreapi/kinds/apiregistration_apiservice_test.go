package kinds_test

import (
	"context"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	internal "k8s.io/kube-aggregator/pkg/apis/apiregistration"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	incumbent "k8s.io/kube-aggregator/pkg/apis/apiregistration/validation"
	"k8s.io/utils/ptr"

	"portico.dev/internal/coreapi/kinds/kindtest"
	"portico.dev/internal/pki"
)

func remote(change func(*apiregistrationv1.APIService)) *apiregistrationv1.APIService {
	a := &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: "v1.example.com"},
		Spec: apiregistrationv1.APIServiceSpec{
			Group: "example.com", Version: "v1", GroupPriorityMinimum: 1000, VersionPriority: 10,
			Service: &apiregistrationv1.ServiceReference{Namespace: "ns", Name: "s", Port: ptr.To[int32](443)},
		},
	}
	change(a)
	return a
}

// kube-aggregator's validation must give the same result for every case.
func TestAPIServices(t *testing.T) {
	local := func(change func(*apiregistrationv1.APIService)) *apiregistrationv1.APIService {
		return remote(func(a *apiregistrationv1.APIService) { a.Spec.Service = nil; change(a) })
	}
	for _, c := range []struct {
		situation string
		obj       *apiregistrationv1.APIService
		want      []string
	}{
		{"the highest priorities, which the text denies", remote(func(a *apiregistrationv1.APIService) {
			a.Spec.GroupPriorityMinimum, a.Spec.VersionPriority = 20000, 1000
		}), nil},
		{"a name that is not version.group", remote(func(a *apiregistrationv1.APIService) { a.Name = "v1.example.org" }),
			[]string{"metadata.name: Invalid value: \"v1.example.org\": must be `spec.version+\".\"+spec.group`: \"v1.example.com\""}},
		{"a name that cannot be in a URL", remote(func(a *apiregistrationv1.APIService) { a.Name = "v1/example" }),
			[]string{`metadata.name: Invalid value: "v1/example": may not contain '/'`}},
		{"no group for a version other than v1", remote(func(a *apiregistrationv1.APIService) {
			a.Name, a.Spec.Group, a.Spec.Version = "v2.", "", "v2"
		}), []string{"spec.group: Required value: only v1 may have an empty group and it better be legacy kube"}},
		{"a group that is no domain", remote(func(a *apiregistrationv1.APIService) {
			a.Name, a.Spec.Group = "v1.Example_com", "Example_com"
		}), []string{`spec.group: Invalid value: "Example_com": a lowercase RFC 1123 subdomain...`}},
		{"a version that begins with a digit", remote(func(a *apiregistrationv1.APIService) {
			a.Name, a.Spec.Version = "1.example.com", "1"
		}), []string{`spec.version: Invalid value: "1": a DNS-1035 label...`}},
		{"no priorities", remote(func(a *apiregistrationv1.APIService) {
			a.Spec.GroupPriorityMinimum, a.Spec.VersionPriority = 0, 0
		}), []string{"spec.groupPriorityMinimum: Invalid value: 0: must be positive and less than 20000",
			"spec.versionPriority: Invalid value: 0: must be positive and less than 1000"}},
		{"priorities out of reach", remote(func(a *apiregistrationv1.APIService) {
			a.Spec.GroupPriorityMinimum, a.Spec.VersionPriority = 20001, 1001
		}), []string{"spec.groupPriorityMinimum: Invalid value: 20001: must be positive and less than 20000",
			"spec.versionPriority: Invalid value: 1001: must be positive and less than 1000"}},
		{"a service without a name, a namespace and a port", remote(func(a *apiregistrationv1.APIService) {
			a.Spec.Service = &apiregistrationv1.ServiceReference{}
		}), []string{"spec.service.name: Required value", "spec.service.namespace: Required value",
			"spec.service.port: Invalid value: 0: port is not valid: must be between 1 and 65535, inclusive"}},
		{"a CA that is then not used", remote(func(a *apiregistrationv1.APIService) {
			a.Spec.CABundle, a.Spec.InsecureSkipTLSVerify = []byte("ca"), true
		}), []string{"spec.insecureSkipTLSVerify: Invalid value: true: may not be true if caBundle is present"}},
		{"a CA that is no certificate", remote(func(a *apiregistrationv1.APIService) { a.Spec.CABundle = []byte("junk") }), nil},
		{"a local API with TLS settings", local(func(a *apiregistrationv1.APIService) {
			a.Spec.CABundle, a.Spec.InsecureSkipTLSVerify = []byte("ca"), true
		}), []string{`spec.caBundle: Invalid value: "2 bytes": local APIServices may not have a caBundle`,
			"spec.insecureSkipTLSVerify: Invalid value: true: local APIServices may not have insecureSkipTLSVerify"}},
	} {
		t.Run(c.situation, func(t *testing.T) {
			kindtest.Refused(t, kindtest.CreateErrors(c.obj), c.want...)
			kindtest.Refused(t, incumbent.ValidateAPIService(context.Background(), toInternal(t, c.obj)), c.want...)
			stored := remote(func(a *apiregistrationv1.APIService) { a.Name, a.ResourceVersion = c.obj.Name, "1" })
			c.obj.ResourceVersion = "1"
			if updated := kindtest.UpdateErrors(c.obj, stored); len(updated) != len(c.want) {
				t.Errorf("update returned the errors %v, want %d as for a create", updated, len(c.want))
			}
		})
	}
}

func toInternal(t *testing.T, a *apiregistrationv1.APIService) *internal.APIService {
	t.Helper()
	out := &internal.APIService{}
	if err := apiregistrationv1.Convert_v1_APIService_To_apiregistration_APIService(a, out, nil); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestAPIServiceConditionStatusMustBeKnown(t *testing.T) {
	stored := remote(func(a *apiregistrationv1.APIService) { a.ResourceVersion = "1" })
	next := stored.DeepCopy()
	next.Status.Conditions = []apiregistrationv1.APIServiceCondition{
		{Type: apiregistrationv1.Available, Status: apiregistrationv1.ConditionUnknown}, {Type: "Happy", Status: "Maybe"}}
	kindtest.Refused(t, kindtest.StatusErrors(next, stored),
		`status.conditions[1].status: Unsupported value: "Maybe": supported values: "True", "False", "Unknown"`)
}

func TestWarnings(t *testing.T) {
	authority, err := pki.NewAuthority("warnings")
	if err != nil {
		t.Fatal(err)
	}
	leaf, _, err := authority.Issue(pki.Leaf{CommonName: "x", Server: true, TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		situation string
		change    func(*apiregistrationv1.APIService)
		want      []string // the beginning of each warning
	}{
		{"a CA that can be read", func(a *apiregistrationv1.APIService) { a.Spec.CABundle = authority.PEM() }, nil},
		{"two certificates", func(a *apiregistrationv1.APIService) { a.Spec.CABundle = append(authority.PEM(), leaf...) }, nil},
		{"base64 of base64", func(a *apiregistrationv1.APIService) { a.Spec.CABundle = []byte("LS0tLS1CRUdJTi") },
			[]string{"spec.caBundle: no PEM certificate found"}},
		{"the CA's key in place of its certificate", func(a *apiregistrationv1.APIService) {
			a.Spec.CABundle = []byte("-----BEGIN EC PRIVATE KEY-----\nMHc=\n-----END EC PRIVATE KEY-----\n")
		}, []string{`spec.caBundle: the bundle holds a "EC PRIVATE KEY" block`}},
		{"unchecked TLS", func(a *apiregistrationv1.APIService) { a.Spec.InsecureSkipTLSVerify = true },
			[]string{"spec.insecureSkipTLSVerify: whoever can answer"}},
		{"as high as apps", func(a *apiregistrationv1.APIService) { a.Spec.GroupPriorityMinimum = 17800 }, nil},
		{"before the built-in groups", func(a *apiregistrationv1.APIService) { a.Spec.GroupPriorityMinimum = 18001 },
			[]string{"spec.groupPriorityMinimum: 18001 puts this group before the built-in ones"}},
		{"core/v1 itself, which is local", func(a *apiregistrationv1.APIService) {
			a.Spec.Service, a.Spec.GroupPriorityMinimum = nil, 18000
		}, nil},
	} {
		t.Run(c.situation, func(t *testing.T) {
			got := kindtest.Warnings(remote(c.change))
			if len(got) != len(c.want) {
				t.Fatalf("Warnings = %q, want %d", got, len(c.want))
			}
			for i := range got {
				if !strings.HasPrefix(got[i], c.want[i]) {
					t.Errorf("warning = %q, want the prefix %q", got[i], c.want[i])
				}
				if strings.Contains(got[i], "\n") {
					t.Errorf("the warning %q has several lines, want one line, as in a header", got[i])
				}
			}
			if errs := kindtest.CreateErrors(remote(c.change)); len(errs) > 0 {
				t.Errorf("create with the warning returned the errors %v, want none", errs)
			}
		})
	}
}
