package bootstrap

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap/zaptest"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/cluster-bootstrap/token/jws"

	"portico.dev/internal/clients/clientstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const kubeconfig = "apiVersion: v1\nkind: Config\n"

func clusterInfo(data ...string) *corev1.ConfigMap {
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-public", Name: "cluster-info"}, Data: map[string]string{"kubeconfig": kubeconfig}}
	for i := 0; i < len(data); i += 2 {
		m.Data[data[i]] = data[i+1]
	}
	return m
}

// token returns the Secret of a token that is allowed to sign.
func token(id string, data ...string) *corev1.Secret {
	s := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "bootstrap-token-" + id, UID: "uid"}, Type: "bootstrap.kubernetes.io/token",
		Data: map[string][]byte{"token-id": []byte(id), "token-secret": []byte("circumnavigation"), "usage-bootstrap-signing": []byte("true")},
	}
	for i := 0; i < len(data); i += 2 {
		s.Data[data[i]] = []byte(data[i+1])
	}
	return s
}

func signed(m *corev1.ConfigMap) (ids []string) {
	for key := range m.Data {
		if id, ok := strings.CutPrefix(key, "jws-kubeconfig-"); ok {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

func TestOnlyValidSigningTokensSign(t *testing.T) {
	now := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	named := func(name string, s *corev1.Secret) *corev1.Secret { s.Name = name; return s }
	typed := func(kind string, s *corev1.Secret) *corev1.Secret { s.Type = corev1.SecretType(kind); return s }
	for name, c := range map[string]struct {
		secret *corev1.Secret
		want   string
		again  time.Duration
	}{
		"a token":               {token("abcdef"), "abcdef", 0},
		"that expires":          {token("abcdef", "expiration", "2026-07-01T13:00:00Z"), "abcdef", time.Hour},
		"that has expired":      {token("abcdef", "expiration", "2026-07-01T12:00:00Z"), "", 0},
		"whose expiry is none":  {token("abcdef", "expiration", "never"), "", 0},
		"not for signing":       {token("abcdef", "usage-bootstrap-signing", "false"), "", 0},
		"without a secret":      {token("abcdef", "token-secret", ""), "", 0},
		"without an id":         {token("abcdef", "token-id", ""), "", 0},
		"with another id":       {token("abcdef", "token-id", "fedcba"), "", 0},
		"under another name":    {named("token", token("abcdef")), "", 0},
		"under a longer name":   {named("bootstrap-token-abcdefg", token("abcdef")), "", 0},
		"a Secret of its own":   {typed("Opaque", token("abcdef")), "", 0},
		"one of two that exist": {token("123456"), "123456", 0},
	} {
		t.Run(name, func(t *testing.T) {
			got, again, err := sign(clusterInfo("other", "kept"), []*corev1.Secret{c.secret}, now)
			if err != nil || again != c.again {
				t.Fatalf("sign() = retry after %s, error %v, want %s and no error", again, err, c.again)
			}
			if c.want == "" {
				if got != nil {
					t.Errorf("sign() = %v, want no signature", got.Data)
				}
				return
			}
			signature := got.Data["jws-kubeconfig-"+c.want]
			if !jws.DetachedTokenIsValid(signature, kubeconfig, c.want, "circumnavigation") || got.Data["other"] != "kept" || got.Data["kubeconfig"] != kubeconfig {
				t.Errorf("signed ConfigMap = %v, want a valid signature of token %q and the other keys unchanged", got.Data, c.want)
			}
		})
	}
}

func TestSignaturesAreWrittenOnlyOnChange(t *testing.T) {
	now := time.Now()
	good, _, err := sign(clusterInfo(), []*corev1.Secret{token("abcdef")}, now)
	if err != nil {
		t.Fatal(err)
	}
	if again, _, err := sign(good, []*corev1.Secret{token("abcdef")}, now); again != nil || err != nil {
		t.Errorf("sign() of a signed ConfigMap = %v, error %v, want no change and no error", again, err)
	}
	gone, _, err := sign(good, nil, now)
	if err != nil || gone == nil || len(signed(gone)) > 0 {
		t.Errorf("sign() without the token = %v, error %v, want a ConfigMap without signatures", gone, err)
	}
	forged := clusterInfo("jws-kubeconfig-abcdef", "eyJhbGciOiJIUzI1NiJ9..forged")
	if mended, _, err := sign(forged, []*corev1.Secret{token("abcdef")}, now); err != nil || mended == nil || mended.Data["jws-kubeconfig-abcdef"] != good.Data["jws-kubeconfig-abcdef"] {
		t.Errorf("sign() of a forged signature = %v, error %v, want the signature of %v", mended, err, good)
	}
	empty := clusterInfo()
	delete(empty.Data, "kubeconfig")
	if got, _, err := sign(empty, []*corev1.Secret{token("abcdef")}, now); got != nil || err != nil {
		t.Errorf("sign() without a kubeconfig = %v, error %v, want no change and no error", got, err)
	}
}

// running runs both controllers in a bubble.
func running(t *testing.T, test func(client *fake.Clientset), objects ...runtime.Object) {
	synctest.Test(t, func(t *testing.T) {
		client := clientstest.NewClientset(objects...)
		factory := informers.NewSharedInformerFactory(client, 0)
		c := Config{Client: client, Secrets: factory.Core().V1().Secrets(), Logger: zaptest.NewLogger(t)}
		c.Secrets.Informer()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 2)
		go func() { done <- RunSigner(ctx, c) }()
		go func() { done <- RunCleaner(ctx, c) }()
		factory.Start(ctx.Done())
		time.Sleep(time.Second)
		synctest.Wait()
		test(client)
		cancel()
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		factory.Shutdown()
	})
}

func TestExpiredTokensAndSignaturesAreDeleted(t *testing.T) {
	other := token("other1")
	other.Namespace = "default" // in another namespace a Secret is not a token, and is not deleted
	other.Data["expiration"] = []byte("1999-01-01T00:00:00Z")
	running(t, func(client *fake.Clientset) {
		ids := func() string {
			m, err := client.CoreV1().ConfigMaps("kube-public").Get(t.Context(), "cluster-info", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return strings.Join(signed(m), " ")
		}
		there := func() string {
			all, err := client.CoreV1().Secrets("").List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, s := range all.Items {
				names = append(names, strings.TrimPrefix(s.Name, "bootstrap-token-"))
			}
			slices.Sort(names)
			return strings.Join(names, " ")
		}
		settle := func(d time.Duration) { time.Sleep(d); synctest.Wait() }
		if got, secrets := ids(), there(); got != "abcdef" || secrets != "abcdef other1" {
			t.Errorf("after the start: signed by %q, tokens %q, want %q and %q", got, secrets, "abcdef", "abcdef other1")
		}
		late := token("123456", "expiration", time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
		if _, err := client.CoreV1().Secrets("kube-system").Create(t.Context(), late, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		settle(time.Second)
		if got := ids(); got != "123456 abcdef" {
			t.Errorf("signed by %q after a token was added, want %q", got, "123456 abcdef")
		}
		settle(time.Hour)
		if got, secrets := ids(), there(); got != "abcdef" || secrets != "abcdef other1" {
			t.Errorf("after the token expired: signed by %q, tokens %q, want %q and %q", got, secrets, "abcdef", "abcdef other1")
		}
	}, clusterInfo(), token("abcdef"), token("old123", "expiration", "1999-01-01T00:00:00Z"), token("bad123", "expiration", "never"), other)
}

func TestClusterInfoCreatedLaterIsSigned(t *testing.T) {
	running(t, func(client *fake.Clientset) {
		if _, err := client.CoreV1().ConfigMaps("kube-public").Create(t.Context(), clusterInfo(), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		m, err := client.CoreV1().ConfigMaps("kube-public").Get(t.Context(), "cluster-info", metav1.GetOptions{})
		if err != nil || len(signed(m)) != 1 {
			t.Errorf("ConfigMap that was created after the start = %v, error %v, want 1 signature", m, err)
		}
	}, token("abcdef"))
}
