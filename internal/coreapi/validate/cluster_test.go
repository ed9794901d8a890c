package validate_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"portico.dev/internal/coreapi/kinds/certificates"
)

func TestNetworksAreRefused(t *testing.T) {
	ingress := func(spec string) *networkingv1.Ingress {
		return decode[networkingv1.Ingress](t, "metadata: {name: a, namespace: ns}\nspec: "+spec)
	}
	path := func(p string) *networkingv1.Ingress {
		return ingress("{rules: [{http: {paths: [" + p + "]}}]}")
	}
	const backend = "backend: {service: {name: s, port: {number: 80}}}"
	policy := func(rule string) *networkingv1.NetworkPolicy {
		return decode[networkingv1.NetworkPolicy](t, "metadata: {name: a, namespace: ns}\nspec: {podSelector: {}, ingress: ["+rule+"]}")
	}
	refuses(t, []create{
		{"an ingress to nowhere", ingress("{}"), []string{"spec: Invalid value: null: either `defaultBackend` or `rules` must be specified"}},
		{"a host that is an address", ingress("{rules: [{host: 10.0.0.1}]}"), []string{`spec.rules[0].host: Invalid value: "10.0.0.1": must be a DNS name, not an IP address`}},
		{"a star in the middle", ingress("{rules: [{host: a.*.com}]}"), []string{`spec.rules[0].host: Invalid value: "a.*.com": a wildcard DNS-1123 subdomain must start with...`}},
		{"a path of no type", path("{path: /a, " + backend + "}"), []string{"spec.rules[0].http.paths[0].pathType: Required value: pathType must be specified"}},
		{"a path with two readings", path("{path: /a/../b, pathType: Exact, " + backend + "}"), []string{`spec.rules[0].http.paths[0].path: Invalid value: "/a/../b": must not contain '/../'`}},
		{"an encoded slash", path("{path: /a%2fb, pathType: Prefix, " + backend + "}"), []string{`spec.rules[0].http.paths[0].path: Invalid value: "/a%2fb": must not contain '%2f'`}},
		{"a relative path", path("{path: a, pathType: ImplementationSpecific, " + backend + "}"), []string{`spec.rules[0].http.paths[0].path: Invalid value: "a": must be an absolute path`}},
		{"a type that does not exist", path("{path: a, pathType: Regex, " + backend + "}"), []string{`spec.rules[0].http.paths[0].pathType: Unsupported value: "Regex": supported values: "Exact", "ImplementationSpecific", "Prefix"`}},
		{"no port", path("{path: /, pathType: Prefix, backend: {service: {name: s}}}"), []string{"spec.rules[0].http.paths[0].backend: Required value: port name or number is required"}},
		{"two backends", path("{path: /, pathType: Prefix, backend: {service: {name: s}, resource: {kind: K, name: r}}}"), []string{`spec.rules[0].http.paths[0].backend: Invalid value: "": cannot set both resource and service backends`}},
		{"two classes", func() *networkingv1.Ingress {
			i := ingress("{ingressClassName: a, defaultBackend: {service: {name: s, port: {number: 1}}}}")
			i.Annotations = map[string]string{"kubernetes.io/ingress.class": "b"}
			return i
		}(), []string{"annotations.kubernetes.io/ingress.class: Invalid value: \"b\": must match `ingressClassName` when both are specified"}},
		{"parameters in a namespace that is not named", decode[networkingv1.IngressClass](t, "metadata: {name: a}\nspec: {controller: example.com/c, parameters: {kind: K, name: n, scope: Namespace}}"),
			[]string{"spec.parameters.namespace: Required value: `parameters.scope` is set to 'Namespace'"}},
		{"a peer that is nobody", policy("{from: [{}]}"), []string{"spec.ingress[0].from[0]: Required value: must specify a peer"}},
		{"a hole outside the block", policy("{from: [{ipBlock: {cidr: 10.0.0.0/8, except: [192.168.0.0/16]}}]}"), []string{`spec.ingress[0].from[0].ipBlock.except[0]: Invalid value: "192.168.0.0/16": must be a strict subset of ` + "`cidr`"}},
		{"a range without a start", policy("{ports: [{endPort: 10}]}"), []string{"spec.ingress[0].ports[0].endPort: Invalid value: 10: may not be specified when `port` is not specified"}},
		{"a range that ends before it starts", policy("{ports: [{port: 20, endPort: 10}]}"), []string{"spec.ingress[0].ports[0].endPort: Invalid value: 10: must be greater than or equal to `port`"}},
		{"an address that is spelt another way too", decode[networkingv1.IPAddress](t, "metadata: {name: 'FD00::1'}\nspec: {}"),
			[]string{`metadata.name: Invalid value: "FD00::1": must be in canonical form ("fd00::1")`, "spec.parentRef: Required value"}},
		{"two ranges of one family", decode[networkingv1.ServiceCIDR](t, "metadata: {name: a}\nspec: {cidrs: [10.0.0.0/24, 10.1.0.0/24]}"), []string{"spec.cidrs: Invalid value: ..."}},
	})
	changes(t, decode[networkingv1.ServiceCIDR](t, "metadata: {name: a}\nspec: {cidrs: [10.0.0.0/24]}"), map[string]struct {
		change func(*networkingv1.ServiceCIDR)
		want   []string
	}{
		"the other family too": {func(c *networkingv1.ServiceCIDR) { c.Spec.CIDRs = append(c.Spec.CIDRs, "fd00::/108") }, nil},
		"another range":        {func(c *networkingv1.ServiceCIDR) { c.Spec.CIDRs[0] = "10.1.0.0/24" }, []string{`spec.cidrs[0]: Invalid value: "10.1.0.0/24": field is immutable`}},
		"no range":             {func(c *networkingv1.ServiceCIDR) { c.Spec.CIDRs = nil }, []string{"spec.cidrs: Invalid value: ..."}},
	})
	old := policy("{from: [{ipBlock: {cidr: 010.0.0.0/8}}]}")
	changes(t, old, map[string]struct {
		change func(*networkingv1.NetworkPolicy)
		want   []string
	}{
		"a block of old spelling stays": {func(p *networkingv1.NetworkPolicy) { p.Spec.PodSelector.MatchLabels = map[string]string{"a": "b"} }, nil},
		"a new one of that spelling":    {func(p *networkingv1.NetworkPolicy) { p.Spec.Ingress[0].From[0].IPBlock.CIDR = "011.0.0.0/8" }, []string{"spec.ingress[0].from[0].ipBlock.cidr: Invalid value: ..."}},
	})
	lb := ingress("{defaultBackend: {service: {name: s, port: {number: 1}}}}")
	lb.ResourceVersion = "1"
	bad := lb.DeepCopy()
	bad.Status.LoadBalancer.Ingress = []networkingv1.IngressLoadBalancerIngress{{IP: "nowhere"}, {Hostname: "10.0.0.1"}}
	refused(t, statusErrors(bad, lb), "status.loadBalancer.ingress[0].ip: Invalid value: ...",
		`status.loadBalancer.ingress[1].hostname: Invalid value: "10.0.0.1": must be a DNS name, not an IP address`)
}

