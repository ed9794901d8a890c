package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	clienttesting "k8s.io/client-go/testing"
)

func TestTokenUseIsRecordedOncePerDay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the clock of a bubble begins on 2000-01-01
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "robot", UID: "s-1"}}
		w := newEnv(t, secret)
		ctx, cancel := context.WithCancel(t.Context())
		c := New(w.config())
		w.informer.Start(ctx.Done())
		done := make(chan error, 1)
		go func() { done <- c.Run(ctx) }()
		<-c.Ready()
		settled(soon)
		tracking, err := w.client.CoreV1().ConfigMaps("kube-system").Get(ctx, trackingName, metav1.GetOptions{})
		if err != nil || fmt.Sprint(tracking.Data) != "map[since:2000-01-01]" {
			t.Errorf("tracking ConfigMap = %v, error %v, want since 2000-01-01", tracking, err)
		}
		use := func(day string, writes int) {
			t.Helper()
			w.client.ClearActions()
			for range 3 { // the Secret as it is in the caches: first without the label, then with it
				c.TokenUsed(secret)
			}
			settled(soon)
			if secret, err = w.client.CoreV1().Secrets("ci").Get(ctx, "robot", metav1.GetOptions{}); err != nil || secret.Labels[lastUsedLabel] != day {
				t.Errorf("label %s = %q, error %v, want %q", lastUsedLabel, secret.Labels[lastUsedLabel], err, day)
			}
			patched := 0
			for _, a := range w.client.Actions() {
				if p, ok := a.(clienttesting.PatchAction); ok && p.GetName() == "robot" {
					patched++
					if !strings.Contains(string(p.GetPatch()), `"uid":"s-1"`) {
						t.Errorf("patch = %s, want uid s-1: without it another Secret of that name could be changed", p.GetPatch())
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

// writingUses runs u until the returned function is called.
func writingUses(t *testing.T, u *tokenUse) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- u.run(ctx) }()
	return func() {
		t.Helper()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func usedOn(t *testing.T, w *env, s *corev1.Secret) string {
	t.Helper()
	s, err := w.client.CoreV1().Secrets(s.Namespace).Get(t.Context(), s.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return s.Labels[lastUsedLabel]
}

func TestLastUsedDayNeverDecreases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for day, want := range map[string]int{
			"1999-12-31": 1, "2000-01-01": 0, "2000-01-02": 0, // of a replica whose clock is ahead
			"2000-01-03": 1, "never": 1,
		} {
			u := newTokenUse(nil, zap.NewNop())
			u.note(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{UID: "s-1", Labels: map[string]string{lastUsedLabel: day}}})
			if got := len(u.used); got != want {
				t.Errorf("%s: noted %d uses, want %d", day, got, want)
			}
		}
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "robot", UID: "s-1"}}
		w := newEnv(t, secret)
		u := newTokenUse(w.client, zap.NewNop())
		u.note(secret)
		settled(24 * time.Hour) // another replica may have written the new day meanwhile
		stop := writingUses(t, u)
		settled(soon)
		if day := usedOn(t, w, secret); day != "2000-01-02" {
			t.Errorf("last use of a use that waited past midnight = %s, want 2000-01-02", day)
		}
		stop()
	})
}

func TestTokenUseBeyondQueueIsRecordedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newEnv(t)
		secrets := make([]*corev1.Secret, usesAtOnce+1)
		for i := range secrets {
			name := fmt.Sprint("robot-", i)
			secrets[i] = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: name, UID: types.UID(name)}}
			if err := w.client.Tracker().Add(secrets[i]); err != nil {
				t.Fatal(err)
			}
		}
		u := newTokenUse(w.client, zap.NewNop())
		for _, s := range secrets {
			u.note(s) // would block here if note waited for room
		}
		stop := writingUses(t, u)
		settled(soon)
		fits, late := secrets[usesAtOnce-1], secrets[usesAtOnce]
		if a, b := usedOn(t, w, fits), usedOn(t, w, late); a != "2000-01-01" || b != "" {
			t.Errorf("last use of the last one that fits = %q, of the next one = %q, want 2000-01-01 and none", a, b)
		}
		u.note(late)
		settled(soon)
		if day := usedOn(t, w, late); day != "2000-01-01" {
			t.Errorf("last use after the second note = %q, want 2000-01-01", day)
		}
		stop()
	})
}

