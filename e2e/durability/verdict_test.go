package durability

import (
	"context"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	"portico.dev/internal/simulation/consistency"
)

const directory = "/registry/configmaps/" + namespace + "/"

// enough are the changes, and the events of watches, from which a verdict can be given.
const enough = 50

// verdict ends the recording and checks it against the data in etcd. It requires a minimum of operations.
func (r *recorder) verdict(endpoints ...string) {
	r.t.Helper()
	r.untilSeen()
	r.stop()
	r.judge(stored(r.t, endpoints))
}

// judge checks the recorded operations against the stored changes.
func (r *recorder) judge(stored []consistency.Event) {
	r.t.Helper()
	r.all.Stored = stored
	var events int
	for _, w := range r.all.Watches {
		events += len(w.Events)
	}
	r.t.Logf("%d requests, %d writes acknowledged, %d of unknown outcome; %d lists; %d watches with %d events; %d changes stored; the slowest answer took %s; errors: %v",
		len(r.all.Ops), r.acknowledged.Load(), r.failed.Load(), len(r.all.Lists), len(r.all.Watches), events, len(r.all.Stored), r.slowest, r.answers)
	if len(r.all.Stored) < enough || events < enough {
		r.t.Errorf("%d stored changes, %d events; want at least %d of each", len(r.all.Stored), events, enough)
	}
	for i, v := range consistency.Check(r.all) {
		if i == 20 {
			r.t.Fatal("more than 20 violations, want none")
		}
		r.t.Errorf("violation: %v, want none", v)
	}
}

// stored returns every change of the test's objects from etcd. Nothing may be compacted.
func stored(t testing.TB, endpoints []string) []consistency.Event {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	now, err := client.Get(ctx, directory, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		t.Fatal(err)
	}
	changes := client.Watch(ctx, directory, clientv3.WithPrefix(), clientv3.WithRev(1), clientv3.WithPrevKV())
	// The response to this request arrives after all earlier changes, unless the watch had not begun yet.
	ask := time.NewTicker(lookAgain)
	defer ask.Stop()
	var all []consistency.Event
	for {
		select {
		case <-ask.C:
			if err := client.RequestProgress(ctx); err != nil {
				t.Fatal(err)
			}
		case answer, open := <-changes:
			if !open || answer.Err() != nil {
				t.Fatalf("the watch has not received all changes of etcd: %v, want the current revision", answer.Err())
			}
			for _, e := range answer.Events {
				if strings.HasPrefix(string(e.Kv.Key), directory+"k-") {
					all = append(all, decode(t, directory, e, readConfigMap))
				}
			}
			if answer.IsProgressNotify() && answer.Header.Revision >= now.Header.Revision {
				return all
			}
		}
	}
}

// objectReader returns the value of an object, the value that it replaces, and whether its fields differ.
type objectReader func(runtime.Object) (value, after string, torn bool)

func readConfigMap(object runtime.Object) (value, after string, isTorn bool) {
	c := object.(*corev1.ConfigMap)
	return c.Data["value"], c.Data["after"], torn(c)
}

func decode(t testing.TB, directory string, e *clientv3.Event, read objectReader) consistency.Event {
	t.Helper()
	out := consistency.Event{Kind: consistency.Modified, Version: e.Kv.ModRevision, Key: strings.TrimPrefix(string(e.Kv.Key), directory)}
	value := e.Kv.Value
	switch {
	case e.Type == clientv3.EventTypeDelete:
		out.Kind, value = consistency.Deleted, e.PrevKv.Value
	case e.IsCreate():
		out.Kind = consistency.Added
	}
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(value, nil, nil)
	if err != nil {
		t.Fatalf("decoding %s at the revision %d failed: %v, want no error", out.Key, out.Version, err)
	}
	out.Value, out.After, out.Torn = read(object)
	if out.Kind == consistency.Deleted {
		out.After = ""
	}
	return out
}
