package adoption

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico.dev/internal/pki"
)

var gateway = Service{Namespace: "portico-gateway", Name: "portico-gateway", Port: 443}

func authority(t *testing.T, name string) []byte {
	t.Helper()
	a, err := pki.NewAuthority(name)
	if err != nil {
		t.Fatal(err)
	}
	return a.PEM()
}

// metricsServer is an APIService as metrics-server's manifest has it, or one with a caBundle.
func metricsServer(port int32, caBundle []byte) *apiregistrationv1.APIService {
	return &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: "v1beta1.metrics.k8s.io", Annotations: map[string]string{"mine": "kept"}, Labels: map[string]string{"k8s-app": "metrics-server"}},
		Spec: apiregistrationv1.APIServiceSpec{
			Group: "metrics.k8s.io", Version: "v1beta1", GroupPriorityMinimum: 100, VersionPriority: 100,
			Service:  &apiregistrationv1.ServiceReference{Namespace: "kube-system", Name: "metrics-server", Port: &port},
			CABundle: caBundle, InsecureSkipTLSVerify: caBundle == nil,
		},
		Status: apiregistrationv1.APIServiceStatus{Conditions: []apiregistrationv1.APIServiceCondition{{Type: apiregistrationv1.Available, Status: apiregistrationv1.ConditionTrue}}},
	}
}

func TestReleaseRestoresTheOriginalAPIService(t *testing.T) {
	ours := authority(t, "gateway")
	for name, before := range map[string]*apiregistrationv1.APIService{
		"without verification": metricsServer(443, nil),
		"with a caBundle":      metricsServer(6443, authority(t, "server")),
	} {
		t.Run(name, func(t *testing.T) {
			o := before.DeepCopy()
			if err := gateway.Prepare(o); err != nil {
				t.Fatal(err)
			}
			if !equality.Semantic.DeepEqual(o.Spec, before.Spec) || !Adopted(o) || gateway.Fronts(o) {
				t.Fatalf("APIService after Prepare = %+v, want the original spec and the annotation", o)
			}
			if err := gateway.Adopt(o, ours); err != nil {
				t.Fatal(err)
			}
			if !gateway.Fronts(o) || string(o.Spec.CABundle) != string(ours) || o.Spec.InsecureSkipTLSVerify {
				t.Fatalf("spec after Adopt = %+v, want the gateway and its CA", o.Spec)
			}
			original, err := gateway.OriginalOf(o)
			if err != nil || original.Service != ServiceOf(before.Spec.Service) || string(original.CABundle) != string(before.Spec.CABundle) || original.InsecureSkipTLSVerify != before.Spec.InsecureSkipTLSVerify {
				t.Fatalf("OriginalOf = %+v, %v; want the original Service and CA", original, err)
			}
			if err := gateway.Prepare(o); err != nil {
				t.Fatalf("second Prepare failed: %v, want no error", err)
			}
			o.Status.Conditions = append(o.Status.Conditions, apiregistrationv1.APIServiceCondition{Type: BackendAvailable}, apiregistrationv1.APIServiceCondition{Type: FrontProxyTrusted}, apiregistrationv1.APIServiceCondition{Type: "TLSVerified"})
			released, err := Release(o)
			if err != nil || !released || !equality.Semantic.DeepEqual(o, before) {
				t.Fatalf("Release = %t, %v\ngot  %+v\nwant %+v", released, err, o, before)
			}
			if released, err := Release(o); err != nil || released {
				t.Fatalf("second Release = %t, %v; want no change", released, err)
			}
		})
	}
}

