package drill

import (
	"context"
	"errors"
	"fmt"
	"time"

	"portico.dev/internal/tools/drill/faulty"
)

// Measures of the namespace drills.
const (
	namespaceGoneAlive  = "namespace gone, all being well"
	namespaceGoneDead   = "namespace gone, with a dead server"
	namespaceGoneAnyway = "namespace gone in spite of what may be left"
	namespaceGoneBefore = "namespace gone before its objects"
	namespaceGone       = "namespace gone after the return"
	objectsGone         = "its objects gone after that"
	conditionNames      = "a condition of the namespace names the APIService"
	restGone            = "everything else in the namespace gone"
	debtPaid            = "objects deleted after the return"
)

// finalizeAfter is the annotation of an APIService that permits finalizing namespaces while its server is down.
const finalizeAfter = "portico.dev/finalize-namespaces-after"

// namespaceDrills returns the drills in which namespaces are deleted while an extension server is down.
func namespaceDrills() []Drill {
	return []Drill{
		{
			Name: "namespace-dead-storageless", Title: "a namespace is deleted while a server that stores nothing is dead",
			About: 15 * time.Second, Limit: 2 * time.Minute,
			script: deleteBesideTheStorageless,
			Expect: []Expectation{
				detectedWithin(5 * time.Second),
				within(10*time.Second, namespaceGoneDead, "a namespace goes although the server is dead"),
				noLonger(namespaceGoneDead, namespaceGoneAlive, 3*time.Second),
				recoversWithin(5 * time.Second),
			},
		},
		{
			Name: "namespace-dead-storage-bearing", Title: "a namespace is deleted while a server that holds objects of it is dead",
			About: 25 * time.Second, Limit: 2 * time.Minute, Stores: true,
			script: deleteBesideTheStoring,
			Expect: []Expectation{
				// kube-controller-manager starts five seconds after the deletion.
				within(10*time.Second, conditionNames, "the namespace says which APIService holds it up"),
				within(10*time.Second, restGone, "everything that can be reached is deleted"),
				stays(namespaceGoneAnyway, "the namespace stays while it may have objects there"),
				within(10*time.Second, namespaceGone, "when the server is back the namespace goes"),
				within(time.Second, objectsGone, "and no object is left there"),
				recoversWithin(5 * time.Second),
			},
		},
		{
			Name: "namespace-policy", Title: "the same, and the APIService lets namespaces go after ten seconds",
			About: 35 * time.Second, Limit: 3 * time.Minute, Stores: true, Needs: OurAnnotations,
			script: deleteByPolicy,
			Expect: []Expectation{
				within(policyAfter+10*time.Second, namespaceGoneDead, "the namespace goes although the server is dead"),
				within(10*time.Second, debtPaid, "when the server is back the objects of that namespace are deleted"),
				paidBeforeAvailable(), recoversWithin(15 * time.Second),
			},
		},
		{
			Name: "namespace-self-hosted-cycle", Title: "a namespace is deleted that holds the server's own Service, and objects of it",
			About: 20 * time.Second, Limit: 3 * time.Minute, Stores: true, OwnHome: true,
			script: deleteTheServersOwn,
			Expect: []Expectation{
				within(45*time.Second, namespaceGoneDead, "the namespace goes"),
				within(time.Second, objectsGone, "its objects were deleted while the server could be reached"),
				recoversWithin(15 * time.Second),
			},
		},
	}
}

const (
	// blockedFor is how long the drill watches a namespace that must stay.
	blockedFor = 5 * time.Second
	// policyAfter is the value of the annotation: the permitted minimum.
	policyAfter = 10 * time.Second
	// namespaceLimit bounds the wait for the deletion of a namespace.
	namespaceLimit = 60 * time.Second
)

func deleteBesideTheStorageless(ctx context.Context, s *Stage) error {
	if err := s.timeDeletion(ctx, s.Namespace+"-alive", namespaceGoneAlive); err != nil {
		return err
	}
	if err := s.breakWith(ctx, faulty.Refuse); err != nil {
		return err
	}
	if err := s.detect(ctx, 20*time.Second); err != nil {
		return err
	}
	if err := s.timeDeletion(ctx, s.Namespace+"-dead", namespaceGoneDead); err != nil {
		return err
	}
	return s.mend(ctx)
}

// timeDeletion measures the deletion of a namespace that contains a ConfigMap.
func (s *Stage) timeDeletion(ctx context.Context, name, measure string) error {
	if err := s.createNamespace(ctx, name); err != nil {
		return err
	}
	if err := s.create(ctx, "/api/v1/namespaces/"+name+"/configmaps", emptyConfigMap); err != nil {
		return err
	}
	if err := s.deleteNamespace(ctx, name); err != nil {
		return err
	}
	return s.measure(ctx, measure, 30*time.Second, s.namespaceGone(name))
}

