package lifecycle

import (
	"context"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestWhichControllersRun(t *testing.T) {
	for name, c := range map[string]struct {
		choice           Choice
		namespaces, root bool
		wrong            bool
	}{
		"by default all":                        {EveryController(), true, true, false},
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
				t.Errorf("namespaces %v, root CA %v", n, r)
			}
			if err := c.choice.Check(); (err != nil) != c.wrong {
				t.Error(err)
			}
		})
	}
}

// A kube-controller-manager beside this server does what is left to it: whoever else did it too would undo its conditions
// and be in the way of its writes.
func TestWhatIsLeftToOthersIsNotDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, terminating("doomed", "1"))
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
			t.Error("the namespace was finalized")
		}
		if w.gone("kube-system") {
			t.Error("what kube-apiserver does itself is not done: kube-system is missing")
		}
		if _, err := w.client.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("service account default: %v", err)
		}
		if _, err := w.client.CoreV1().ConfigMaps("default").Get(ctx, rootCAName, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("configmap %s: %v", rootCAName, err)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		w.informer.Shutdown()
	})
}

// Both write the same, so that neither mends what the other wrote.
func TestTheRootCAIsDescribedAsUpstreamDescribesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: rootCAName}, Data: map[string]string{rootCAKey: "root"}})
		running(t, w, func() {
			settled(soon)
			for _, ns := range []string{"default", "kube-system"} { // of an older version, and new
				m, err := w.client.CoreV1().ConfigMaps(ns).Get(t.Context(), rootCAName, metav1.GetOptions{})
				if err != nil || m.Annotations["kubernetes.io/description"] != rootCADescription {
					t.Errorf("%s: %v, %v", ns, m.Annotations, err)
				}
			}
		})
	})
}