// A client that writes spec.caBundle of an adopted APIService sets the CA of its server, as without a gateway.
func TestForeignCABundleBecomesTheServersCA(t *testing.T) {
	ours, former, next := authority(t, gateway.ServingAuthorityName()), authority(t, gateway.ServingAuthorityName()), authority(t, "server")
	for name, tt := range map[string]struct {
		insecure      bool
		written       []byte
		wantsOriginal []byte
	}{
		"none":                            {written: nil, wantsOriginal: []byte("before")},
		"a former one of the gateway":     {written: former, wantsOriginal: []byte("before")},
		"both of the gateway":             {written: append(slices.Clone(former), ours...), wantsOriginal: []byte("before")},
		"one that is no certificate":      {written: []byte("nothing"), wantsOriginal: []byte("before")},
		"of the server":                   {written: next, wantsOriginal: next},
		"of a server that was not proved": {insecure: true, written: next, wantsOriginal: next},
	} {
		t.Run(name, func(t *testing.T) {
			before := authority(t, "before")
			if tt.insecure {
				before = nil
			}
			o := metricsServer(443, before)
			if err := errors.Join(gateway.Prepare(o), gateway.Adopt(o, ours)); err != nil {
				t.Fatal(err)
			}
			if gateway.KeepBundle(o, ours) {
				t.Error("KeepBundle of an unchanged APIService = true, want false")
			}
			o.Spec.CABundle = tt.written
			want := tt.wantsOriginal
			if string(want) == "before" {
				want = before
			}
			changed := gateway.KeepBundle(o, ours)
			original, err := gateway.OriginalOf(o)
			if !changed || err != nil || string(o.Spec.CABundle) != string(ours) || string(original.CABundle) != string(want) || original.InsecureSkipTLSVerify {
				t.Errorf("KeepBundle = %t, %v, original CA %q; want a change and %q", changed, err, original.CABundle, want)
			}
		})
	}
	direct := metricsServer(443, next)
	if gateway.KeepBundle(direct, ours) {
		t.Error("KeepBundle of an APIService that is not adopted = true, want false")
	}
}

func TestIneligibleAPIServicesAreNotAdopted(t *testing.T) {
	local := metricsServer(443, nil)
	local.Spec.Service = nil
	managed := metricsServer(443, nil)
	managed.Labels["kube-aggregator.kubernetes.io/automanaged"] = "true"
	injected := metricsServer(443, authority(t, "server"))
	injected.Annotations["cert-manager.io/inject-ca-from"] = "ns/cert"
	loop := metricsServer(443, nil)
	loop.Spec.Service = Service{Namespace: gateway.Namespace, Name: gateway.Name, Port: 8443}.Reference()
	byHand := metricsServer(443, nil)
	byHand.Spec.Service = gateway.Reference()
	for name, tt := range map[string]struct {
		o    *apiregistrationv1.APIService
		want string
	}{
		"a local one":                             {local, "the API server serves it itself"},
		"one that is managed":                     {managed, "manages it"},
		"one whose caBundle another program sets": {injected, "cert-manager.io/inject-ca-from"},
		"the gateway's own, at another port":      {loop, "leads back to the gateway"},
		"one that leads here and says not whence": {byHand, "has no annotation"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := gateway.Prepare(tt.o); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Prepare error = %v, want %q", err, tt.want)
			}
		})
	}
}

func TestHandWrittenAnnotationsAreValidated(t *testing.T) {
	for text, want := range map[string]string{
		"kube-system/metrics-server":       "kube-system/metrics-server:443",
		" kube-system/metrics-server:8443": "kube-system/metrics-server:8443",
		"metrics-server":                   "",
		"kube-system/metrics-server:0":     "",
		"kube-system/metrics-server:65536": "",
		"kube-system/metrics-server:https": "",
		"kube-system/":                     "",
		"../x/y":                           "",
		"portico-gateway/portico-gateway":  "",
	} {
		o := metricsServer(443, nil)
		o.Annotations[OriginalServiceAnnotation] = text
		original, err := gateway.OriginalOf(o)
		if got := original.Service.String(); (err == nil) != (want != "") || err == nil && got != want {
			t.Errorf("OriginalOf with the annotation %q = %s, %v; want %q", text, got, err, want)
		}
	}
	for annotation, value := range map[string]string{OriginalInsecureAnnotation: "yes", OriginalCABundleAnnotation: "!"} {
		o := metricsServer(443, nil)
		o.Annotations[OriginalServiceAnnotation], o.Annotations[annotation] = "a/b", value
		if _, err := OriginalOf(o); err == nil || !strings.Contains(err.Error(), annotation) {
			t.Errorf("OriginalOf with %s=%s: error = %v, want one that names the annotation", annotation, value, err)
		}
	}
}

