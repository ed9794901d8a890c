package aggregator

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/certificate"
	"k8s.io/client-go/util/certificate/csr"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/cluster-bootstrap/token/jws"
)

const (
	joinID, joinSecret = "abcdef", "0123456789abcdef"
	nodesToken         = "system:bootstrappers:kubeadm:default-node-token"
)

// withNodes serves nodes as `kubeadm init` has kube-apiserver and kube-controller-manager do.
func withNodes(dir string) func(*Config) {
	return func(c *Config) {
		c.Authorization.Modes = []string{"Node", "RBAC"}
		c.Admission.Enable = []string{"NodeRestriction"}
		c.Authentication.BootstrapTokens = true
		c.Controllers = []string{"*", "bootstrap-signer-controller", "token-cleaner-controller"}
		c.Signing.All = KeyFiles{Cert: filepath.Join(dir, "pki", "client-ca.crt"), Key: filepath.Join(dir, "pki", "client-ca.key")}
	}
}

func createObject[T any, O any](t *testing.T, with func(context.Context, T, O) (T, error), object T) T {
	t.Helper()
	var options O
	made, err := with(t.Context(), object, options)
	if err != nil {
		t.Fatalf("creating %T failed: %v, want no error", object, err)
	}
	return made
}

// forNodes creates the objects that `kubeadm init` creates for `kubeadm join`: a token, its rights, and the ConfigMap
// cluster-info.
func forNodes(t *testing.T, admin kubernetes.Interface, config *rest.Config) {
	t.Helper()
	createObject(t, admin.CoreV1().Secrets("kube-system").Create, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "bootstrap-token-" + joinID}, Type: "bootstrap.kubernetes.io/token",
		StringData: map[string]string{
			"token-id": joinID, "token-secret": joinSecret, "usage-bootstrap-authentication": "true", "usage-bootstrap-signing": "true",
			"auth-extra-groups": nodesToken,
		},
	})
	for name, role := range map[string]struct{ role, group string }{
		"kubeadm:kubelet-bootstrap":                     {"system:node-bootstrapper", nodesToken},
		"kubeadm:node-autoapprove-bootstrap":            {"system:certificates.k8s.io:certificatesigningrequests:nodeclient", nodesToken},
		"kubeadm:node-autoapprove-certificate-rotation": {"system:certificates.k8s.io:certificatesigningrequests:selfnodeclient", "system:nodes"},
	} {
		createObject(t, admin.RbacV1().ClusterRoleBindings().Create, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.role},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: role.group}},
		})
	}
	createObject(t, admin.RbacV1().Roles("kube-public").Create, &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: "kubeadm:bootstrap-signer-clusterinfo"},
		Rules:      []rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{"cluster-info"}}},
	})
	createObject(t, admin.RbacV1().RoleBindings("kube-public").Create, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "kubeadm:bootstrap-signer-clusterinfo"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "kubeadm:bootstrap-signer-clusterinfo"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "system:anonymous"}},
	})
	kubeconfig, err := clientcmd.Write(clientcmdapi.Config{Clusters: map[string]*clientcmdapi.Cluster{"": {Server: config.Host, CertificateAuthorityData: rootCA(t, config)}}})
	if err != nil {
		t.Fatal(err)
	}
	createObject(t, admin.CoreV1().ConfigMaps("kube-public").Create, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "cluster-info"}, Data: map[string]string{"kubeconfig": string(kubeconfig)},
	})
}

func rootCA(t *testing.T, config *rest.Config) []byte {
	t.Helper()
	whole := rest.CopyConfig(config)
	if err := rest.LoadTLSFiles(whole); err != nil {
		t.Fatal(err)
	}
	return whole.CAData
}

func inTime(t *testing.T, what string, done func(context.Context) (bool, error)) {
	t.Helper()
	if err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, time.Minute, true, done); err != nil {
		t.Fatalf("%s: condition not met within a minute: %v, want it met", what, err)
	}
}

