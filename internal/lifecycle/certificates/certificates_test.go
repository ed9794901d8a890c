package certificates

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap/zaptest"
	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"portico.dev/internal/pki"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	clientSigner  = certificatesv1.KubeAPIServerClientKubeletSignerName
	servingSigner = certificatesv1.KubeletServingSignerName
	userSigner    = certificatesv1.KubeAPIServerClientSignerName
)

var (
	clientUsages  = []certificatesv1.KeyUsage{"digital signature", "key encipherment", "client auth"}
	servingUsages = []certificatesv1.KeyUsage{"digital signature", "key encipherment", "server auth"}
)

var newKey = sync.OnceValue(func() crypto.Signer {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	return key
})

// template returns the request of the kubelet of node n1, with changes.
func template(change ...func(*x509.CertificateRequest)) *x509.CertificateRequest {
	r := &x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:n1", Organization: []string{"system:nodes"}}}
	for _, f := range change {
		f(r)
	}
	return r
}

func encoded(t *testing.T, r *x509.CertificateRequest) []byte {
	t.Helper()
	der, err := x509.CreateCertificateRequest(rand.Reader, r, newKey())
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}

func names(dns ...string) func(*x509.CertificateRequest) {
	return func(r *x509.CertificateRequest) { r.DNSNames = dns }
}

func addresses(ips ...string) func(*x509.CertificateRequest) {
	return func(r *x509.CertificateRequest) {
		for _, ip := range ips {
			r.IPAddresses = append(r.IPAddresses, net.ParseIP(ip))
		}
	}
}

func organization(o ...string) func(*x509.CertificateRequest) {
	return func(r *x509.CertificateRequest) { r.Subject.Organization = o }
}

func commonName(n string) func(*x509.CertificateRequest) {
	return func(r *x509.CertificateRequest) { r.Subject.CommonName = n }
}

func email(r *x509.CertificateRequest) { r.EmailAddresses = []string{"a@example.com"} }
func uri(r *x509.CertificateRequest)   { r.URIs = []*url.URL{{Scheme: "spiffe", Host: "x"}} }

// The rows are from kube-controller-manager's tests.
func TestB17InvalidRequestsAreRejectedBySigners(t *testing.T) {
	usages := func(u ...certificatesv1.KeyUsage) []certificatesv1.KeyUsage { return u }
	for name, c := range map[string]struct {
		signer  string
		request *x509.CertificateRequest
		usages  []certificatesv1.KeyUsage
		want    string
	}{
		"client":                          {clientSigner, template(), clientUsages, ""},
		"client, no RSA":                  {clientSigner, template(), usages("digital signature", "client auth"), ""},
		"client, another order":           {clientSigner, template(), usages("client auth", "key encipherment", "digital signature"), ""},
		"client, more":                    {clientSigner, template(), append(slices.Clone(clientUsages), "server auth"), "usages did not match"},
		"client, less":                    {clientSigner, template(), usages("client auth"), "usages did not match"},
		"client, as a server":             {clientSigner, template(), servingUsages, "usages did not match"},
		"client, two organizations":       {clientSigner, template(organization("system:nodes", "system:masters")), clientUsages, "subject organization is not system:nodes"},
		"client, no organization":         {clientSigner, template(organization()), clientUsages, "subject organization is not system:nodes"},
		"client, another name":            {clientSigner, template(commonName("admin")), clientUsages, "subject common name does not begin with system:node:"},
		"client, DNS":                     {clientSigner, template(names("n1")), clientUsages, "DNS subjectAltNames are not allowed"},
		"client, IP":                      {clientSigner, template(addresses("10.0.0.1")), clientUsages, "IP subjectAltNames are not allowed"},
		"client, email":                   {clientSigner, template(email), clientUsages, "Email subjectAltNames are not allowed"},
		"client, URI":                     {clientSigner, template(uri), clientUsages, "URI subjectAltNames are not allowed"},
		"serving":                         {servingSigner, template(names("n1")), servingUsages, ""},
		"serving, IP":                     {servingSigner, template(addresses("10.0.0.1")), usages("digital signature", "server auth"), ""},
		"serving, nothing":                {servingSigner, template(), servingUsages, "DNS or IP subjectAltName is required"},
		"serving, email":                  {servingSigner, template(names("n1"), email), servingUsages, "Email subjectAltNames are not allowed"},
		"serving, URI":                    {servingSigner, template(names("n1"), uri), servingUsages, "URI subjectAltNames are not allowed"},
		"serving, as a client":            {servingSigner, template(names("n1")), append(slices.Clone(servingUsages), "client auth"), "usages did not match"},
		"serving, another name":           {servingSigner, template(names("n1"), commonName("kubernetes")), servingUsages, "subject common name does not begin with system:node:"},
		"serving, another organization":   {servingSigner, template(names("n1"), organization("system:masters")), servingUsages, "subject organization is not system:nodes"},
		"user":                            {userSigner, template(commonName("jane"), organization("dev")), usages("client auth"), ""},
		"user, as a server":               {userSigner, template(), usages("client auth", "server auth"), "invalid usage for client certificate: server auth"},
		"user, as a CA":                   {userSigner, template(), usages("client auth", "cert sign"), "invalid usage for client certificate: cert sign"},
		"user, no usage of a client":      {userSigner, template(), usages("digital signature"), "missing required usage for client certificate: client auth"},
		"a usage twice, for what is more": {clientSigner, template(), usages("client auth", "client auth"), "usages did not match"},
	} {
		t.Run(name, func(t *testing.T) {
			err := forms[c.signer](c.request, c.usages)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("form of %s: error = %v, want %q", c.signer, err, c.want)
			}
		})
	}
}

