package extension_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	fakecache "k8s.io/client-go/tools/cache/testing"

	"portico.dev/pkg/extension"
)

// Job is the kind of the examples.
type Job struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	State string `json:"state"`
}

func job(name, state string) Job { return Job{ObjectMeta: metav1.ObjectMeta{Name: name}, State: state} }

var jobs = extension.Definition[Job]{Group: "batch.example.com", Version: "v1", Plural: "jobs", Kind: "Job"}

// A stream of events fills a Store. List is never called on the source of the stream.
func ExampleStore_Follow() {
	events := make(chan extension.Event[Job])
	store := extension.NewStore[Job]()
	follow := extension.Background{Name: "job events", Run: func(ctx context.Context) error { return store.Follow(ctx, events) }}

	printWatch(extension.Of(jobs, store), follow,
		func() { events <- extension.Event[Job]{Type: watch.Added, Object: job("backup", "waits")} },
		func() { events <- extension.Event[Job]{Type: watch.Modified, Object: job("backup", "runs")} },
		func() { events <- extension.Event[Job]{Type: watch.Deleted, Object: job("backup", "")} },
	)
	// Output:
	// ADDED backup waits
	// MODIFIED backup runs
	// DELETED backup runs
}

// An informer of client-go fills a Store.
func ExampleStore_informer() {
	source := fakecache.NewFakeControllerSource() // a client in a real program
	defer source.Shutdown()
	store := extension.NewStore[Job]()
	set := func(o any) {
		if pod, ok := o.(*corev1.Pod); ok {
			store.Set(job(pod.Name, string(pod.Status.Phase)))
		}
	}
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{ListerWatcher: source, ObjectType: &corev1.Pod{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    set,
			UpdateFunc: func(_, now any) { set(now) },
			DeleteFunc: func(o any) {
				if _, name, err := keyOf(o); err == nil {
					store.Delete("", name)
				}
			},
		}})
	follow := extension.Background{Name: "pods", Run: func(ctx context.Context) error {
		informer.RunWithContext(ctx)
		return nil
	}}

	pod := func(phase corev1.PodPhase) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "backup"}, Status: corev1.PodStatus{Phase: phase}}
	}
	printWatch(extension.Of(jobs, store), follow,
		func() { source.Add(pod(corev1.PodPending)) },
		func() { source.Modify(pod(corev1.PodRunning)) },
		func() { source.Delete(pod(corev1.PodRunning)) },
	)
	// Output:
	// ADDED backup Pending
	// MODIFIED backup Running
	// DELETED backup Running
}

// keyOf also accepts the tombstone of an object whose deletion the informer missed.
func keyOf(o any) (namespace, name string, err error) {
	key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(o)
	if err != nil {
		return "", "", err
	}
	return cache.SplitMetaNamespaceKey(key)
}

// table is a provider that reads a table of a database. The definition's PollInterval makes the resource watchable. The table is read
// at this interval while a watch is open.
type table struct{ db *sql.DB }

func (t table) List(ctx context.Context, _ extension.Query) ([]Job, error) {
	rows, err := t.db.QueryContext(ctx, "SELECT name, state FROM jobs")
	if err != nil {
		return nil, fmt.Errorf("read jobs: %w", err)
	}
	defer rows.Close()
	var all []Job
	for rows.Next() {
		var name, state string
		if err := rows.Scan(&name, &state); err != nil {
			return nil, fmt.Errorf("read job: %w", err)
		}
		all = append(all, job(name, state))
	}
	return all, rows.Err()
}

// A table of a database is polled.
func ExampleDefinition_sql() {
	database := &fakeDatabase{}
	db := sql.OpenDB(database)
	defer db.Close()
	polled := jobs
	polled.PollInterval = 10 * time.Millisecond // a second in a real program
	polled.MaxAge = time.Second                 // Lists and gets within a second read the table once.

	printWatch(extension.Of(polled, table{db}), extension.Background{},
		func() { database.set("backup", "waits") },
		func() { database.set("backup", "runs") },
		func() { database.set("backup", "") },
	)
	// Output:
	// ADDED backup waits
	// MODIFIED backup runs
	// DELETED backup runs
}

// A task polls another server and writes the response into a Store. Requests never wait for that server and succeed while it is
// unreachable.
func ExampleStore_Replace() {
	states := make(chan []Job, 1)
	behind := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		now := <-states
		states <- now
		_ = json.NewEncoder(w).Encode(now)
	}))
	defer behind.Close()
	set := func(now ...Job) func() {
		return func() {
			<-states
			states <- now
		}
	}
	states <- []Job{}

	store := extension.NewStore[Job]()
	poll := extension.Background{Name: "poll jobs", Run: func(ctx context.Context) error {
		tick := time.NewTicker(10 * time.Millisecond) // seconds in a real program
		defer tick.Stop()
		for {
			if all, err := fetch(ctx, behind.Client(), behind.URL); err == nil { // A real program logs errors and reports them as an extension.Source.
				store.Replace(all)
			}
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
			}
		}
	}}
	printWatch(extension.Of(jobs, store), poll, set(job("backup", "waits")), set(job("backup", "runs")), set())
	// Output:
	// ADDED backup waits
	// MODIFIED backup runs
	// DELETED backup runs
}

func fetch(ctx context.Context, client *http.Client, url string) (all []Job, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(r)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, errors.New(response.Status)
	}
	return all, json.NewDecoder(http.MaxBytesReader(nil, response.Body, 1<<20)).Decode(&all)
}
