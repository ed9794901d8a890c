package drill

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico.dev/internal/run"
)

const (
	// informers is how many clients keep a copy of the objects of a Cluster.
	informers = 10
	// writeInterval is the interval at which objects are created for them. writtenPrefix is the prefix of their names.
	writeInterval = 100 * time.Millisecond
	writtenPrefix = "written-"
)

// informer is a client that keeps a copy of a collection as client-go's reflector does: it lists, watches from the resource
// version of the list, and resumes a watch that ended from the last one that it has seen. It lists again only after 410 Gone.
type informer struct {
	stage      *Stage
	collection string
	version    string // where the next watch begins; empty before a list

	mu      sync.Mutex        // guards objects
	objects map[string]string // resource versions by name
}

// run follows the collection until ctx ends.
func (i *informer) run(ctx context.Context) {
	for ctx.Err() == nil {
		if i.version == "" {
			i.list(ctx)
		} else {
			i.watch(ctx)
		}
		run.Pause(ctx, watchRetryInterval)
	}
}

// copyOf returns the resource versions of the objects of a list by name, and the resource version of the list.
func copyOf(body []byte) (objects map[string]string, version string) {
	var list metav1.PartialObjectMetadataList
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, ""
	}
	objects = map[string]string{}
	for _, item := range list.Items {
		if strings.HasPrefix(item.Name, writtenPrefix) {
			objects[item.Name] = item.ResourceVersion
		}
	}
	return objects, list.ResourceVersion
}

func (i *informer) list(ctx context.Context) {
	i.stage.traffic.send(ctx, call{who: Informers, verb: "list", method: http.MethodGet, path: i.collection, saw: func(_ http.Header, body []byte) string {
		objects, version := copyOf(body)
		i.mu.Lock()
		defer i.mu.Unlock()
		i.objects, i.version = objects, version
		return ""
	}})
}

func (i *informer) watch(ctx context.Context) {
	r := Request{Who: Informers, Verb: "watch", Start: time.Now()}
	i.follow(ctx, &r)
	r.Took = time.Since(r.Start)
	if ctx.Err() == nil {
		i.stage.record.add(r)
	}
}

func (i *informer) follow(ctx context.Context, r *Request) {
	query := url.Values{"watch": {"true"}, "allowWatchBookmarks": {"true"}, "resourceVersion": {i.version}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, i.stage.traffic.base+i.collection+"?"+query.Encode(), nil)
	if err != nil {
		r.Failure = err.Error()
		return
	}
	req.Header.Set("Accept", jsonType)
	resp, err := i.stage.traffic.client.Do(req)
	if err != nil {
		r.Failure = err.Error()
		return
	}
	defer resp.Body.Close()
	if r.Code = resp.StatusCode; r.Code != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(resp.Body, maxEvent))
		if r.Reason, r.Message = refusal(body); r.Code == http.StatusGone {
			i.version = ""
		}
		return
	}
	events := bufio.NewScanner(resp.Body)
	events.Buffer(nil, maxEvent)
	for events.Scan() {
		if r.Failure = i.apply(events.Bytes()); r.Failure != "" {
			return
		}
	}
	if err := events.Err(); err != nil {
		r.Failure = "broken off: " + err.Error()
	}
}

// apply applies an event of a watch. It returns why the watch cannot go on, or an empty string.
func (i *informer) apply(event []byte) string {
	var e struct {
		Type   string
		Object struct {
			metav1.PartialObjectMetadata
			Code    int
			Message string
		}
	}
	if err := json.Unmarshal(bytes.TrimSpace(event), &e); err != nil {
		return "broken off within an event"
	}
	o := &e.Object
	if e.Type == "ERROR" {
		if o.Code == http.StatusGone {
			i.version = ""
		}
		return o.Message
	}
	i.version = o.ResourceVersion
	if !strings.HasPrefix(o.Name, writtenPrefix) {
		return ""
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if e.Type == "DELETED" {
		delete(i.objects, o.Name)
	} else {
		i.objects[o.Name] = o.ResourceVersion
	}
	return ""
}

// has reports whether the copy consists of the objects.
func (i *informer) has(objects map[string]string) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return maps.Equal(i.objects, objects)
}
