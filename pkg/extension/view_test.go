package extension

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// thing is a minimal hosted type.
type thing struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Value             int `json:"value"`
}

func thingView(list ListFunc[thing]) *view {
	s := Of(Definition[thing]{Group: "g", Version: "v1", Plural: "things", Kind: "Thing", PollInterval: time.Second}, list)
	return newView(s, everything(), newVersions(time.Unix(1000, 0)))
}

// TestViewModel replays the changes of a view and checks that the result equals the content of the view.
func TestViewModel(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 7))
	stored := map[string]int{}
	v := thingView(func(context.Context, Query) ([]thing, error) {
		var items []thing
		for name, value := range stored {
			items = append(items, thing{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: "from the provider"}, Value: value})
		}
		return items, nil
	})
	ctx := t.Context()
	if _, err := v.refresh(ctx, time.Now()); err != nil {
		t.Fatal(err)
	}
	mirror := map[string]int{}
	began := v.snapshot()
	items, position := began.items, began.version
	for _, o := range items {
		mirror[o.GetName()] = o.(*thing).Value
	}
	sel, err := parseSelection(v.resource, "", "", "")
	if err != nil {
		t.Fatal(err)
	}
	for round := range 300 {
		for range random.IntN(4) {
			name := fmt.Sprint("t", random.IntN(6))
			if random.IntN(3) == 0 {
				delete(stored, name)
			} else {
				stored[name] = random.IntN(3)
			}
		}
		if _, err := v.refresh(ctx, time.Now()); err != nil {
			t.Fatal(err)
		}
		changes, version, _, err := v.since(position)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range changes {
			if c.version <= position {
				t.Fatalf("round %d: change has version %d, want more than %d", round, c.version, position)
			}
			position = c.version
			kind, o := sel.eventOf(c)
			if o.GetResourceVersion() != formatVersion(c.version) {
				t.Fatalf("round %d: object has version %s, want %d", round, o.GetResourceVersion(), c.version)
			}
			_, known := mirror[o.GetName()]
			if known == (kind == watch.Added) {
				t.Fatalf("round %d: event %s of %s, known before: %t, want ADDED only for an unknown object", round, kind, o.GetName(), known)
			}
			if kind == watch.Deleted {
				delete(mirror, o.GetName())
			} else {
				mirror[o.GetName()] = o.(*thing).Value
			}
		}
		if position != version && len(changes) > 0 {
			t.Fatalf("round %d: version of the last change = %d, want %d", round, position, version)
		}
		if fmt.Sprint(mirror) != fmt.Sprint(stored) {
			t.Fatalf("round %d: replayed changes = %v, want %v", round, mirror, stored)
		}
	}
}