func TestQuotasAndLimitsAreRefused(t *testing.T) {
	quota := func(spec string) *corev1.ResourceQuota {
		return decode[corev1.ResourceQuota](t, "metadata: {name: a, namespace: ns}\nspec: "+spec)
	}
	limits := func(item string) *corev1.LimitRange {
		return decode[corev1.LimitRange](t, "metadata: {name: a, namespace: ns}\nspec: {limits: ["+item+"]}")
	}
	refuses(t, []create{
		{"a resource that nobody counts", quota("{hard: {bananas: 1}}"), []string{
			`spec.hard[bananas]: Invalid value: "bananas": must be a standard resource for quota`, `spec.hard[bananas]: Invalid value: "bananas": must be a standard resource type or fully qualified`}},
		{"half a pod", quota("{hard: {pods: 500m}}"), []string{`spec.hard[pods]: Invalid value: "500m": must be an integer`}},
		{"less than nothing", quota("{hard: {cpu: -1}}"), []string{`spec.hard[cpu]: Invalid value: "-1": must be greater than or equal to 0`}},
		{"services that make the best effort", quota("{hard: {services: 1}, scopes: [BestEffort]}"), []string{"spec.scopes: Invalid value: [\"BestEffort\"]: unsupported scope applied to resource"}},
		{"both kinds of effort", quota("{hard: {pods: 1}, scopes: [BestEffort, NotBestEffort]}"), []string{"spec.scopes: Invalid value: [\"BestEffort\",\"NotBestEffort\"]: conflicting scopes"}},
		{"a selector without values", quota("{hard: {pods: 1}, scopeSelector: {matchExpressions: [{scopeName: PriorityClass, operator: In}]}}"),
			[]string{"spec.scopeSelector.matchExpressions.values: Required value: must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"}},
		{"less at most than at least", limits("{type: Container, max: {cpu: 1}, min: {cpu: 2}}"), []string{
			`spec.limits[0].default[cpu]: Invalid value: "2": min value 2 is greater than default value 1`,
			`spec.limits[0].defaultRequest[cpu]: Invalid value: "1": min value 2 is greater than default request value 1`,
			`spec.limits[0].min[cpu]: Invalid value: "2": min value 2 is greater than max value 1`}},
		{"a default for a pod", limits("{type: Pod, default: {cpu: 1}}"), []string{"spec.limits[0].default: Forbidden: may not be specified when `type` is 'Pod'"}},
		{"a claim without a size", limits("{type: PersistentVolumeClaim}"), []string{"spec.limits[0].limits: Required value: either minimum or maximum storage value is required, but neither was provided"}},
		{"a container's services", limits("{type: Container, max: {services: 1}}"), []string{
			`spec.limits[0].default[services]: Invalid value: "services": must be a standard resource for containers`,
			`spec.limits[0].defaultRequest[services]: Invalid value: "services": must be a standard resource for containers`,
			`spec.limits[0].max[services]: Invalid value: "services": must be a standard resource for containers`}},
		{"a ratio that cannot be kept", limits("{type: Container, max: {cpu: 2}, min: {cpu: 1}, maxLimitRequestRatio: {cpu: 3}}"),
			[]string{`spec.limits[0].maxLimitRequestRatio[cpu]: Invalid value: "3": ratio 3 is greater than max/min = 2.000000`}},
		{"one type twice", limits("{type: Pod}, {type: Pod}"), []string{`spec.limits[1].type: Duplicate value: "Pod"`}},
		{"a type of nobody", limits("{type: Cup}"), []string{`spec.limits[0].type: Invalid value: "Cup": must be a standard limit type or fully qualified`}},
	})
	changes(t, quota("{hard: {pods: 1}, scopes: [BestEffort]}"), map[string]struct {
		change func(*corev1.ResourceQuota)
		want   []string
	}{
		"more of it":    {func(q *corev1.ResourceQuota) { q.Spec.Hard["pods"] = q.Spec.Hard["pods"].DeepCopy() }, nil},
		"another scope": {func(q *corev1.ResourceQuota) { q.Spec.Scopes = nil }, []string{"spec.scopes: Invalid value: ..."}},
	})
}