func newAuthority(t *testing.T, ttl time.Duration) *pki.KeyPair {
	t.Helper()
	a, err := pki.NewAuthorityFor("test", ttl)
	if err != nil {
		t.Fatal(err)
	}
	key, err := a.KeyPEM()
	if err != nil {
		t.Fatal(err)
	}
	pair, err := pki.StaticKeyPair(a.PEM(), key)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

func certificateOf(t *testing.T, data []byte) *x509.Certificate {
	t.Helper()
	block, rest := pem.Decode(data)
	if block == nil || block.Type != "CERTIFICATE" || len(rest) > 0 {
		t.Fatalf("PEM = %q, want exactly one certificate", data)
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// The certificate has the names and the key of the request, but not its CA flag and its other extensions.
func TestB17CertificateOmitsRequestedExtensions(t *testing.T) {
	ca, now := newAuthority(t, 365*24*time.Hour), time.Now().Truncate(time.Second)
	constraints, err := asn1.Marshal(struct {
		IsCA bool `asn1:"optional"`
	}{true})
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(encoded(t, template(names("n1"), addresses("10.0.0.1"), func(r *x509.CertificateRequest) {
		r.ExtraExtensions = []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 19}, Critical: true, Value: constraints}}
	})))
	requested, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	data, err := sign(ca, requested, servingUsages, 24*time.Hour, now)
	if err != nil {
		t.Fatal(err)
	}
	c := certificateOf(t, data)
	if err := c.CheckSignatureFrom(ca.Leaf()); err != nil {
		t.Error(err)
	}
	if c.IsCA || !c.BasicConstraintsValid || c.Subject.CommonName != "system:node:n1" || !slices.Equal(c.Subject.Organization, []string{"system:nodes"}) ||
		!slices.Equal(c.DNSNames, []string{"n1"}) || len(c.IPAddresses) != 1 || c.KeyUsage != x509.KeyUsageDigitalSignature|x509.KeyUsageKeyEncipherment ||
		!slices.Equal(c.ExtKeyUsage, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}) || !newKey().Public().(*ecdsa.PublicKey).Equal(c.PublicKey) {
		t.Errorf("signed certificate = %+v, want the names and the key of the request, and no CA", c)
	}
	for name, c := range map[string]struct {
		asked      time.Duration
		begin, end time.Duration
	}{
		"long":                 {24 * time.Hour, -5 * time.Minute, 24*time.Hour - 5*time.Minute},
		"short":                {time.Hour, -5 * time.Minute, time.Hour},
		"longer than the CA's": {1000 * 24 * time.Hour, -5 * time.Minute, ca.Leaf().NotAfter.Sub(now)},
	} {
		data, err := sign(ca, requested, servingUsages, c.asked, now)
		if err != nil {
			t.Fatal(err)
		}
		got := certificateOf(t, data)
		if got.NotBefore.Sub(now) != c.begin || got.NotAfter.Sub(now) != c.end {
			t.Errorf("%s: valid from %s to %s, want %s to %s", name, got.NotBefore.Sub(now), got.NotAfter.Sub(now), c.begin, c.end)
		}
	}
	if _, err := sign(ca, requested, servingUsages, time.Hour, ca.Leaf().NotAfter); err == nil {
		t.Error("sign() with an expired CA succeeded, want an error")
	}
	requested.Signature[len(requested.Signature)-1] ^= 1
	if _, err := sign(ca, requested, servingUsages, time.Hour, now); err == nil {
		t.Error("sign() of a request with an invalid signature succeeded, want an error")
	}
}

