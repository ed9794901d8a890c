package lifecycle

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico.dev/internal/lifecycle/certificates"
	"portico.dev/internal/lifecycle/quotas"
)

func TestControllerChoiceMatchesUpstreamSyntax(t *testing.T) {
	for name, c := range map[string]struct {
		choice           Choice
		namespaces, root bool
		wrong            bool
	}{
		"by default all":                        {EveryController(), true, true, false},
		"nobody's choice":                       {nil, true, true, false},
		"none":                                  {Choice{}, false, false, false},
		"all but one":                           {Choice{"*", "-" + NamespaceController}, false, true, false},
		"all but one, the other way round":      {Choice{"-" + NamespaceController, "*"}, false, true, false},
		"one alone":                             {Choice{RootCAPublisher}, false, true, false},
		"none but what is named, as upstream":   {Choice{"-" + NamespaceController}, false, false, false},
		"the first word counts":                 {Choice{NamespaceController, "-" + NamespaceController}, true, false, false},
		"one that upstream has and we have not": {Choice{"*", "-deployment-controller"}, true, true, true},
		"upstream's name of old":                {Choice{"*", "-namespace"}, true, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			if n, r := c.choice.Runs(NamespaceController), c.choice.Runs(RootCAPublisher); n != c.namespaces || r != c.root {
				t.Errorf("Runs(namespaces) = %v, Runs(root CA) = %v, want %v and %v", n, r, c.namespaces, c.root)
			}
			if err := c.choice.Check(); (err != nil) != c.wrong {
				t.Errorf("Check() error = %v, want an error %t", err, c.wrong)
			}
		})
	}
}

func TestEachControllerCanBeDisabled(t *testing.T) {
	w := newEnv(t)
	cfg := w.config() // with everything that a controller requires
	cfg.ClusterRoles, cfg.Discovery = w.informer.Rbac().V1().ClusterRoles(), w.client.Discovery()
	cfg.Quotas = quotas.Config{
		Quotas:  w.informer.Core().V1().ResourceQuotas(),
		Measure: func(context.Context, *corev1.ResourceQuota) (corev1.ResourceList, error) { return nil, nil },
	}
	cfg.Certificates.Signers = []certificates.Signer{{Name: "example.com/signer"}}
	without := func(gone ...string) (rest []string) {
		gone = append(gone, GarbageCollector, BootstrapSigner, TokenCleaner) // one is created by another function, two must be named
		for _, name := range choosable {
			if !slices.Contains(gone, name) {
				rest = append(rest, name)
			}
		}
		return rest
	}
	cases := map[string]struct {
		choice Choice
		want   []string
	}{"nobody's choice": {nil, without()}, "all": {EveryController(), without()}, "none": {Choice{}, nil}}
	for _, name := range choosable {
		cases["all but "+name] = struct {
			choice Choice
			want   []string
		}{Choice{"*", "-" + name}, without(name)}
	}
	type choice = struct {
		choice Choice
		want   []string
	}
	cases["all, and one that must be named"] = choice{Choice{"*", TokenCleaner}, append(without(), TokenCleaner)}
	cases["those that must be named"] = choice{Choice{TokenCleaner, BootstrapSigner}, []string{BootstrapSigner, TokenCleaner}}
	cases["one that must be named, not"] = choice{Choice{"-" + TokenCleaner, TokenCleaner, "*"}, without()}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			cfg.Choice = c.choice
			made := New(cfg)
			var got []string
			for _, name := range choosable {
				if slices.ContainsFunc(made.all, func(one controller) bool { return one.name == name }) {
					got = append(got, name)
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("controllers = %q, want %q", got, c.want)
			}
		})
	}
}

// Without keys there is no signer, and the controllers that depend on signing run only if they are named.
func TestCSRControllersWithoutKeysRunOnlyIfNamed(t *testing.T) {
	cfg := newEnv(t).config()
	for name, c := range map[string]struct {
		choice Choice
		want   string
	}{
		"all":                  {EveryController(), ""},
		"nobody's choice":      {nil, ""},
		"the cleaner":          {Choice{"*", CSRCleaner}, CSRCleaner},
		"the approver":         {Choice{CSRApproving}, CSRApproving},
		"the signer":           {Choice{CSRSigning}, ""}, // Validate refuses it
		"neither of them, not": {Choice{"-" + CSRCleaner, "-" + CSRApproving, "*"}, ""},
	} {
		cfg.Choice = c.choice
		var got []string
		for _, one := range New(cfg).all {
			if strings.HasPrefix(one.name, "certificatesigningrequest-") {
				got = append(got, one.name)
			}
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: controllers = %q, want %q", name, got, c.want)
		}
	}
}

// A separate kube-controller-manager runs the controllers that are not chosen here. Running them here too would undo its
// conditions and conflict with its writes.
func TestDisabledControllersDoNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newEnv(t, terminating("doomed", "1"))
		cfg := w.config()
		cfg.Choice = Choice{}
		ctx, cancel := context.WithCancel(t.Context())
		c := New(cfg)
		w.informer.Start(ctx.Done())
		done := make(chan error, 1)
		go func() { done <- c.Run(ctx) }()
		<-c.Ready()
		settled(soon)
		if w.gone("doomed") {
			t.Error("namespace doomed was finalized although the namespace controller is not chosen, want it kept")
		}
		if w.gone("kube-system") {
			t.Error("namespace kube-system is missing, want it created as by kube-apiserver")
		}
		if _, err := w.client.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("Get of service account default: error = %v, want NotFound", err)
		}
		if _, err := w.client.CoreV1().ConfigMaps("default").Get(ctx, "kube-root-ca.crt", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("Get of configmap kube-root-ca.crt: error = %v, want NotFound", err)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		w.informer.Shutdown()
	})
}