func TestTrustIsAddedAndRemoved(t *testing.T) {
	cluster, own, next := authority(t, "kubernetes-front-proxy-ca"), authority(t, gateway.FrontProxyAuthorityName()), authority(t, gateway.FrontProxyAuthorityName())
	before := map[string]string{
		proxyCAKey: string(cluster), allowedNamesKey: `["front-proxy-client"]`, "client-ca-file": "of others", "requestheader-username-headers": `["X-Remote-User"]`,
	}
	published, err := gateway.Publish(before, own)
	if err != nil {
		t.Fatal(err)
	}
	if published[proxyCAKey] != string(cluster)+string(own) || published[allowedNamesKey] != `["front-proxy-client","portico-gateway.portico-gateway.svc"]` || published["client-ca-file"] != "of others" {
		t.Fatalf("Publish = %q, want both CAs, both names and the other key unchanged", published)
	}
	again, err := gateway.Publish(published, own)
	if err != nil || !equal(again, published) {
		t.Errorf("second Publish = %q, %v; want no change", again, err)
	}
	both, err := gateway.Publish(published, append(append([]byte{}, own...), next...))
	if err != nil || both[proxyCAKey] != string(cluster)+string(own)+string(next) {
		t.Errorf("Publish with the next authority = %q, %v; want all three CAs", both[proxyCAKey], err)
	}
	rotated, err := gateway.Publish(both, next)
	if err != nil || rotated[proxyCAKey] != string(cluster)+string(next) {
		t.Errorf("Publish without the previous authority = %q, %v; want the cluster's and the next CA", rotated[proxyCAKey], err)
	}
	withdrawn, err := gateway.Withdraw(both)
	if err != nil || !equal(withdrawn, before) {
		t.Errorf("Withdraw = %q, %v\nwant %q", withdrawn, err, before)
	}
	other := Service{Namespace: "elsewhere", Name: "portico-gateway", Port: 443}
	if kept, err := other.Withdraw(both); err != nil || !equal(kept, both) {
		t.Errorf("Withdraw of another gateway = %q, %v; want no change", kept, err)
	}
}

func TestG8InvalidTrustIsNotWritten(t *testing.T) {
	cluster, own := string(authority(t, "ca")), authority(t, gateway.FrontProxyAuthorityName())
	for _, names := range []string{"", "[]"} {
		data := map[string]string{proxyCAKey: cluster, allowedNamesKey: names}
		got, err := gateway.Publish(data, own)
		if err != nil || got[allowedNamesKey] != names {
			t.Errorf("allowed names after Publish with %q = %q, %v; want no change, since a list would exclude the API server",
				names, got[allowedNamesKey], err)
		}
	}
	for name, data := range map[string]map[string]string{
		"no front proxy":      {},
		"a damaged bundle":    {proxyCAKey: "garbage"},
		"a damaged list":      {proxyCAKey: cluster, allowedNamesKey: `"x"`},
		"nobody but us":       {proxyCAKey: string(own)},
		"no name but our own": {proxyCAKey: cluster, allowedNamesKey: `["` + gateway.FrontProxyName() + `"]`},
	} {
		if got, err := gateway.Withdraw(data); err == nil {
			t.Errorf("Withdraw with %s = %q, want an error", name, got)
		}
	}
	if _, err := gateway.Publish(map[string]string{proxyCAKey: cluster}, nil); err == nil {
		t.Error("Publish without an authority returned no error, want one")
	}
}

func equal(a, b map[string]string) bool {
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	return string(x) == string(y)
}
