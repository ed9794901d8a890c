package clients

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico.dev/e2e/programs"
	"portico.dev/internal/pki"
)

// restart stops and restarts the front door during writes without a pause. It returns the names of the acknowledged ConfigMaps.
func (w *testEnv) restart(namespace string) (made []string) {
	w.t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	wrote := make(chan string)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for i := 0; ctx.Err() == nil; i++ {
			if name := fmt.Sprintf("churn-%d", i); w.make(ctx, namespace, name) == nil {
				wrote <- name
			}
			pause(ctx, 20*time.Millisecond)
		}
	}()
	until := func(n int) {
		w.t.Helper()
		deadline := time.After(programs.Patience)
		for ; n > 0; n-- {
			select {
			case name := <-wrote:
				made = append(made, name)
			case <-deadline:
				stop()
				w.t.Fatalf("no write succeeded after %s, want one; see %s", programs.Patience, w.path("front-door.log"))
			}
		}
	}
	until(10)
	drained := make(chan struct{})
	go func() { // the writes during the shutdown
		defer close(drained)
		for {
			select {
			case name := <-wrote:
				made = append(made, name)
			case <-w.frontDoor.Exited():
				return
			}
		}
	}()
	w.shut()
	<-drained
	w.queue(w.t, namespace+"/meanwhile", 7)
	w.open()
	until(10)
	stop()
	for {
		select {
		case name := <-wrote:
			made = append(made, name)
		case <-ended:
			return made
		}
	}
}

func (w *testEnv) make(ctx context.Context, namespace, name string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	_, err := w.typed.CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	return err
}

// rotate makes the front door use a certificate of the next authority, and removes the old authority from the kubeconfigs of
// programs that start later.
func (w *testEnv) rotate() {
	w.t.Helper()
	w.show(w.next)
	w.eventually("a certificate of the next authority", func(context.Context) error {
		c, err := tls.Dial("tcp", w.address(), w.trusting(w.next))
		if err != nil {
			return err
		}
		return c.Close()
	})
	w.write(w.t, "ca.crt", w.next.PEM())
}

// trusting returns the TLS configuration of a client that trusts these authorities.
func (w *testEnv) trusting(authorities ...*pki.Authority) *tls.Config {
	w.t.Helper()
	var roots []string
	for _, a := range authorities {
		roots = append(roots, string(a.PEM()))
	}
	bundle, err := pki.StaticBundle([]byte(strings.Join(roots, "")))
	if err != nil {
		w.t.Fatal(err)
	}
	return &tls.Config{RootCAs: bundle.Pool(), ServerName: "localhost", MinVersion: tls.VersionTLS12}
}

// namespace creates a namespace.
func (w *testEnv) namespace(t *testing.T, name string) {
	t.Helper()
	eventually(t, "make namespace "+name, func(ctx context.Context) error {
		_, err := w.typed.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	})
}

// empty deletes a namespace and waits until it does not exist any more.
func (w *testEnv) empty(t *testing.T, name string) {
	t.Helper()
	namespaces := w.typed.CoreV1().Namespaces()
	if err := namespaces.Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "namespace "+name, func(ctx context.Context) error {
		n, err := namespaces.Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return err
		}
		return errors.Join(errStill, fmt.Errorf("%v", n.Status.Conditions))
	})
}

func cutKey(key string) (namespace, name string, ok bool) { return strings.Cut(key, "/") }

// pause waits, unless ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
