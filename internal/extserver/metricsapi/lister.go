package metricsapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"portico.dev/internal/clients/apiclient"
	"portico.dev/internal/run"
)

const (
	pageSize = 500
	// maxObjects limits the number of objects. It is the maximum number of pods in a Kubernetes cluster.
	maxObjects = 150_000
)

// listerConfig configures a lister.
type listerConfig struct {
	// Client configures the API server. Required.
	Client *rest.Config
	// Labels and Fields are the selectors, in the syntax of the API. Default: all.
	Labels, Fields string
	// Interval is the interval at which objects are listed. Default: 30 s.
	Interval time.Duration
	// Logger logs failed lists. Default: no logging.
	Logger *zap.Logger
}

// listedObject contains the required fields of a Node or Pod.
type listedObject struct {
	Namespace, Name, UID string
	Labels               map[string]string
	// Annotations, Addresses and KubeletPort are only set for Nodes that are listed completely.
	Annotations map[string]string
	Addresses   []corev1.NodeAddress
	KubeletPort int
}

type listedKey struct{ namespace, name string }

// lister keeps the Nodes or Pods of the last list: their labels for selectors, their addresses for scrapes. Run lists them
// periodically in pages. Unlike a watch, this needs no state. The delay does not matter, because measurements are as old as a
// window anyway. All methods except Run are safe for concurrent use.
type lister struct {
	config   listerConfig
	what     string
	path     string
	accept   string
	client   *apiclient.Client
	objects  atomic.Pointer[map[listedKey]listedObject]
	trouble  atomic.Pointer[error]
	complete chan struct{}
}

// newNodeLister lists complete Nodes, because their status contains the addresses of kubelets.
func newNodeLister(c listerConfig) (*lister, error) { return newLister(c, "nodes", "application/json") }

// newNodeLabelLister lists the metadata of Nodes.
func newNodeLabelLister(c listerConfig) (*lister, error) {
	return newLister(c, "nodes", apiclient.MetadataList)
}

// newPodLabelLister lists the metadata of running Pods.
func newPodLabelLister(c listerConfig) (*lister, error) {
	c.Fields = cmp.Or(c.Fields, "status.phase=Running")
	return newLister(c, "pods", apiclient.MetadataList)
}

func newLister(c listerConfig, plural, accept string) (*lister, error) {
	if c.Interval <= 0 {
		c.Interval = 30 * time.Second
	}
	c.Logger = cmp.Or(c.Logger, zap.NewNop())
	client, err := apiclient.New(c.Client)
	if err != nil {
		return nil, err
	}
	return &lister{config: c, what: plural, path: "/api/v1/" + plural, accept: accept, client: client, complete: make(chan struct{})}, nil
}

// Run lists until ctx ends. If a list fails, the previous one remains in use.
func (i *lister) Run(ctx context.Context) error {
	defer i.client.Close()
	return run.Every(ctx, i.config.Interval, i.refresh)
}

func (i *lister) refresh(ctx context.Context) {
	objects, err := i.list(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return
		}
		err = fmt.Errorf("list %s: %w", i.what, err)
		i.trouble.Store(&err)
		i.config.Logger.Warn("failed to list objects", zap.Error(err))
		return
	}
	if i.objects.Swap(&objects) == nil {
		close(i.complete)
	}
	i.trouble.Store(nil)
}

type listPage struct {
	Metadata struct {
		Continue string `json:"continue"`
	} `json:"metadata"`
	Items []listItem `json:"items"`
}

type listItem struct {
	Metadata struct {
		Namespace   string            `json:"namespace"`
		Name        string            `json:"name"`
		UID         string            `json:"uid"`
		Labels      map[string]string `json:"labels"`
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
	Status struct {
		Addresses       []corev1.NodeAddress `json:"addresses"`
		DaemonEndpoints struct {
			KubeletEndpoint struct {
				Port int `json:"Port"`
			} `json:"kubeletEndpoint"`
		} `json:"daemonEndpoints"`
	} `json:"status"`
}

func (i *lister) list(ctx context.Context) (map[listedKey]listedObject, error) {
	objects := map[listedKey]listedObject{}
	query := url.Values{"limit": {strconv.Itoa(pageSize)}}
	for name, value := range map[string]string{"labelSelector": i.config.Labels, "fieldSelector": i.config.Fields} {
		if value != "" {
			query.Set(name, value)
		}
	}
	for {
		var p listPage
		if err := i.client.Get(ctx, i.path, query, i.accept, &p); err != nil {
			return nil, err
		}
		for n := range p.Items {
			o := i.object(&p.Items[n])
			objects[listedKey{o.Namespace, o.Name}] = o
		}
		switch {
		case len(objects) > maxObjects:
			return nil, fmt.Errorf("more than %d; select fewer", maxObjects)
		case p.Metadata.Continue == "":
			return objects, nil
		case len(p.Items) == 0:
			return nil, errors.New("an empty page that claims to be followed by another")
		}
		query.Set("continue", p.Metadata.Continue)
	}
}

// object converts an item. For Pods it keeps only the labels, because annotations can be large.
func (i *lister) object(in *listItem) listedObject {
	m := &in.Metadata
	o := listedObject{Namespace: m.Namespace, Name: m.Name, UID: m.UID, Labels: m.Labels}
	if i.accept != apiclient.MetadataList {
		o.Annotations, o.Addresses, o.KubeletPort = m.Annotations, in.Status.Addresses, in.Status.DaemonEndpoints.KubeletEndpoint.Port
	}
	return o
}

// Listed returns a channel that is closed after the first successful list.
func (i *lister) Listed() <-chan struct{} { return i.complete }

// HasList reports whether a list has succeeded.
func (i *lister) HasList() bool { return i.objects.Load() != nil }

// Lookup returns one object. namespace is empty for Nodes.
func (i *lister) Lookup(namespace, name string) (listedObject, bool) {
	objects := i.objects.Load()
	if objects == nil {
		return listedObject{}, false
	}
	o, ok := (*objects)[listedKey{namespace, name}]
	return o, ok
}

// All returns the objects, in no particular order.
func (i *lister) All() []listedObject {
	objects := i.objects.Load()
	if objects == nil {
		return nil
	}
	return slices.Collect(maps.Values(*objects))
}

// LastError returns the error of the last list, nil if it succeeded.
func (i *lister) LastError() error {
	if p := i.trouble.Load(); p != nil {
		return *p
	}
	return nil
}
