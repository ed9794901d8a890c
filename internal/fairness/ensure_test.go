package fairness_test

import (
	"context"
	"maps"
	"testing"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"
	"k8s.io/utils/ptr"

	"portico.dev/internal/fairness"
)

// keep lets fairness ensure the stored objects once.
func (w *testEnv) keep(t *testing.T) {
	t.Helper()
	f, err := fairness.New(fairness.Config{Client: w.client, Seats: 600})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx) }()
	select {
	case <-f.Ready():
	case err := <-ended:
		t.Fatalf("Run ended before it was ready: %v, want it to run", err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}

// generations returns the number of writes of the spec of each object.
func (w *testEnv) generations(t *testing.T) map[string]int64 {
	t.Helper()
	api, found := w.client.FlowcontrolV1(), map[string]int64{}
	schemas, err := api.FlowSchemas().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range schemas.Items {
		found["schema "+s.Name] = s.Generation
	}
	levels, err := api.PriorityLevelConfigurations().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range levels.Items {
		found["level "+l.Name] = l.Generation
	}
	return found
}

func TestStartCreatesDefaultObjectsOnce(t *testing.T) {
	w := newTestEnv(t)
	w.keep(t)
	want := map[string]int64{}
	for _, s := range append(append([]*flowcontrolv1.FlowSchema(nil), bootstrap.MandatoryFlowSchemas...), bootstrap.SuggestedFlowSchemas...) {
		want["schema "+s.Name] = 1
	}
	for _, l := range append(append([]*flowcontrolv1.PriorityLevelConfiguration(nil), bootstrap.MandatoryPriorityLevelConfigurations...), bootstrap.SuggestedPriorityLevelConfigurations...) {
		want["level "+l.Name] = 1
	}
	if got := w.generations(t); !maps.Equal(got, want) {
		t.Errorf("created objects = %v\nwant %v", got, want)
	}
	level, err := w.client.FlowcontrolV1().PriorityLevelConfigurations().Get(t.Context(), "workload-low", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w.keep(t)
	if got := w.generations(t); !maps.Equal(got, want) {
		t.Errorf("generations after a second start = %v, want %v", got, want)
	}
	again, err := w.client.FlowcontrolV1().PriorityLevelConfigurations().Get(t.Context(), "workload-low", metav1.GetOptions{})
	if err != nil || again.ResourceVersion != level.ResourceVersion {
		t.Errorf("resource version after a second start = %v, error %v, want %v", again.ResourceVersion, err, level.ResourceVersion)
	}
}

func TestOnlyAutoUpdatedConfigurationsAreRestored(t *testing.T) {
	const mine = 7
	for situation, test := range map[string]struct {
		name       string
		annotation *string // nil: none
		changed    bool    // after its creation
		restored   bool
		after      string // the expected annotation
	}{
		"a level that is ours and was changed":        {"workload-low", ptr.To("true"), true, true, "true"},
		"a level that an administrator has taken":     {"workload-low", ptr.To("false"), true, false, "false"},
		"no annotation, as somebody created it":       {"workload-low", nil, false, true, "true"},
		"no annotation, and changed since":            {"workload-low", nil, true, false, "false"},
		"an annotation that says nothing":             {"workload-low", ptr.To("perhaps"), true, false, "false"},
		"a level that nobody suggests, said to be so": {"of-old", ptr.To("false"), false, false, "false"},
		"a level of somebody's own":                   {"mine", nil, true, false, ""},
	} {
		t.Run(situation, func(t *testing.T) {
			t.Parallel()
			w := newTestEnv(t)
			api := w.client.FlowcontrolV1().PriorityLevelConfigurations()
			level := limited(test.name, mine)
			if test.annotation != nil {
				level.Annotations = map[string]string{flowcontrolv1.AutoUpdateAnnotationKey: *test.annotation}
			}
			if test.changed {
				level.Spec.Limited.NominalConcurrencyShares = ptr.To[int32](mine + 1)
			}
			created, err := api.Create(t.Context(), level, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if test.changed {
				created.Spec.Limited.NominalConcurrencyShares = ptr.To[int32](mine)
				if _, err := api.Update(t.Context(), created, metav1.UpdateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			w.keep(t)
			found, err := api.Get(t.Context(), test.name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			shares, said := *found.Spec.Limited.NominalConcurrencyShares, found.Annotations[flowcontrolv1.AutoUpdateAnnotationKey]
			if (shares != mine) != test.restored || said != test.after {
				t.Errorf("shares = %d, annotation = %q, want restored: %t and annotation %q", shares, said, test.restored, test.after)
			}
		})
	}
}

func limited(name string, shares int32) *flowcontrolv1.PriorityLevelConfiguration {
	return &flowcontrolv1.PriorityLevelConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: flowcontrolv1.PriorityLevelConfigurationSpec{
			Type: flowcontrolv1.PriorityLevelEnablementLimited,
			Limited: &flowcontrolv1.LimitedPriorityLevelConfiguration{
				NominalConcurrencyShares: ptr.To(shares), BorrowingLimitPercent: ptr.To[int32](0),
				LimitResponse: flowcontrolv1.LimitResponse{Type: flowcontrolv1.LimitResponseTypeReject},
			},
		},
	}
}

func TestConfigurationChangesTakeEffect(t *testing.T) {
	w := newTestEnv(t)
	f, err := fairness.New(fairness.Config{Client: w.client, Seats: 600})
	if err != nil {
		t.Fatal(err)
	}
	if turn := enter(t.Context(), f, admin, pods); turn.Admitted || turn.RetryAfter < 1 {
		t.Errorf("reservation before the first configuration = %+v, want a refusal with RetryAfter", turn)
	}
	// Objects from before the start: a suggested object of an earlier release and a changed exempt level.
	api := w.client.FlowcontrolV1()
	old := limited("of-old", 7)
	old.Annotations = map[string]string{flowcontrolv1.AutoUpdateAnnotationKey: "true"}
	if _, err := api.PriorityLevelConfigurations().Create(t.Context(), old, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	tuned := bootstrap.MandatoryPriorityLevelConfigurationExempt.DeepCopy()
	tuned.Annotations, tuned.Spec.Exempt.LendablePercent = nil, ptr.To[int32](40)
	if _, err := api.PriorityLevelConfigurations().Create(t.Context(), tuned, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	runUntilEnd(t, f.Run, f.Ready())
	if _, err := api.PriorityLevelConfigurations().Get(t.Context(), "of-old", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("Get of an object that is no longer suggested: error = %v, want NotFound", err)
	}
	found, err := api.PriorityLevelConfigurations().Get(t.Context(), "exempt", metav1.GetOptions{})
	if err != nil || *found.Spec.Exempt.LendablePercent != 40 || found.Annotations[flowcontrolv1.AutoUpdateAnnotationKey] != "true" {
		t.Errorf("exempt level = %+v, error %v, want lendablePercent 40 and automatic updates", found, err)
	}
	for _, name := range []string{"catch-all", "service-accounts"} {
		if err := api.FlowSchemas().Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		eventually(t, name+" is back", func() bool {
			_, err := api.FlowSchemas().Get(t.Context(), name, metav1.GetOptions{})
			return err == nil
		})
	}
	eventually(t, "the schemas say that their levels exist", func() bool {
		schemas, err := api.FlowSchemas().List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range schemas.Items {
			if len(s.Status.Conditions) != 1 || s.Status.Conditions[0].Status != flowcontrolv1.ConditionFalse {
				return false
			}
		}
		return true
	})
}