func TestCertificateValidityIsBounded(t *testing.T) {
	seconds := func(n int32) *int32 { return &n }
	for name, c := range map[string]struct {
		asked *int32
		want  time.Duration
	}{
		"not asked":       {nil, 24 * time.Hour},
		"less":            {seconds(3600), time.Hour},
		"more":            {seconds(365 * 24 * 3600), 24 * time.Hour},
		"a moment":        {seconds(1), 10 * time.Minute},
		"less than none":  {seconds(-1), 10 * time.Minute},
		"just as much":    {seconds(24 * 3600), 24 * time.Hour},
		"as little as is": {seconds(600), 10 * time.Minute},
	} {
		if got := validity(c.asked, 24*time.Hour); got != c.want {
			t.Errorf("%s: validity() = %s, want %s", name, got, c.want)
		}
	}
}

func TestInvalidAuthoritiesAreRejected(t *testing.T) {
	a, err := pki.NewAuthority("test")
	if err != nil {
		t.Fatal(err)
	}
	cert, key, err := a.Issue(pki.Leaf{CommonName: "leaf", Client: true})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		cert []byte
		want string
	}{
		"no CA":      {cert, "is not one of a CA"},
		"a chain":    {slices.Concat(cert, a.PEM()), "expected 1 certificate, found 2"},
		"a good one": {nil, ""},
	} {
		pair := newAuthority(t, time.Hour)
		if c.cert != nil {
			if pair, err = pki.StaticKeyPair(c.cert, key); err != nil {
				t.Fatal(err)
			}
		}
		err := CheckAuthority(pair)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: CheckAuthority() error = %v, want %q", name, err, c.want)
		}
	}
}

// tbs is the signed part of a certificate of version 3.
type tbs struct {
	Version                                         int `asn1:"optional,explicit,default:0,tag:0"`
	Serial                                          *big.Int
	Algorithm, Issuer, Validity, Subject, PublicKey asn1.RawValue
	Extensions                                      []pkix.Extension `asn1:"omitempty,optional,explicit,tag:3"`
}

// versionOne returns an authority of version 1, without extensions, as `openssl x509 -req` creates it.
func versionOne(t *testing.T) (certPEM, keyPEM []byte) {
	t.Helper()
	a, err := pki.NewAuthority("version 1")
	if err != nil {
		t.Fatal(err)
	}
	if keyPEM, err = a.KeyPEM(); err != nil {
		t.Fatal(err)
	}
	key, err := pki.ParseKey(keyPEM)
	if err != nil {
		t.Fatal(err)
	}
	var three tbs
	if _, err := asn1.Unmarshal(a.Certificate.RawTBSCertificate, &three); err != nil {
		t.Fatal(err)
	}
	marshal := func(v any) []byte {
		der, err := asn1.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return der
	}
	one := marshal(struct {
		Serial                                          *big.Int
		Algorithm, Issuer, Validity, Subject, PublicKey asn1.RawValue
	}{three.Serial, three.Algorithm, three.Issuer, three.Validity, three.Subject, three.PublicKey})
	sum := sha256.Sum256(one)
	signature, err := key.Sign(rand.Reader, sum[:], crypto.SHA256)
	if err != nil {
		t.Fatal(err)
	}
	der := marshal(struct {
		TBS, Algorithm asn1.RawValue
		Signature      asn1.BitString
	}{asn1.RawValue{FullBytes: one}, three.Algorithm, asn1.BitString{Bytes: signature, BitLength: 8 * len(signature)}})
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), keyPEM
}

