package aggregator

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"portico.dev/internal/pki"
)

// Controllers outside --controllers do not start. The listed ones run.
func TestUnlistedControllersDoNotStart(t *testing.T) {
	t.Parallel()
	config, stop := open(t, t.TempDir(), func(c *Config) {
		c.Controllers = []string{"*", "-serviceaccount-controller"}
	})
	client, ctx := kubernetes.NewForConfigOrDie(config), t.Context()
	if _, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	// Published by a controller that runs, after the namespaces of the start have been furnished.
	err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		_, err := client.CoreV1().ConfigMaps("team").Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return err == nil, err
	})
	if err != nil {
		t.Errorf("kube-root-ca.crt: %v, want it created", err)
	}
	// A start with this controller enabled creates the account before it serves requests.
	if _, err := client.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("Get of the service account default = %v, want NotFound", err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// The flag decides whether the garbage collector runs. An empty flag differs from the default.
func TestControllersFlagSelectsGarbageCollector(t *testing.T) {
	for name, c := range map[string]struct {
		args     []string
		collects bool
	}{
		"by default":          {nil, true},
		"all but the one":     {[]string{"--controllers=*,-garbage-collector-controller"}, false},
		"all but another one": {[]string{"--controllers=*,-serviceaccount-controller"}, true},
		"none":                {[]string{"--controllers="}, false},
	} {
		t.Run(name, func(t *testing.T) {
			config, flags := Default(), pflag.NewFlagSet(t.Name(), pflag.ContinueOnError)
			config.AddFlags(flags)
			if err := flags.Parse(c.args); err != nil {
				t.Fatal(err)
			}
			config.DataDir, config.SecurePort = t.TempDir(), 0
			p, err := prepare(t.Context(), &config, zap.NewNop())
			if err != nil {
				t.Fatal(err)
			}
			defer p.listener.Close()
			front, err := wire(config, p, zap.NewNop())
			if err != nil {
				t.Fatal(err)
			}
			if collects := front.collector != nil; collects != c.collects {
				t.Errorf("garbage collector runs = %v, want %v", collects, c.collects)
			}
		})
	}
}

// Replicas with an operator's certificate each have a generated CA that did not sign it. None of them publishes that CA.
func TestPublishedRootCASignedServingCertificate(t *testing.T) {
	authority, err := pki.NewAuthority("the operator's")
	if err != nil {
		t.Fatal(err)
	}
	certPEM, keyPEM, err := authority.Issue(pki.Leaf{CommonName: "api", DNSNames: []string{"api.example.com"}, Server: true})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name string, data []byte) string {
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	cert, key, root := write("tls.crt", certPEM), write("tls.key", keyPEM), write("ca.crt", authority.PEM())
	for name, c := range map[string]struct {
		change func(*Config)
		want   string // the common name of the CA
	}{
		"its own":                         {func(*Config) {}, "portico-ca"},
		"a certificate of the operator's": {func(c *Config) { c.TLSCertFile, c.TLSPrivateKeyFile = cert, key }, ""},
		"with its CA":                     {func(c *Config) { c.TLSCertFile, c.TLSPrivateKeyFile, c.RootCAFile = cert, key, root }, "the operator's"},
	} {
		t.Run(name, func(t *testing.T) {
			config := Default()
			config.DataDir, config.SecurePort = t.TempDir(), 0
			c.change(&config)
			p, err := prepare(t.Context(), &config, zap.NewNop())
			if err != nil {
				t.Fatal(err)
			}
			defer p.listener.Close()
			front, err := wire(config, p, zap.NewNop())
			if err != nil {
				t.Fatal(err)
			}
			published := ""
			if bundle := front.publishedRootCA(); bundle != nil {
				certs, err := pki.ParseBundle(bundle)
				if err != nil {
					t.Fatal(err)
				}
				published = certs[0].Subject.CommonName
			}
			if published != c.want {
				t.Errorf("published %q, want %q", published, c.want)
			}
		})
	}
}

// A kube-controller-manager elects its leader, creates accounts and tokens for its controllers, and watches. The rights of a
// first start are enough for it.
func TestBootstrapRolesSufficeForKubernetesComponents(t *testing.T) {
	t.Parallel()
	config, stop := open(t, t.TempDir())
	admin, ctx := kubernetes.NewForConfigOrDie(config), t.Context()
	as := func(user string) kubernetes.Interface {
		c := *config
		c.Impersonate.UserName = user
		return kubernetes.NewForConfigOrDie(&c)
	}
	for name, try := range map[string]func() error{
		"the controller manager reads extension-apiserver-authentication": func() error {
			_, err := as("system:kube-controller-manager").CoreV1().ConfigMaps("kube-system").Get(ctx, "extension-apiserver-authentication", metav1.GetOptions{})
			return err
		},
		"it makes accounts": func() error {
			_, err := as("system:kube-controller-manager").CoreV1().ServiceAccounts("kube-system").Create(ctx,
				&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "deployment-controller"}}, metav1.CreateOptions{})
			return err
		},
		"it lists everything": func() error {
			_, err := as("system:kube-controller-manager").AppsV1().Deployments("").List(ctx, metav1.ListOptions{})
			return err
		},
		"its controllers read what they control": func() error {
			_, err := as("system:serviceaccount:kube-system:deployment-controller").AppsV1().ReplicaSets("").List(ctx, metav1.ListOptions{})
			return err
		},
		"the scheduler reads pods": func() error {
			_, err := as("system:kube-scheduler").CoreV1().Pods("").List(ctx, metav1.ListOptions{})
			return err
		},
		"the proxy reads endpoints": func() error {
			_, err := as("system:kube-proxy").DiscoveryV1().EndpointSlices("").List(ctx, metav1.ListOptions{})
			return err
		},
	} {
		if err := try(); err != nil {
			t.Errorf("request of a component (%s) failed: %v, want no error", name, err)
		}
	}
	if _, err := as("system:kube-proxy").CoreV1().Secrets("").List(ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("List of Secrets by system:kube-proxy = %v, want Forbidden", err)
	}
	if _, err := admin.RbacV1().ClusterRoles().Get(ctx, "system:node", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}
