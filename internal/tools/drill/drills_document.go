package drill

import (
	"context"
	"time"

	"portico.dev/internal/tools/drill/faulty"
)

// documentDrills returns the drills in which an extension server serves requests, but publishes invalid documents.
func documentDrills() []Drill {
	keepsItsKinds := discoveryShows("discovery never forgets what it serves: its resources are listed, or it is stale", listed, stale)
	return []Drill{
		{
			Name: "garbage-discovery", Title: "it comes back from a restart with a page of HTML where discovery should be",
			About: 12 * time.Second, Limit: 90 * time.Second, Stores: true,
			script: restartedWith(faulty.GarbageDiscovery),
			Expect: []Expectation{keepsItsKinds, namesTheFailed(), recoversWithin(10 * time.Second)},
		},
		{
			Name: "vanishing-discovery", Title: "it comes back from a restart with an empty list of resources, while it holds objects",
			About: 15 * time.Second, Limit: 2 * time.Minute, Stores: true,
			script: vanish,
			Expect: []Expectation{
				keepsItsKinds,
				stays(namespaceGoneBefore, "a namespace is not finalized before its objects there are deleted"),
				within(20*time.Second, namespaceGone, "when it tells the truth again the namespace goes"),
				within(time.Second, objectsGone, "and its objects there with it"),
				namesTheFailed(), recoversWithin(10 * time.Second),
			},
		},
		{
			Name: "huge-openapi", Title: "its OpenAPI documents have no end",
			About: 10 * time.Second, Limit: 90 * time.Second, Stores: true,
			script: restartedWith(faulty.HugeOpenAPI),
			Expect: []Expectation{openAPIAnswers(), recoversWithin(10 * time.Second)},
		},
	}
}

// wrongDocuments is how long a server publishes invalid documents.
const wrongDocuments = 5 * time.Second

// restartedWith stops the subject, waits until that is detected, and starts it with a fault. Front doors read the
// documents again after a restart.
func restartedWith(f faulty.Fault) func(context.Context, *Stage) error {
	return func(ctx context.Context, s *Stage) error {
		if err := s.restartWith(ctx, f); err != nil {
			return err
		}
		if err := s.wait(ctx, wrongDocuments); err != nil {
			return err
		}
		return s.mend(ctx)
	}
}

func (s *Stage) restartWith(ctx context.Context, f faulty.Fault) error {
	if err := s.breakWith(ctx, faulty.Refuse); err != nil {
		return err
	}
	if err := s.detect(ctx, 20*time.Second); err != nil {
		return err
	}
	return s.runFault(f)
}

func vanish(ctx context.Context, s *Stage) error {
	doomed := s.Namespace + "-doomed"
	if err := s.createNamespaceWithWidget(ctx, doomed); err != nil {
		return err
	}
	if err := s.restartWith(ctx, faulty.VanishingDiscovery); err != nil {
		return err
	}
	if err := s.deleteNamespace(ctx, doomed); err != nil {
		return err
	}
	gone, deleted := s.namespaceGone(doomed), s.nothingStored(doomed)
	if err := s.measure(ctx, namespaceGoneBefore, wrongDocuments, func(ctx context.Context) bool { return gone(ctx) && !deleted(ctx) }); err != nil {
		return err
	}
	return s.mendAndAwait(ctx, doomed, 45*time.Second)
}

func openAPIAnswers() Expectation {
	return Expectation{Text: "OpenAPI always answers", check: func(h *History) error { return noneFails(h, h.requestsTo(OpenAPI)) }}
}