func TestVersion1AuthoritySigns(t *testing.T) {
	certPEM, keyPEM := versionOne(t)
	pair, err := pki.StaticKeyPair(certPEM, keyPEM)
	if err != nil {
		t.Fatal(err)
	}
	if got := pair.Leaf().Version; got != 1 {
		t.Fatalf("version = %d, want 1", got)
	}
	if err := CheckAuthority(pair); err != nil {
		t.Errorf("CheckAuthority() failed: %v, want no error", err)
	}
	if _, err := pki.ParseAuthority(certPEM, keyPEM); err != nil {
		t.Errorf("ParseAuthority() failed: %v, want no error", err)
	}
	block, _ := pem.Decode(encoded(t, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:n", Organization: []string{"system:nodes"}}}))
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := sign(pair, request, []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth}, time.Hour, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	roots, err := pki.StaticBundle(certPEM)
	if err != nil {
		t.Fatal(err)
	}
	chain, err := pki.ParseBundle(signed)
	if err != nil {
		t.Fatal(err)
	}
	if err := roots.VerifyClient(chain); err != nil {
		t.Errorf("VerifyClient() of a signed certificate failed: %v, want no error", err)
	}
}

// running runs all controllers in a bubble. rights are "USER SUBRESOURCE".
func running(t *testing.T, rights func(string) bool, signers []Signer, test func(client *fake.Clientset, settle func(time.Duration)), objects ...runtime.Object) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset(objects...)
		client.PrependReactor("create", "subjectaccessreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
			review := action.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview).DeepCopy()
			a := review.Spec.ResourceAttributes
			review.Status.Allowed = a.Verb == "create" && a.Group == "certificates.k8s.io" && a.Resource == "certificatesigningrequests" &&
				rights(review.Spec.User+" "+a.Subresource)
			return true, review, nil
		})
		factory := informers.NewSharedInformerFactory(client, 0)
		c := Config{
			Client: client, Requests: client.CertificatesV1().CertificateSigningRequests(),
			Informer: factory.Certificates().V1().CertificateSigningRequests().Informer(), Logger: zaptest.NewLogger(t),
		}
		ctx, cancel := context.WithCancel(t.Context())
		factory.Start(ctx.Done())
		factory.WaitForCacheSync(ctx.Done())
		done := make(chan error, 3)
		go func() { done <- RunApprover(ctx, c) }()
		go func() { done <- RunSigners(ctx, c, signers, 24*time.Hour) }()
		go func() { done <- RunCleaner(ctx, c) }()
		settle := func(d time.Duration) { time.Sleep(d); synctest.Wait() }
		settle(time.Second)
		test(client, settle)
		cancel()
		for range 3 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		factory.Shutdown()
	})
}

func object(t *testing.T, name, user, signer string, usages []certificatesv1.KeyUsage, r *x509.CertificateRequest, conditions ...certificatesv1.RequestConditionType) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	o := &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: "uid"},
		Spec:       certificatesv1.CertificateSigningRequestSpec{Request: encoded(t, r), SignerName: signer, Usages: usages, Username: user},
	}
	for _, c := range conditions {
		o.Status.Conditions = append(o.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{Type: c, Status: "True"})
	}
	return o
}

