package drill

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico.dev/internal/tools/drill/faulty"
)

// Measures of the garbage collector drill.
const (
	collectorWorks    = "the collector deleted what nobody owns"
	dependentGone     = "dependent of an owner that cannot be seen deleted"
	dependentFollowed = "dependent deleted after its owner was"
)

// collectorDrills returns the drills about the garbage collector and owners that it cannot read.
func collectorDrills() []Drill {
	return []Drill{{
		Name: "gc-owner-behind-dead-server", Title: "a ConfigMap is owned by an object of a server that is dead",
		About: 30 * time.Second, Limit: 4 * time.Minute, Stores: true,
		script: ownBehindTheDead,
		Expect: []Expectation{
			within(90*time.Second, collectorWorks, "the collector is there: a ConfigMap whose owner never was is deleted"),
			stays(dependentGone, "the ConfigMap is not deleted while its owner cannot be seen"),
			within(90*time.Second, dependentFollowed, "when the server is back and the owner is deleted, the ConfigMap goes with it"),
			recoversWithin(5 * time.Second),
		},
	}}
}

// unseen is how long the drill watches the dependent of an owner that cannot be read.
const unseen = 10 * time.Second

func ownBehindTheDead(ctx context.Context, s *Stage) error {
	owner, err := s.ownerNamed(ctx, "kept")
	if err != nil {
		return err
	}
	if err := s.createOwned(ctx, "dependent", owner); err != nil {
		return err
	}
	// The other owner is of a local kind and never existed. The deletion of its dependent shows that the collector is
	// running, so a dependent that survives was kept deliberately.
	nobody := metav1.OwnerReference{APIVersion: "v1", Kind: "Secret", Name: "never-was", UID: "00000000-0000-4000-8000-000000000000"}
	if err := s.createOwned(ctx, "orphan", nobody); err != nil {
		return err
	}
	if err := s.measure(ctx, collectorWorks, 90*time.Second, s.configMapGone(s.Namespace, "orphan")); err != nil {
		return err
	}
	if err := s.breakWith(ctx, faulty.Refuse); err != nil {
		return err
	}
	if err := s.detect(ctx, 20*time.Second); err != nil {
		return err
	}
	// An update makes the collector process the object again, now that the owner cannot be read.
	if err := s.touchConfigMap(ctx, "dependent"); err != nil {
		return err
	}
	if err := s.measure(ctx, dependentGone, unseen, s.configMapGone(s.Namespace, "dependent")); err != nil {
		return err
	}
	if err := s.mend(ctx); err != nil {
		return err
	}
	path := s.subject.collection(s.Namespace) + "/kept"
	if err := s.client.REST().Delete().AbsPath(path).Do(ctx).Error(); err != nil {
		return fmt.Errorf("delete the owner: %w", err)
	}
	return s.measure(ctx, dependentFollowed, 90*time.Second, s.configMapGone(s.Namespace, "dependent"))
}

func (s *Stage) ownerNamed(ctx context.Context, name string) (metav1.OwnerReference, error) {
	var owner metav1.PartialObjectMetadata
	if err := s.get(ctx, s.subject.collection(s.Namespace)+"/"+name, &owner); err != nil {
		return metav1.OwnerReference{}, fmt.Errorf("get the owner: %w", err)
	}
	return metav1.OwnerReference{APIVersion: s.subject.group + "/v1", Kind: "Widget", Name: name, UID: owner.UID}, nil
}

func (s *Stage) createOwned(ctx context.Context, name string, owner metav1.OwnerReference) error {
	_, err := s.client.ConfigMaps(s.Namespace).Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: s.labels(), OwnerReferences: []metav1.OwnerReference{owner}},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create configmap %s: %w", name, err)
	}
	return nil
}

func (s *Stage) touchConfigMap(ctx context.Context, name string) error {
	found, err := s.client.ConfigMaps(s.Namespace).Get(ctx, name, metav1.GetOptions{})
	if err == nil {
		found.Data = map[string]string{"touched": "yes"}
		_, err = s.client.ConfigMaps(s.Namespace).Update(ctx, found, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("touch configmap %s: %w", name, err)
	}
	return nil
}