func TestForgottenVersionReturnsExpired(t *testing.T) {
	value := 0
	v := thingView(func(context.Context, Query) ([]thing, error) {
		value++
		return []thing{{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Value: value}}, nil
	})
	ctx := t.Context()
	if _, err := v.refresh(ctx, time.Now()); err != nil {
		t.Fatal(err)
	}
	began := v.snapshot().version
	for range historyLimit + 1 {
		if _, err := v.refresh(ctx, time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, _, err := v.since(began); !errors.Is(err, errExpired) {
		t.Errorf("since of a version before the history: error = %v, want errExpired", err)
	}
	changes, _, _, err := v.since(began + 1)
	if err != nil || len(changes) != historyLimit {
		t.Errorf("since = %d changes, error %v, want %d changes and no error", len(changes), err, historyLimit)
	}
}

func TestViewKeepsVersionsOfUnchangedObjects(t *testing.T) {
	labels := map[string]string{"a": "1", "b": "2"}
	v := thingView(func(context.Context, Query) ([]thing, error) {
		return []thing{{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: labels}}}, nil
	})
	var versions []string
	for range 3 {
		if _, err := v.refresh(t.Context(), time.Now()); err != nil {
			t.Fatal(err)
		}
		now := v.snapshot()
		items, version := now.items, now.version
		versions = append(versions, items[0].GetResourceVersion(), formatVersion(version))
	}
	for _, got := range versions {
		if got != versions[0] {
			t.Fatalf("versions = %v, want one version while the content is unchanged", versions)
		}
	}
}

func TestViewRefreshEndsWithCallerContext(t *testing.T) {
	entered, release := make(chan struct{}), make(chan struct{})
	v := thingView(func(context.Context, Query) ([]thing, error) {
		close(entered)
		<-release
		return nil, nil
	})
	done := make(chan error, 1)
	go func() {
		_, err := v.refresh(context.Background(), time.Now())
		done <- err
	}()
	<-entered
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := v.refresh(ctx, time.Now()); !errors.Is(err, context.Canceled) {
		t.Errorf("refresh with a canceled context: error = %v, want context.Canceled", err)
	}
	close(release)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestVersionsIncreaseAcrossRestarts(t *testing.T) {
	earlier := newVersions(time.Unix(1000, 0))
	var last uint64
	for range 1000 {
		last = earlier.next()
	}
	if next := newVersions(time.Unix(1001, 0)).next(); next <= last {
		t.Errorf("first version of a later process = %d, want more than %d", next, last)
	}
}

func FuzzNegotiate(f *testing.F) {
	for _, seed := range []string{"", "*/*", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json", "a;b=\"", "application/json;q=0.5,application/yaml"} {
		f.Add(seed, "list", true)
	}
	f.Fuzz(func(t *testing.T, accept, verb string, protobuf bool) {
		o := offer{verb: verb, protobuf: protobuf}
		rep, ok := o.negotiate(accept)
		if ok && !o.encodable(rep) {
			t.Errorf("negotiate(%q) = %+v, want an encodable representation", accept, rep)
		}
	})
}

func TestNegotiation(t *testing.T) {
	const table = "application/json;as=Table;v=v1;g=meta.k8s.io"
	for _, c := range []struct {
		situation, accept string
		offer             offer
		want              representation
		ok                bool
	}{
		{"nothing asked", "", offer{verb: "list"}, representation{media: "application/json"}, true},
		{"kubectl get", table + "," + "application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json", offer{verb: "list"},
			representation{media: "application/json", form: tableForm, version: "v1"}, true},
		{"parameters in another order", "application/json; g=meta.k8s.io; as=Table; v=v1", offer{verb: "get"},
			representation{media: "application/json", form: tableForm, version: "v1"}, true},
		{"quality decides", "application/json;q=0.1,application/yaml", offer{verb: "list"}, representation{media: "application/yaml"}, true},
		{"quality zero refuses", "application/json;q=0", offer{verb: "list"}, representation{}, false},
		{"kubectl top", "application/vnd.kubernetes.protobuf, */*", offer{verb: "list", protobuf: true},
			representation{media: "application/vnd.kubernetes.protobuf"}, true},
		{"metadata informer, list", "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json", offer{verb: "list"},
			representation{media: "application/vnd.kubernetes.protobuf", form: metadataForm, version: "v1"}, true},
		{"metadata of one asked of a list", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", offer{verb: "list"}, representation{}, false},
		{"unknown transformation", "application/json;as=Chart;g=meta.k8s.io;v=v1", offer{verb: "list"}, representation{}, false},
		{"table of an unknown group", "application/json;as=Table;g=example.com;v=v1", offer{verb: "list"}, representation{}, false},
		{"stream of a watch", "application/json;stream=watch", offer{verb: "watch"}, representation{media: "application/json", stream: true}, true},
		{"stream of a list", "application/json;stream=watch", offer{verb: "list"}, representation{}, false},
		{"table in protobuf", "application/vnd.kubernetes.protobuf;as=Table;g=meta.k8s.io;v=v1", offer{verb: "list", protobuf: true}, representation{}, false},
	} {
		t.Run(c.situation, func(t *testing.T) {
			got, ok := c.offer.negotiate(c.accept)
			if ok != c.ok || (ok && got != c.want) {
				t.Errorf("got %+v %t, want %+v %t", got, ok, c.want, c.ok)
			}
		})
	}
}
