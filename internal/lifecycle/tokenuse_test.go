package lifecycle

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clienttesting "k8s.io/client-go/testing"
)

func TestUsesOfTokensAreWrittenDownOnceADay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the clock of a bubble begins on 2000-01-01
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "robot", UID: "s-1"}}
		w := newWorld(t, secret)
		ctx, cancel := context.WithCancel(t.Context())
		c := New(w.config())
		w.informer.Start(ctx.Done())
		done := make(chan error, 1)
		go func() { done <- c.Run(ctx) }()
		<-c.Ready()
		settled(soon)
		tracking, err := w.client.CoreV1().ConfigMaps("kube-system").Get(ctx, trackingName, metav1.GetOptions{})
		if err != nil || fmt.Sprint(tracking.Data) != "map[since:2000-01-01]" {
			t.Errorf("since: %v, %v", tracking, err)
		}
		use := func(day string, writes int) {
			t.Helper()
			w.client.ClearActions()
			for range 3 { // the Secret as the caches have it: without the label, then with it
				c.TokenUsed(secret)
			}
			settled(soon)
			if secret, err = w.client.CoreV1().Secrets("ci").Get(ctx, "robot", metav1.GetOptions{}); err != nil || secret.Labels[lastUsedLabel] != day {
				t.Errorf("label %q, want %q; %v", secret.Labels[lastUsedLabel], day, err)
			}
			patched := 0
			for _, a := range w.client.Actions() {
				if p, ok := a.(clienttesting.PatchAction); ok && p.GetName() == "robot" {
					patched++
					if !strings.Contains(string(p.GetPatch()), `"uid":"s-1"`) {
						t.Errorf("another Secret of that name could be meant: %s", p.GetPatch())
					}
				}
			}
			if patched != writes {
				t.Errorf("%s: written %d times, want %d", day, patched, writes)
			}
		}
		use("2000-01-01", 1)
		use("2000-01-01", 0)
		settled(24 * time.Hour)
		use("2000-01-02", 1)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		w.informer.Shutdown()
	})
}

func TestSinceWhenIsKept(t *testing.T) {
	for name, c := range map[string]struct{ there, want string }{
		"an earlier day":     {"1999-05-04", "1999-05-04"},
		"what is not a day":  {"yesterday", "2000-01-01"},
		"nothing in the map": {"", "2000-01-01"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: trackingName},
					Data: map[string]string{trackingSince: c.there}})
				if err := newTokenUse(w.client, w.config().Logger).publish(t.Context()); err != nil {
					t.Fatal(err)
				}
				m, err := w.client.CoreV1().ConfigMaps("kube-system").Get(t.Context(), trackingName, metav1.GetOptions{})
				if err != nil || m.Data[trackingSince] != c.want {
					t.Errorf("%v, %v", m.Data, err)
				}
			})
		})
	}
}