func TestClassesAreRefused(t *testing.T) {
	class := func(m string) *schedulingv1.PriorityClass { return decode[schedulingv1.PriorityClass](t, m) }
	refuses(t, []create{
		{"above the system", class("metadata: {name: a}\nvalue: 1000000001"), []string{"value: Forbidden: maximum allowed value of a user defined priority is 1000000000"}},
		{"in the system's name", class("metadata: {name: system-a}\nvalue: 1"), []string{
			"metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for system use only. error: system-a is not a known system priority class"}},
		{"the system's own, worth less", class("metadata: {name: system-cluster-critical}\nvalue: 1"), []string{
			"metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for system use only. error: value of system-cluster-critical PriorityClass must be 2000000000"}},
		{"a policy that does not exist", class("metadata: {name: a}\npreemptionPolicy: Always"), []string{`preemptionPolicy: Unsupported value: "Always": supported values: "Never", "PreemptLowerPriority"`}},
		{"a runtime without a handler", decode[nodev1.RuntimeClass](t, "metadata: {name: a}"), []string{"handler: Required value"}},
		{"a handler that is no label", decode[nodev1.RuntimeClass](t, "metadata: {name: a}\nhandler: a.b"), []string{`handler: Invalid value: "a.b": must not contain dots`}},
		{"one toleration twice", decode[nodev1.RuntimeClass](t, "metadata: {name: a}\nhandler: a\nscheduling: {tolerations: [{key: a, operator: Exists}, {key: a, operator: Exists}]}"),
			[]string{"scheduling.tolerations[1]: Duplicate value: ..."}},
	})
	changes(t, class("metadata: {name: a}\nvalue: 1"), map[string]struct {
		change func(*schedulingv1.PriorityClass)
		want   []string
	}{
		"the default": {func(c *schedulingv1.PriorityClass) { c.GlobalDefault, c.Description = true, "d" }, nil},
		"worth more":  {func(c *schedulingv1.PriorityClass) { c.Value = 2 }, []string{"value: Forbidden: may not be changed in an update."}},
		"gentler":     {func(c *schedulingv1.PriorityClass) { c.PreemptionPolicy = ptr.To(corev1.PreemptNever) }, []string{`preemptionPolicy: Invalid value: "Never": field is immutable`}},
	})
	changes(t, decode[nodev1.RuntimeClass](t, "metadata: {name: a}\nhandler: a"), map[string]struct {
		change func(*nodev1.RuntimeClass)
		want   []string
	}{"another handler": {func(c *nodev1.RuntimeClass) { c.Handler = "b" }, []string{`handler: Invalid value: "b": field is immutable`}}})
}