func TestB17OnlyPermittedRequestsAreApprovedAndSigned(t *testing.T) {
	approved, denied, failed := certificatesv1.CertificateApproved, certificatesv1.CertificateDenied, certificatesv1.CertificateFailed
	clients, others := newAuthority(t, 365*24*time.Hour), newAuthority(t, 365*24*time.Hour)
	rights := map[string]bool{"bootstrapper nodeclient": true, "system:node:n1 selfnodeclient": true, "powerful nodeclient": true, "powerful selfnodeclient": true}
	objects := map[string]struct {
		object     *certificatesv1.CertificateSigningRequest
		conditions string
		signedBy   *pki.KeyPair
		message    string
	}{
		"a new node":           {object(t, "1", "bootstrapper", clientSigner, clientUsages, template()), "Approved", clients, "Auto approving kubelet client certificate after SubjectAccessReview."},
		"a renewal":            {object(t, "2", "system:node:n1", clientSigner, clientUsages, template()), "Approved", clients, "Auto approving self kubelet client certificate after SubjectAccessReview."},
		"another node's name":  {object(t, "3", "system:node:n1", clientSigner, clientUsages, template(commonName("system:node:n2"))), "", nil, ""},
		"who has no right":     {object(t, "4", "nobody", clientSigner, clientUsages, template()), "", nil, ""},
		"not of the form":      {object(t, "5", "powerful", clientSigner, clientUsages, template(organization("system:masters"))), "", nil, ""},
		"a serving one":        {object(t, "6", "powerful", servingSigner, servingUsages, template(names("n1"))), "", nil, ""},
		"a serving, approved":  {object(t, "7", "system:node:n1", servingSigner, servingUsages, template(names("n1")), approved), "Approved", others, ""},
		"approved, bad":        {object(t, "8", "x", clientSigner, clientUsages, template(organization("system:masters")), approved), "Approved Failed", nil, ""},
		"approved and denied":  {object(t, "9", "bootstrapper", clientSigner, clientUsages, template(), approved, denied), "Approved Denied", nil, ""},
		"denied":               {object(t, "a", "bootstrapper", clientSigner, clientUsages, template(), denied), "Denied", nil, ""},
		"approved, has failed": {object(t, "b", "bootstrapper", clientSigner, clientUsages, template(), approved, failed), "Approved Failed", nil, ""},
		"of another signer":    {object(t, "c", "bootstrapper", "example.com/x", clientUsages, template(), approved), "Approved", nil, ""},
		"a user":               {object(t, "d", "jane", userSigner, []certificatesv1.KeyUsage{"client auth"}, template(commonName("jane"), organization("dev")), approved), "Approved", others, ""},
		"a user, not approved": {object(t, "e", "powerful", userSigner, []certificatesv1.KeyUsage{"client auth"}, template(commonName("jane"), organization("dev"))), "", nil, ""},
	}
	var all []runtime.Object
	for _, o := range objects {
		all = append(all, o.object)
	}
	signers := []Signer{{clientSigner, clients}, {servingSigner, others}, {userSigner, others}}
	var mu sync.Mutex // protects rights
	running(t, func(right string) bool {
		mu.Lock()
		defer mu.Unlock()
		return rights[right]
	}, signers, func(client *fake.Clientset, settle func(time.Duration)) {
		requests := client.CertificatesV1().CertificateSigningRequests()
		for name, want := range objects {
			got, err := requests.Get(t.Context(), want.object.Name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			var said []string
			for _, c := range got.Status.Conditions {
				said = append(said, string(c.Type))
				if want.message != "" && (c.Message != want.message || c.Reason != "AutoApproved") {
					t.Errorf("%s: condition = %+v, want reason AutoApproved and message %q", name, c, want.message)
				}
			}
			if strings.Join(said, " ") != want.conditions || (want.signedBy != nil) != (len(got.Status.Certificate) > 0) {
				t.Errorf("%s: conditions = %v, signed %v, want %q, signed %v", name, said, len(got.Status.Certificate) > 0, want.conditions, want.signedBy != nil)
			} else if want.signedBy != nil && certificateOf(t, got.Status.Certificate).CheckSignatureFrom(want.signedBy.Leaf()) != nil {
				t.Errorf("%s: the certificate is not signed by the expected CA, want %s", name, want.signedBy.Leaf().Subject)
			}
		}
		mu.Lock()
		rights["nobody nodeclient"] = true
		mu.Unlock()
		settle(askAgain)
		if got, err := requests.Get(t.Context(), "4", metav1.GetOptions{}); err != nil || len(got.Status.Certificate) == 0 {
			t.Errorf("request 4 after its user got the right = %+v, error %v, want a certificate", got, err)
		}
	}, all...)
}

func TestOldCertificateRequestsAreDeleted(t *testing.T) {
	now := time.Now()
	ago := func(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }
	ca := newAuthority(t, 365*24*time.Hour)
	block, _ := pem.Decode(encoded(t, template()))
	requested, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	valid, err := sign(ca, requested, clientUsages, time.Hour, now)
	if err != nil {
		t.Fatal(err)
	}
	over, err := sign(ca, requested, clientUsages, 10*time.Minute, now.Add(-20*time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	at := func(kind certificatesv1.RequestConditionType, said metav1.Time) []certificatesv1.CertificateSigningRequestCondition {
		return []certificatesv1.CertificateSigningRequestCondition{{Type: kind, LastUpdateTime: said}}
	}
	for name, c := range map[string]struct {
		made        metav1.Time
		conditions  []certificatesv1.CertificateSigningRequestCondition
		certificate []byte
		old         bool
	}{
		"pending":                     {ago(23 * time.Hour), nil, nil, false},
		"pending for a day":           {ago(25 * time.Hour), nil, nil, true},
		"approved":                    {ago(25 * time.Hour), at(certificatesv1.CertificateApproved, ago(23*time.Hour)), nil, false},
		"approved for a day":          {ago(25 * time.Hour), at(certificatesv1.CertificateApproved, ago(25*time.Hour)), nil, true},
		"signed":                      {ago(25 * time.Hour), at(certificatesv1.CertificateApproved, ago(30*time.Minute)), valid, false},
		"signed an hour ago":          {ago(25 * time.Hour), at(certificatesv1.CertificateApproved, ago(61*time.Minute)), valid, true},
		"signed, and has expired":     {ago(time.Hour), at(certificatesv1.CertificateApproved, ago(30*time.Minute)), over, true},
		"signed, by who knows":        {ago(time.Hour), at(certificatesv1.CertificateApproved, ago(30*time.Minute)), []byte("x"), false},
		"denied":                      {ago(25 * time.Hour), at(certificatesv1.CertificateDenied, ago(59*time.Minute)), nil, false},
		"denied an hour ago":          {ago(25 * time.Hour), at(certificatesv1.CertificateDenied, ago(61*time.Minute)), nil, true},
		"failed":                      {ago(25 * time.Hour), at(certificatesv1.CertificateFailed, ago(59*time.Minute)), nil, false},
		"failed an hour ago":          {ago(25 * time.Hour), at(certificatesv1.CertificateFailed, ago(61*time.Minute)), nil, true},
		"nobody knows when it was so": {metav1.Time{}, at(certificatesv1.CertificateDenied, metav1.Time{}), nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: c.made}}
			r.Status.Conditions, r.Status.Certificate = c.conditions, c.certificate
			if why := outdated(r, now); (why != "") != c.old {
				t.Errorf("outdated() = %q, want a reason %t", why, c.old)
			}
		})
	}
	old := object(t, "old", "nobody", "example.com/x", clientUsages, template())
	running(t, func(string) bool { return false }, nil, func(client *fake.Clientset, settle func(time.Duration)) {
		requests := client.CertificatesV1().CertificateSigningRequests()
		created := old.DeepCopy()
		created.Name, created.CreationTimestamp = "new", metav1.Now()
		if _, err := requests.Create(t.Context(), created, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		settle(time.Hour)
		if _, err := requests.Get(t.Context(), "new", metav1.GetOptions{}); err != nil {
			t.Error(err)
		}
		settle(25 * time.Hour)
		if _, err := requests.Get(t.Context(), "new", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("Get of the new request after a day: error = %v, want NotFound", err)
		}
	}, old)
}
