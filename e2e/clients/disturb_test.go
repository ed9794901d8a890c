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

// restart ends the front door and starts it again, while somebody writes as fast as it lets him. It returns the names of
// the ConfigMaps that he was told he had made.
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
				w.t.Fatalf("nothing is written after %s; see %s", programs.Patience, w.path("front-door.log"))
			}
		}
	}
	until(10)
	drained := make(chan struct{})
	go func() { // what he writes while it closes
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

// rotate makes the front door show a certificate of the next authority, and takes the old one out of what programs trust
// that start from now on.
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

// trusting is how the front door is looked at by somebody who trusts these.
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

// namespace makes one.
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

// empty deletes a namespace and waits until it has gone.
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
