package extension_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"portico.dev/pkg/extension"
)

// Job is a kind whose objects come from somewhere else.
type Job struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	State             string `json:"state"`
}

// jobStore holds the objects that a source has told of, and notifies watches.
type jobStore struct {
	extension.Changes

	mu   sync.Mutex
	jobs map[string]Job
}

func (s *jobStore) List(context.Context, extension.Query) ([]Job, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []Job
	for _, j := range s.jobs {
		all = append(all, j)
	}
	return all, nil
}

// set replaces all objects.
func (s *jobStore) set(jobs map[string]Job) {
	s.mu.Lock()
	s.jobs = jobs
	s.mu.Unlock()
	s.Notify()
}

var jobDefinition = extension.Definition[Job]{Group: "jobs.example.com", Version: "v1", Plural: "jobs", Kind: "Job"}

// A channel of events: each event changes the store, and watches see it at once.
func ExampleChanges_channel() {
	type event struct {
		job     Job
		deleted bool
	}
	events := make(chan event)
	store := &jobStore{jobs: map[string]Job{}}
	follow := func(ctx context.Context) error {
		for {
			select {
			case e := <-events:
				store.mu.Lock()
				if e.deleted {
					delete(store.jobs, e.job.Name)
				} else {
					store.jobs[e.job.Name] = e.job
				}
				store.mu.Unlock()
				store.Notify()
			case <-ctx.Done():
				return nil
			}
		}
	}
	options := extension.Options{Background: []extension.Background{{Name: "events", Run: follow}}}
	resource := extension.Of(jobDefinition, store)
	fmt.Println(len(options.Background), resource.GroupVersionResource().Resource)
	// Output: 1 jobs
}

// podJobs shows what an informer has as another kind.
type podJobs struct {
	extension.Changes
	pods cache.SharedIndexInformer
}

func newPodJobs(pods cache.SharedIndexInformer) (*podJobs, error) {
	p := &podJobs{pods: pods}
	_, err := pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { p.Notify() },
		UpdateFunc: func(_, _ any) { p.Notify() },
		DeleteFunc: func(any) { p.Notify() },
	})
	return p, err
}

func (p *podJobs) List(context.Context, extension.Query) ([]Job, error) {
	var all []Job
	for _, o := range p.pods.GetStore().List() {
		pod := o.(*corev1.Pod)
		all = append(all, Job{ObjectMeta: metav1.ObjectMeta{Name: pod.Name, UID: pod.UID}, State: string(pod.Status.Phase)})
	}
	return all, nil
}

// run is for Options.Background.
func (p *podJobs) run(ctx context.Context) error {
	p.pods.RunWithContext(ctx)
	return nil
}

// An informer of client-go: its handlers notify, and its store is what List returns.
func ExampleChanges_informer() {
	informer := cache.NewSharedIndexInformer(&cache.ListWatch{}, &corev1.Pod{}, 0, nil)
	jobs, err := newPodJobs(informer)
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = informer.GetStore().Add(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Status: corev1.PodStatus{Phase: corev1.PodRunning}})
	all, err := jobs.List(context.Background(), extension.Query{})
	_ = extension.Background{Name: "pods", Run: jobs.run}
	fmt.Println(all[0].Name, all[0].State, err)
	// Output: p Running <nil>
}

// sqlJobs reads a table. Definition.PollInterval makes it watchable; how often it is read is for the definition to say.
type sqlJobs struct{ db *sql.DB }

func (s sqlJobs) List(ctx context.Context, q extension.Query) ([]Job, error) {
	rows, err := s.db.QueryContext(ctx, "SELECT name, state, changed FROM jobs")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var all []Job
	for rows.Next() {
		var j Job
		if err := rows.Scan(&j.Name, &j.State, &j.CreationTimestamp.Time); err != nil {
			return nil, err
		}
		all = append(all, j)
	}
	return all, rows.Err()
}

// A table of a SQL database, read every five seconds while somebody watches.
func ExampleDefinition_sql() {
	var db *sql.DB // sql.Open
	d := jobDefinition
	d.PollInterval = 5 * time.Second
	d.MaxAge = time.Second // a thousand lists in a second are one query
	fmt.Println(extension.Of(d, sqlJobs{db}).GroupVersionResource().Resource)
	// Output: jobs
}

// httpJobs polls a URL, by ETag, and notifies watches when the answer is another one.
type httpJobs struct {
	jobStore
	url string
}

func (h *httpJobs) run(ctx context.Context) error {
	tick := time.NewTicker(10 * time.Second)
	defer tick.Stop()
	for etag := ""; ; {
		etag, _ = h.poll(ctx, etag) // a failure is for Options.Sources to show
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

func (h *httpJobs) poll(ctx context.Context, etag string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, h.url, nil)
	if err != nil {
		return etag, err
	}
	r.Header.Set("If-None-Match", etag)
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return etag, err
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusNotModified {
		return etag, nil
	}
	if response.StatusCode != http.StatusOK {
		return etag, errors.New(response.Status)
	}
	var states map[string]string
	if err := json.NewDecoder(http.MaxBytesReader(nil, response.Body, 1<<20)).Decode(&states); err != nil {
		return etag, err
	}
	jobs := map[string]Job{}
	for name, state := range states {
		jobs[name] = Job{ObjectMeta: metav1.ObjectMeta{Name: name}, State: state}
	}
	h.set(jobs)
	return response.Header.Get("ETag"), nil
}

// An HTTP server that is polled: the list is what it said last.
func ExampleChanges_http() {
	jobs := &httpJobs{url: "https://jobs.example.com/states"}
	options := extension.Options{Background: []extension.Background{{Name: "jobs", Run: jobs.run}}}
	fmt.Println(options.Background[0].Name, extension.Of(jobDefinition, jobs).GroupVersion())
	// Output: jobs jobs.example.com/v1
}