// certificateRequestOf is a request that is signed by its key.
func certificateRequestOf(t *testing.T) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "jane"}}, key)
	if err != nil {
		t.Fatal(err)
	}
	return &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: "1"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
			SignerName: "kubernetes.io/kube-apiserver-client", Usages: []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth},
		},
	}
}

func certificateOf(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func TestCertificateRequestsAreRefused(t *testing.T) {
	for situation, c := range map[string]struct {
		change func(*certificatesv1.CertificateSigningRequest)
		want   []string
	}{
		"nothing wrong": {func(*certificatesv1.CertificateSigningRequest) {}, nil},
		"no PEM":        {func(r *certificatesv1.CertificateSigningRequest) { r.Spec.Request = []byte("x") }, []string{"spec.request: Invalid value: ..."}},
		"no usages":     {func(r *certificatesv1.CertificateSigningRequest) { r.Spec.Usages = nil }, []string{"spec.usages: Required value"}},
		"a usage that is not": {func(r *certificatesv1.CertificateSigningRequest) {
			r.Spec.Usages = append(r.Spec.Usages, "fun", "client auth")
		}, []string{"spec.usages[1]: Unsupported value: ...", `spec.usages[2]: Duplicate value: "client auth"`}},
		"no signer": {func(r *certificatesv1.CertificateSigningRequest) { r.Spec.SignerName = "" }, []string{"spec.signerName: Required value"}},
		"a signer without a domain": {func(r *certificatesv1.CertificateSigningRequest) { r.Spec.SignerName = "me" },
			[]string{`spec.signerName: Invalid value: "me": must be a fully qualified domain and path of the form 'example.com/signer-name'`}},
		"a signer of one label": {func(r *certificatesv1.CertificateSigningRequest) { r.Spec.SignerName = "me/a" },
			[]string{`spec.signerName: Invalid value: "me": should be a domain with at least two segments separated by dots`}},
		"the signer of old": {func(r *certificatesv1.CertificateSigningRequest) { r.Spec.SignerName = "kubernetes.io/legacy-unknown" },
			[]string{`spec.signerName: Invalid value: "kubernetes.io/legacy-unknown": the legacy signerName is not allowed via this API version`}},
		"for a minute": {func(r *certificatesv1.CertificateSigningRequest) { r.Spec.ExpirationSeconds = ptr.To[int32](60) },
			[]string{"spec.expirationSeconds: Invalid value: 60: may not specify a duration less than 600 seconds (10 minutes)"}},
		"signed by another key": {func(r *certificatesv1.CertificateSigningRequest) {
			block, _ := pem.Decode(r.Spec.Request)
			block.Bytes[len(block.Bytes)-1] ^= 1
			r.Spec.Request = pem.EncodeToMemory(block)
		}, []string{"spec.request: Invalid value: ..."}},
	} {
		t.Run(situation, func(t *testing.T) {
			r := certificateRequestOf(t)
			c.change(r)
			refused(t, createErrors(r), c.want...)
		})
	}
}

func TestEachDoorOfACertificateRequestChangesItsPart(t *testing.T) {
	condition := func(kind certificatesv1.RequestConditionType) certificatesv1.CertificateSigningRequestCondition {
		return certificatesv1.CertificateSigningRequestCondition{Type: kind, Status: corev1.ConditionTrue}
	}
	stored := certificateRequestOf(t)
	with := func(conditions ...certificatesv1.RequestConditionType) *certificatesv1.CertificateSigningRequest {
		r := stored.DeepCopy()
		for _, kind := range conditions {
			r.Status.Conditions = append(r.Status.Conditions, condition(kind))
		}
		return r
	}
	approved, denied := with(certificatesv1.CertificateApproved), with(certificatesv1.CertificateDenied)
	issued := approved.DeepCopy()
	issued.Status.Certificate = certificateOf(t)

	refused(t, certificates.CertificateApproval(approved, stored))
	refused(t, certificates.CertificateApproval(with(certificatesv1.CertificateApproved, certificatesv1.CertificateDenied), stored),
		`status.conditions: Invalid value: "Denied": Approved and Denied conditions are mutually exclusive`)
	refused(t, certificates.CertificateApproval(stored, denied), `status.conditions: Forbidden: updates may not remove a condition of type "Denied"`)
	refused(t, certificates.CertificateApproval(issued, approved), "status.certificate: Forbidden: updates may not set certificate content")
	refused(t, statusErrors(issued, approved))
	refused(t, statusErrors(approved, stored), `status.conditions: Forbidden: updates may not add a condition of type "Approved"`)
	refused(t, statusErrors(with(certificatesv1.CertificateFailed), stored))
	refused(t, updateErrors(issued, approved), "status.certificate: Forbidden: updates may not set certificate content")

	again := issued.DeepCopy()
	again.Status.Certificate = certificateOf(t)
	refused(t, statusErrors(again, issued), "status.certificate: Forbidden: updates may not modify existing certificate content")
	again = approved.DeepCopy()
	again.Status.Certificate = []byte(strings.ReplaceAll(string(issued.Status.Certificate), "CERTIFICATE", "PRIVATE KEY"))
	refused(t, statusErrors(again, approved),
		`status.certificate: Invalid value: "<certificate data>": only CERTIFICATE PEM blocks are allowed, found "PRIVATE KEY"`)
	uncertain := approved.DeepCopy()
	uncertain.Status.Conditions[0].Status = corev1.ConditionFalse
	refused(t, certificates.CertificateApproval(uncertain, stored), `status.conditions[0].status: Unsupported value: "False": supported values: "True"`)
}