// kubeconfigByToken returns the server's kubeconfig as `kubeadm join` finds it: read over an unverified connection and verified
// by the signature that requires the token.
func kubeconfigByToken(t *testing.T, host string) *rest.Config {
	t.Helper()
	anonymous := kubernetes.NewForConfigOrDie(&rest.Config{Host: host, TLSClientConfig: rest.TLSClientConfig{Insecure: true}})
	var text string
	inTime(t, "cluster-info with a signature", func(ctx context.Context) (bool, error) {
		info, err := anonymous.CoreV1().ConfigMaps("kube-public").Get(ctx, "cluster-info", metav1.GetOptions{})
		if apierrors.IsForbidden(err) {
			return false, nil // the binding is a moment old
		}
		if err != nil {
			return false, err
		}
		text = info.Data["kubeconfig"]
		signature, signed := info.Data["jws-kubeconfig-"+joinID]
		if signed && !jws.DetachedTokenIsValid(signature, text, joinID, joinSecret) {
			return false, errors.New("the signature is not of this token")
		}
		return signed, nil
	})
	parsed, err := clientcmd.Load([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	found := parsed.Clusters[""]
	return &rest.Config{Host: found.Server, TLSClientConfig: rest.TLSClientConfig{CAData: found.CertificateAuthorityData}}
}

// clientCertificate returns a client certificate of a node, requested as a kubelet does it, with the given configuration.
func clientCertificate(t *testing.T, by *rest.Config, node, name string) (*rest.Config, error) {
	t.Helper()
	keyPEM, err := keyutil.MakeEllipticPrivateKeyPEM()
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := keyutil.ParsePrivateKeyPEM(keyPEM)
	if err != nil {
		t.Fatal(err)
	}
	data, err := certutil.MakeCSR(parsed, &pkix.Name{Organization: []string{"system:nodes"}, CommonName: "system:node:" + node}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	client := kubernetes.NewForConfigOrDie(by)
	usages := []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth}
	made, uid, err := csr.RequestCertificateWithContext(t.Context(), client, data, name, certificatesv1.KubeAPIServerClientKubeletSignerName, nil, usages, parsed.(crypto.Signer))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	certPEM, err := csr.WaitForCertificate(ctx, client, made, uid)
	if err != nil {
		return nil, err
	}
	return &rest.Config{Host: by.Host, QPS: -1, TLSClientConfig: rest.TLSClientConfig{CAData: by.CAData, CertData: certPEM, KeyData: keyPEM}}, nil
}

// joinedNode calls clientCertificate with a bootstrap token whose rights may not be in effect yet.
func joinedNode(t *testing.T, bootstrap *rest.Config, node string) (identity *rest.Config) {
	t.Helper()
	inTime(t, "a certificate for "+node, func(context.Context) (bool, error) {
		var err error
		identity, err = clientCertificate(t, bootstrap, node, "node-csr-"+node)
		if apierrors.IsForbidden(err) {
			return false, nil
		}
		return err == nil, err
	})
	return identity
}

// servingManager requests a serving certificate as a kubelet does.
func servingManager(t *testing.T, client kubernetes.Interface, node string) certificate.Manager {
	t.Helper()
	store, err := certificate.NewFileStore("kubelet-server", t.TempDir(), t.TempDir(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	m, err := certificate.NewManager(&certificate.Config{
		ClientsetFn: func(*tls.Certificate) (kubernetes.Interface, error) { return client, nil },
		GetTemplate: func() *x509.CertificateRequest {
			return &x509.CertificateRequest{
				Subject:  pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}},
				DNSNames: []string{node}, IPAddresses: []net.IP{net.IPv4(192, 0, 2, 1)},
			}
		},
		SignerName: certificatesv1.KubeletServingSignerName, GetUsages: certificate.DefaultKubeletServingGetUsages, CertificateStore: store,
		GenerateKey: func() (crypto.Signer, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) },
	})
	if err != nil {
		t.Fatal(err)
	}
	m.Start()
	t.Cleanup(m.Stop)
	return m
}

// A machine with only a token becomes a node. It finds the server, gets a client certificate, creates its Node and its lease,
// and gets a serving certificate after an approval. Then it renews its certificate without one.
func TestNodeJoinsWithBootstrapToken(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	config, stop := open(t, dir, withNodes(dir))
	admin := kubernetes.NewForConfigOrDie(config)
	forNodes(t, admin, config)

	bootstrap := kubeconfigByToken(t, config.Host)
	bootstrap.BearerToken = joinID + "." + joinSecret
	who, err := kubernetes.NewForConfigOrDie(bootstrap).AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil || who.Status.UserInfo.Username != "system:bootstrap:"+joinID || strings.Join(who.Status.UserInfo.Groups, " ") != "system:bootstrappers "+nodesToken+" system:authenticated" {
		t.Fatalf("review of the bootstrap token = %+v, %v; want system:bootstrap and its groups", who, err)
	}
	identity := joinedNode(t, bootstrap, "n1")
	node := kubernetes.NewForConfigOrDie(identity)
	if _, err := node.CoreV1().Nodes().Get(t.Context(), "n1", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("Get of the Node before it exists = %v, want NotFound", err)
	}
	made := createObject(t, node.CoreV1().Nodes().Create, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{corev1.LabelHostname: "n1"}}})
	made.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	if _, err := node.CoreV1().Nodes().UpdateStatus(t.Context(), made, metav1.UpdateOptions{}); err != nil {
		t.Error(err)
	}
	createObject(t, node.CoordinationV1().Leases("kube-node-lease").Create, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})

	serving := servingManager(t, node, "n1")
	var pending certificatesv1.CertificateSigningRequest
	inTime(t, "the request of a serving certificate", func(ctx context.Context) (bool, error) {
		all, err := admin.CertificatesV1().CertificateSigningRequests().List(ctx, metav1.ListOptions{FieldSelector: "spec.signerName=" + certificatesv1.KubeletServingSignerName})
		if err != nil || len(all.Items) == 0 {
			return false, err
		}
		pending = all.Items[0]
		return true, nil
	})
	if len(pending.Status.Conditions) > 0 || pending.Spec.Username != "system:node:n1" {
		t.Errorf("CertificateSigningRequest before its approval = %+v, want no conditions and the user system:node:n1", pending)
	}
	pending.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Test"}}
	if _, err := admin.CertificatesV1().CertificateSigningRequests().UpdateApproval(t.Context(), pending.Name, &pending, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	inTime(t, "the serving certificate", func(context.Context) (bool, error) { return serving.Current() != nil, nil })
	leaf := serving.Current().Leaf
	if leaf.VerifyHostname("n1") != nil || leaf.VerifyHostname("192.0.2.1") != nil || leaf.Subject.CommonName != "system:node:n1" {
		t.Errorf("serving certificate = %v, want one of system:node:n1 for n1 and 192.0.2.1", leaf)
	}

	renewed, err := clientCertificate(t, identity, "n1", "csr-renewal")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kubernetes.NewForConfigOrDie(renewed).CoreV1().Nodes().Get(t.Context(), "n1", metav1.GetOptions{}); err != nil {
		t.Errorf("Get of the Node with the renewed certificate failed: %v, want no error", err)
	}
	if err := admin.CoreV1().Secrets("kube-system").Delete(t.Context(), "bootstrap-token-"+joinID, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	inTime(t, "the token is refused, and its signature is gone", func(ctx context.Context) (bool, error) {
		_, err := kubernetes.NewForConfigOrDie(bootstrap).CoreV1().ConfigMaps("kube-public").Get(ctx, "cluster-info", metav1.GetOptions{})
		info, adminErr := admin.CoreV1().ConfigMaps("kube-public").Get(ctx, "cluster-info", metav1.GetOptions{})
		return apierrors.IsUnauthorized(err) && len(info.Data) == 1, adminErr
	})
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// A node reads and writes its objects, and none of another node.
func TestC24NodeCannotAccessObjectsOfAnotherNode(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	config, stop := open(t, dir, withNodes(dir))
	admin, ctx := kubernetes.NewForConfigOrDie(config), t.Context()
	forNodes(t, admin, config)
	bootstrap := kubeconfigByToken(t, config.Host)
	bootstrap.BearerToken = joinID + "." + joinSecret
	identities := map[string]*rest.Config{}
	nodes := map[string]kubernetes.Interface{}
	const ns = "default"
	for _, name := range []string{"n1", "n2"} {
		identity := joinedNode(t, bootstrap, name)
		node := kubernetes.NewForConfigOrDie(identity)
		identities[name], nodes[name] = identity, node
		createObject(t, node.CoreV1().Nodes().Create, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
		createObject(t, node.CoordinationV1().Leases("kube-node-lease").Create, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}})
		createObject(t, node.StorageV1().CSINodes().Create, &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: name}})
		createObject(t, admin.CoreV1().Secrets(ns).Create, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "secret-" + name}})
		createObject(t, admin.CoreV1().ConfigMaps(ns).Create, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "config-" + name}})
		createObject(t, admin.CoreV1().ServiceAccounts(ns).Create, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "account-" + name}})
		createObject(t, admin.CoreV1().Pods(ns).Create, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "pod-" + name},
			Spec: corev1.PodSpec{
				NodeName: name, ServiceAccountName: "account-" + name,
				Containers: []corev1.Container{{Name: "c", Image: "i", EnvFrom: []corev1.EnvFromSource{
					{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "secret-" + name}}},
					{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "config-" + name}}},
				}}},
			},
		})
	}
	// Access to another node's objects is refused, and access to the node's objects is allowed.
	type try struct {
		what string
		do   func(c kubernetes.Interface, whose string) error
	}
	get := func(resource string, with func(kubernetes.Interface, string) error) try {
		return try{"get " + resource, with}
	}
	token := func(audiences ...string) func(kubernetes.Interface, string) error {
		return func(c kubernetes.Interface, whose string) error {
			pod, err := admin.CoreV1().Pods(ns).Get(ctx, "pod-"+whose, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			_, err = c.CoreV1().ServiceAccounts(ns).CreateToken(ctx, "account-"+whose, &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
				Audiences: audiences, BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
			}}, metav1.CreateOptions{})
			return err
		}
	}
	patch := func(of any) []byte {
		data, err := json.Marshal(of)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	labelled := patch(map[string]any{"metadata": map[string]any{"labels": map[string]string{"example.com/a": "b"}}})
	ready := patch(map[string]any{"status": map[string]any{"phase": "Running"}})
	for _, c := range []try{
		get("secrets", func(c kubernetes.Interface, whose string) error {
			_, err := c.CoreV1().Secrets(ns).Get(ctx, "secret-"+whose, metav1.GetOptions{})
			return err
		}),
		{"watch a secret", func(c kubernetes.Interface, whose string) error {
			w, err := c.CoreV1().Secrets(ns).Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=secret-" + whose})
			if err == nil {
				w.Stop()
			}
			return err
		}},
		get("configmaps", func(c kubernetes.Interface, whose string) error {
			_, err := c.CoreV1().ConfigMaps(ns).Get(ctx, "config-"+whose, metav1.GetOptions{})
			return err
		}),
		get("serviceaccounts", func(c kubernetes.Interface, whose string) error {
			_, err := c.CoreV1().ServiceAccounts(ns).Get(ctx, "account-"+whose, metav1.GetOptions{})
			return err
		}),
		get("pods", func(c kubernetes.Interface, whose string) error {
			_, err := c.CoreV1().Pods(ns).Get(ctx, "pod-"+whose, metav1.GetOptions{})
			return err
		}),
		{"list pods", func(c kubernetes.Interface, whose string) error {
			_, err := c.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + whose})
			return err
		}},
		{"token", token()}, // the default audience, for which the admission plugin ServiceAccount has mounted a volume
		get("nodes", func(c kubernetes.Interface, whose string) error {
			_, err := c.CoreV1().Nodes().Get(ctx, whose, metav1.GetOptions{})
			return err
		}),
		{"label a node", func(c kubernetes.Interface, whose string) error {
			_, err := c.CoreV1().Nodes().Patch(ctx, whose, types.MergePatchType, labelled, metav1.PatchOptions{})
			return err
		}},
		{"status of a node", func(c kubernetes.Interface, whose string) error {
			_, err := c.CoreV1().Nodes().Patch(ctx, whose, types.MergePatchType, ready, metav1.PatchOptions{}, "status")
			return err
		}},
		{"status of a pod", func(c kubernetes.Interface, whose string) error {
			_, err := c.CoreV1().Pods(ns).Patch(ctx, "pod-"+whose, types.MergePatchType, ready, metav1.PatchOptions{}, "status")
			return err
		}},
		{"lease", func(c kubernetes.Interface, whose string) error {
			_, err := c.CoordinationV1().Leases("kube-node-lease").Patch(ctx, whose, types.MergePatchType, labelled, metav1.PatchOptions{})
			return err
		}},
		{"CSINode", func(c kubernetes.Interface, whose string) error {
			_, err := c.StorageV1().CSINodes().Patch(ctx, whose, types.MergePatchType, labelled, metav1.PatchOptions{})
			return err
		}},
		{"evict", func(c kubernetes.Interface, whose string) error {
			return c.CoreV1().Pods(ns).EvictV1(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "pod-" + whose}, DeleteOptions: &metav1.DeleteOptions{DryRun: []string{"All"}}})
		}},
		{"delete a pod", func(c kubernetes.Interface, whose string) error {
			return c.CoreV1().Pods(ns).Delete(ctx, "pod-"+whose, metav1.DeleteOptions{DryRun: []string{"All"}})
		}},
	} {
		inTime(t, c.what+" of its own", func(context.Context) (bool, error) {
			err := c.do(nodes["n1"], "n1")
			if apierrors.IsForbidden(err) && strings.Contains(err.Error(), "no relationship found") {
				return false, nil // the pod is a moment old
			}
			return true, err
		})
		for from, of := range map[string]string{"n1": "n2", "n2": "n1"} {
			if err := c.do(nodes[from], of); !apierrors.IsForbidden(err) {
				t.Errorf("node %s: %s of %s = %v, want Forbidden", from, c.what, of, err)
			}
		}
	}
	// No node may do the following, even with its objects.
	me := nodes["n1"]
	for what, do := range map[string]func() error{
		"a token for any audience": func() error { return token("vault")(me, "n1") },
		"list secrets":             func() error { _, err := me.CoreV1().Secrets(ns).List(ctx, metav1.ListOptions{}); return err },
		"list nodes":               func() error { _, err := me.CoreV1().Nodes().List(ctx, metav1.ListOptions{}); return err },
		"list all pods":            func() error { _, err := me.CoreV1().Pods("").List(ctx, metav1.ListOptions{}); return err },
		"another node": func() error {
			_, err := me.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n3"}}, metav1.CreateOptions{})
			return err
		},
		"a reserved label": func() error {
			data := patch(map[string]any{"metadata": map[string]any{"labels": map[string]string{"node-role.kubernetes.io/control-plane": ""}}})
			_, err := me.CoreV1().Nodes().Patch(ctx, "n1", types.MergePatchType, data, metav1.PatchOptions{})
			return err
		},
		"no taints": func() error {
			data := patch(map[string]any{"spec": map[string]any{"taints": nil}})
			_, err := me.CoreV1().Nodes().Patch(ctx, "n1", types.MergePatchType, data, metav1.PatchOptions{})
			return err
		},
		"a pod": func() error {
			_, err := me.CoreV1().Pods(ns).Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "mine"}, Spec: corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "c", Image: "i"}}}}, metav1.CreateOptions{})
			return err
		},
		"approval of a request": func() error {
			r, err := admin.CertificatesV1().CertificateSigningRequests().Get(ctx, "node-csr-n2", metav1.GetOptions{})
			if err != nil {
				return err
			}
			_, err = me.CertificatesV1().CertificateSigningRequests().UpdateApproval(ctx, r.Name, r, metav1.UpdateOptions{})
			return err
		},
		"another's certificate": func() error { _, err := clientCertificate(t, identities["n1"], "n2", "csr-of-another"); return err },
		"a certificate of something before": func() error {
			_, err := clientCertificate(t, identities["n1"], "n1x", "csr-of-a-longer-name")
			return err
		},
		"another's lease": func() error {
			_, err := me.CoordinationV1().Leases("kube-node-lease").Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "n3"}}, metav1.CreateOptions{})
			return err
		},
	} {
		if err := do(); !apierrors.IsForbidden(err) {
			t.Errorf("node n1: %s = %v, want Forbidden", what, err)
		}
	}
	// A node may write a mirror pod, which gives it no rights.
	node, err := me.CoreV1().Nodes().Get(ctx, "n1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	yes := true
	mirror := func(change func(*corev1.Pod)) error {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Name: "static-n1", Annotations: map[string]string{corev1.MirrorPodAnnotationKey: "hash"},
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n1", UID: node.UID, Controller: &yes}},
			},
			Spec: corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}
		change(pod)
		_, err := me.CoreV1().Pods(ns).Create(ctx, pod, metav1.CreateOptions{})
		return err
	}
	if err := mirror(func(p *corev1.Pod) {
		p.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "config-n2"}}}}
	}); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "can not create pods that reference configmaps") {
		t.Errorf("Create of a mirror pod with another node's ConfigMap = %v, want Forbidden", err)
	}
	if err := mirror(func(*corev1.Pod) {}); err != nil {
		t.Errorf("Create of a mirror pod failed: %v, want no error", err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestNonCASigningCertificateIsRejected(t *testing.T) {
	c := Default()
	c.DataDir, c.SecurePort = t.TempDir(), 0
	c.Signing.KubeletServing = KeyFiles{filepath.Join(c.DataDir, "pki", "serving.crt"), filepath.Join(c.DataDir, "pki", "serving.key")}
	_, err := prepare(t.Context(), &c, zap.NewNop())
	if err == nil || !strings.Contains(err.Error(), "--cluster-signing-kubelet-serving-cert-file: the certificate of ") || !strings.Contains(err.Error(), "is not one of a CA") {
		t.Errorf("prepare with a signing certificate that is not a CA: error = %v, want one that names the flag", err)
	}
}
