package durability

import (
	"context"
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
)

// Requests for a compacted version get 410, with each request type.
func TestWhatWasCompactedIsGone(t *testing.T) {
	d := newFrontDoor(t, "--etcd-compaction-interval", "1s")
	d.start()
	client := d.client()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for i := range 3 {
		if _, err := client.CoreV1().ConfigMaps("default").Create(ctx, object(fmt.Sprintf("k-%d", i), "v", ""), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	first, err := client.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil || first.Continue == "" {
		t.Fatalf("List with a limit = %v, continue %q; want no error and a token", err, first.Continue)
	}
	old := first.ResourceVersion
	for _, way := range []struct {
		name string
		ask  func(context.Context) error
	}{
		{"the next page", func(ctx context.Context) error {
			_, err := client.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{Limit: 1, Continue: first.Continue})
			return err
		}},
		{"a list at exactly that version", func(ctx context.Context) error {
			_, err := client.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{ResourceVersion: old, ResourceVersionMatch: metav1.ResourceVersionMatchExact})
			return err
		}},
		{"a watch from there of what has no cache", func(ctx context.Context) error {
			return firstError(ctx, func() (watch.Interface, error) {
				return client.CoreV1().Events("default").Watch(ctx, metav1.ListOptions{ResourceVersion: old})
			})
		}},
	} {
		t.Run(way.name, func(t *testing.T) { gone(t, d, client, way.ask) })
	}
	t.Run("a watch from there of what has a cache, after a restart", func(t *testing.T) {
		d.stop()
		d.start()
		gone(t, d, client, func(ctx context.Context) error {
			return firstError(ctx, func() (watch.Interface, error) {
				return client.CoreV1().ConfigMaps("default").Watch(ctx, metav1.ListOptions{ResourceVersion: old})
			})
		})
	})
}

// gone waits until ask gets 410. Each attempt makes a new revision, so that there is one to compact.
func gone(t *testing.T, d *frontDoor, client kubernetes.Interface, ask func(context.Context) error) {
	t.Helper()
	d.await("told that it is gone", func(ctx context.Context) error {
		event := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "more-"}}
		if _, err := client.CoreV1().ConfigMaps("default").Create(ctx, event, metav1.CreateOptions{}); err != nil {
			return err
		}
		err := ask(ctx)
		if apierrors.IsResourceExpired(err) && statusCode(err) == 410 {
			return nil
		}
		return errors.Join(errors.New("not 410"), err)
	})
}

// firstError returns the error with which a watch begins, or nil if it begins with an event or is silent for a moment.
func firstError(ctx context.Context, begin func() (watch.Interface, error)) error {
	stream, err := begin()
	if err != nil {
		return err
	}
	defer stream.Stop()
	quiet, cancel := context.WithTimeout(ctx, 10*lookAgain)
	defer cancel()
	select {
	case e := <-stream.ResultChan():
		if e.Type == watch.Error {
			return apierrors.FromObject(e.Object)
		}
	case <-quiet.Done():
	}
	return nil
}