func TestExpectedErrorsOfTokenUseWritesAreIgnored(t *testing.T) {
	kind := schema.GroupKind{Kind: "Secret"}
	refusal := func(path *field.Path) error {
		return apierrors.NewInvalid(kind, "robot", field.ErrorList{field.Invalid(path, "s-1", "field is immutable")})
	}
	for name, c := range map[string]struct {
		answer  error
		trouble bool
	}{
		"the Secret is gone":         {apierrors.NewNotFound(corev1.Resource("secrets"), "robot"), false},
		"it was written meanwhile":   {apierrors.NewConflict(corev1.Resource("secrets"), "robot", nil), false},
		"it was made anew":           {refusal(field.NewPath("metadata", "uid")), false},
		"the label is refused":       {refusal(field.NewPath("metadata", "labels")), true},
		"a policy refuses it":        {apierrors.NewInvalid(kind, "robot", nil), true},
		"storage does not answer it": {apierrors.NewServiceUnavailable("no leader"), true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newEnv(t)
			w.client.PrependReactor("patch", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, c.answer })
			err := newTokenUse(w.client, zap.NewNop()).write(t.Context(), use{types.NamespacedName{Namespace: "ci", Name: "robot"}, "s-1"})
			if (err != nil) != c.trouble {
				t.Errorf("write() error = %v, want an error %t", err, c.trouble)
			}
		})
	}
}

func TestTrackingStartErrorsExceptConflictsAreReturned(t *testing.T) {
	broken := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: trackingName}}
	away := apierrors.NewServiceUnavailable("no leader")
	for name, c := range map[string]struct {
		there  []runtime.Object
		verb   string
		answer error
		want   string // prefix of the error; empty: no error
	}{
		"it cannot be read":                {nil, "get", away, "get configmap " + trackingName + ": "},
		"it cannot be made":                {nil, "create", away, "create configmap " + trackingName + ": "},
		"another replica makes it as well": {nil, "create", apierrors.NewAlreadyExists(corev1.Resource("configmaps"), trackingName), ""},
		"it cannot be updated":             {[]runtime.Object{broken}, "update", away, "update configmap " + trackingName + ": "},
		"another replica mends it as well": {[]runtime.Object{broken}, "update", apierrors.NewConflict(corev1.Resource("configmaps"), trackingName, nil), ""},
		"somebody takes it away meanwhile": {[]runtime.Object{broken}, "update", apierrors.NewNotFound(corev1.Resource("configmaps"), trackingName), "update"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newEnv(t, c.there...)
			w.client.PrependReactor(c.verb, "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, c.answer })
			err := newTokenUse(w.client, zap.NewNop()).publish(t.Context())
			if (err != nil) != (c.want != "") || err != nil && (!strings.HasPrefix(err.Error(), c.want) || !errors.Is(err, c.answer)) {
				t.Errorf("publish() error = %v, want prefix %q", err, c.want)
			}
		})
	}
}

func TestValidTrackingStartDateIsKept(t *testing.T) {
	for name, c := range map[string]struct{ there, want string }{
		"an earlier day":     {"1999-05-04", "1999-05-04"},
		"what is not a day":  {"yesterday", "2000-01-01"},
		"nothing in the map": {"", "2000-01-01"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newEnv(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: trackingName},
					Data: map[string]string{trackingSince: c.there}})
				if err := newTokenUse(w.client, w.config().Logger).publish(t.Context()); err != nil {
					t.Fatal(err)
				}
				m, err := w.client.CoreV1().ConfigMaps("kube-system").Get(t.Context(), trackingName, metav1.GetOptions{})
				if err != nil || m.Data[trackingSince] != c.want {
					t.Errorf("data = %v, error %v, want since %s", m.Data, err, c.want)
				}
			})
		})
	}
}