func deleteBesideTheStoring(ctx context.Context, s *Stage) error {
	doomed := s.Namespace + "-doomed"
	if err := s.createNamespaceWithWidget(ctx, doomed); err != nil {
		return err
	}
	if err := s.breakWith(ctx, faulty.Refuse); err != nil {
		return err
	}
	if err := s.detect(ctx, 20*time.Second); err != nil {
		return err
	}
	if err := s.deleteNamespace(ctx, doomed); err != nil {
		return err
	}
	if err := s.measure(ctx, conditionNames, 20*time.Second, s.namespaceNames(doomed)); err != nil {
		return err
	}
	if err := s.measure(ctx, restGone, 20*time.Second, s.configMapGone(doomed, "a")); err != nil {
		return err
	}
	if err := s.measure(ctx, namespaceGoneAnyway, blockedFor, s.namespaceGone(doomed)); err != nil {
		return err
	}
	return s.mendAndAwait(ctx, doomed, namespaceLimit)
}

func deleteByPolicy(ctx context.Context, s *Stage) error {
	doomed := s.Namespace + "-doomed"
	if err := s.annotate(ctx, s.subject.apiService, finalizeAfter, policyAfter.String()); err != nil {
		return err
	}
	if err := s.createNamespaceWithWidget(ctx, doomed); err != nil {
		return err
	}
	if err := s.breakWith(ctx, faulty.Refuse); err != nil {
		return err
	}
	if err := s.detect(ctx, 20*time.Second); err != nil {
		return err
	}
	if err := s.deleteNamespace(ctx, doomed); err != nil {
		return err
	}
	if err := s.measure(ctx, namespaceGoneDead, namespaceLimit, s.namespaceGone(doomed)); err != nil {
		return err
	}
	if err := s.mend(ctx); err != nil {
		return err
	}
	if err := s.measure(ctx, debtPaid, 30*time.Second, s.nothingStored(doomed)); err != nil {
		return err
	}
	if at := s.subject.Deleted(doomed); !at.IsZero() {
		s.record.change(func(h *History) {
			h.Measures = append(h.Measures, Measure{Name: paidAfterMending, Seconds: Seconds(at.Sub(h.Mended))})
		})
	}
	return nil
}

const paidAfterMending = "from the mending to the last deletion"

// paidBeforeAvailable checks that no client sees the leftover objects of a deleted namespace.
func paidBeforeAvailable() Expectation {
	return Expectation{Text: "they are deleted before the APIService is available", check: func(h *History) error {
		paid, measured := h.measure(paidAfterMending)
		at, came := h.Recovered()
		switch {
		case !measured:
			return errors.New("they were not deleted")
		case came && h.Mended.Add(time.Duration(paid.Seconds)).After(at.Add(observeInterval)):
			return fmt.Errorf("it was available %s after the mending, and they were deleted after %s", Seconds(at.Sub(h.Mended)), paid.Seconds)
		}
		return nil
	}}
}

// deleteTheServersOwn deletes the namespace of the subject's Service, which contains objects of the subject. The
// server itself stays up and is reinstalled when the namespace is gone.
func deleteTheServersOwn(ctx context.Context, s *Stage) error {
	home := s.subject.home
	if err := s.createObject(ctx, s.subject, home, "held"); err != nil {
		return err
	}
	if err := s.breakWith(ctx, faulty.Healthy); err != nil {
		return err
	}
	if err := s.deleteNamespace(ctx, home); err != nil {
		return err
	}
	if err := s.measure(ctx, namespaceGoneDead, 90*time.Second, s.namespaceGone(home)); err != nil {
		return err
	}
	if err := s.measure(ctx, objectsGone, time.Second, s.nothingStored(home)); err != nil {
		return err
	}
	if !s.namespaceGone(home)(ctx) {
		return s.mend(ctx) // the namespace is stuck, so the server cannot be reinstalled
	}
	if err := s.createNamespace(ctx, home); err != nil {
		return err
	}
	if err := s.createService(ctx, s.subject); err != nil {
		return err
	}
	return s.mend(ctx)
}

// noLonger compares two measures.
func noLonger(name, than string, allowance time.Duration) Expectation {
	return Expectation{Text: fmt.Sprintf("%q takes no longer than %q (and %s)", name, than, allowance), check: func(h *History) error {
		a, okA := h.measure(name)
		b, okB := h.measure(than)
		switch {
		case !okA || !okB || a.Never || b.Never:
			return errors.New("one of them did not come about")
		case time.Duration(a.Seconds) > time.Duration(b.Seconds)+allowance:
			return fmt.Errorf("%s and %s", a.Seconds, b.Seconds)
		}
		return nil
	}}
}
