package custommetrics

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/singleflight"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico.dev/internal/auth/ttlcache"
	"portico.dev/internal/clients/apiclient"
)

const (
	aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"

	// maxNames limits the objects of one selection.
	maxNames = 5000
	// rememberNames is the maximum age of a cached selection. The HorizontalPodAutoscalers of a deployment query it once for
	// each metric.
	rememberNames      = 5 * time.Second
	rememberSelections = 64
	firstListRetry     = time.Second
)

// ObjectsConfig configures Objects.
type ObjectsConfig struct {
	// Client is the client for the API server. Its user must be allowed to list the described resources. Required.
	Client *apiclient.Client
	// Interval is the interval at which discovery is read. Default: one minute.
	Interval time.Duration
	Logger   *zap.Logger
}

// Objects looks up resources and objects in the API. It is safe for concurrent use.
type Objects struct {
	config    ObjectsConfig
	catalogue atomic.Pointer[Catalogue]
	trouble   atomic.Pointer[error]
	names     *ttlcache.Cache[objectSelection, []string]
	inFlight  singleflight.Group
}

type objectSelection struct {
	resource            schema.GroupVersionResource
	namespace, selector string
}

// NewObjects returns an Objects with the catalogue of WellKnown.
func NewObjects(c ObjectsConfig) *Objects {
	if c.Interval <= 0 {
		c.Interval = time.Minute
	}
	c.Logger = cmp.Or(c.Logger, zap.NewNop())
	o := &Objects{config: c, names: ttlcache.New[objectSelection, []string](rememberSelections)}
	o.catalogue.Store(WellKnown())
	return o
}

// Catalogue returns the current catalogue. It is never nil.
func (o *Objects) Catalogue() *Catalogue { return o.catalogue.Load() }

// LastError returns the error of the last attempt to read discovery, nil if it succeeded.
func (o *Objects) LastError() error {
	if p := o.trouble.Load(); p != nil {
		return *p
	}
	return nil
}

// Run reads discovery periodically until ctx ends. If that fails, the previous catalogue remains in use.
func (o *Objects) Run(ctx context.Context) error {
	defer o.config.Client.Close()
	retry := firstListRetry
	for {
		wait := o.config.Interval
		err := o.refresh(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			o.config.Logger.Debug("discovery of described objects failed", zap.Error(err))
			o.trouble.Store(&err)
			wait, retry = nextRetry(retry, o.config.Interval)
		default:
			o.trouble.Store(nil)
			retry = firstListRetry
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		}
	}
}

func (o *Objects) refresh(ctx context.Context) error {
	var found []Resource
	for _, root := range []string{"/api", "/apis"} {
		var list apidiscoveryv2.APIGroupDiscoveryList
		if err := o.config.Client.Get(ctx, root, nil, aggregated, &list); err != nil {
			return fmt.Errorf("read discovery: %w", err)
		}
		if list.Kind != "APIGroupDiscoveryList" {
			return fmt.Errorf("read discovery: %s has no aggregated form (Kubernetes before 1.30); only resources of every cluster are known", root)
		}
		found = append(found, resourcesOf(list)...)
	}
	o.catalogue.Store(newCatalogue(append(found, wellKnown()...)))
	return nil
}

func resourcesOf(list apidiscoveryv2.APIGroupDiscoveryList) []Resource {
	var out []Resource
	for _, group := range list.Items {
		if strings.HasSuffix(group.Name, "metrics.k8s.io") {
			continue // these pods and nodes are measurements, not objects
		}
		for _, version := range group.Versions {
			gv := schema.GroupVersion{Group: group.Name, Version: version.Version}
			for _, r := range version.Resources {
				if r.ResponseKind == nil || !slices.Contains(r.Verbs, "list") {
					continue
				}
				singular := r.SingularResource
				if singular == "" {
					singular = strings.ToLower(r.ResponseKind.Kind)
				}
				out = append(out, Resource{gv.WithResource(r.Resource), r.ResponseKind.Kind, singular, r.Scope == apidiscoveryv2.ScopeNamespace})
			}
		}
	}
	return out
}

// Names returns the names of the objects that selector selects, in a namespace or, for cluster-scoped resources, in the
// cluster.
func (o *Objects) Names(ctx context.Context, r Resource, namespace string, selector labels.Selector) ([]string, error) {
	key := objectSelection{r.GroupVersionResource, namespace, selector.String()}
	if names, ok := o.names.Get(key); ok {
		return names, nil
	}
	v, err, _ := o.inFlight.Do(fmt.Sprintf("%q", []string{r.String(), namespace, key.selector}), func() (any, error) {
		// The result is shared with concurrent callers, so the request must outlive the first caller's context, up to the
		// client's timeout.
		names, err := o.list(context.WithoutCancel(ctx), r, namespace, key.selector)
		if err == nil {
			o.names.Add(key, names, time.Now().Add(rememberNames))
		}
		return names, err
	})
	names, _ := v.([]string)
	return names, err
}

func (o *Objects) list(ctx context.Context, r Resource, namespace, selector string) ([]string, error) {
	path := "/apis/" + r.APIVersion()
	if r.Group == "" {
		path = "/api/" + r.Version
	}
	if namespace != "" && r.Namespaced {
		path += "/namespaces/" + url.PathEscape(namespace)
	}
	query := url.Values{"limit": {fmt.Sprint(maxNames)}}
	if selector != "" {
		query.Set("labelSelector", selector)
	}
	var list metav1.PartialObjectMetadataList
	if err := o.config.Client.Get(ctx, path+"/"+r.Resource, query, apiclient.MetadataList, &list); err != nil {
		return nil, fmt.Errorf("list %s: %w", r.GroupResource(), err)
	}
	if list.Continue != "" || len(list.Items) > maxNames {
		return nil, fmt.Errorf("list %s: more than %d objects match; select fewer", r.GroupResource(), maxNames)
	}
	names := make([]string, len(list.Items))
	for i := range list.Items {
		names[i] = list.Items[i].Name
	}
	slices.Sort(names)
	return names, nil
}

// Resource is a resource that a metric may describe.
type Resource struct {
	schema.GroupVersionResource
	Kind, Singular string
	Namespaced     bool
}

// APIVersion returns the apiVersion of the resource's objects.
func (r Resource) APIVersion() string { return r.GroupVersion().String() }

// Catalogue is an immutable set of resources.
type Catalogue struct {
	all    []Resource
	exact  map[schema.GroupResource]Resource // keyed by plural, singular and lower-case kind
	byName map[string]Resource               // as exact, with the first group for each name
}

func newCatalogue(resources []Resource) *Catalogue {
	c := &Catalogue{exact: map[schema.GroupResource]Resource{}, byName: map[string]Resource{}}
	for _, r := range resources {
		if _, known := c.exact[r.GroupResource()]; known {
			continue
		}
		c.all = append(c.all, r)
		for _, name := range []string{r.Resource, r.Singular, strings.ToLower(r.Kind)} {
			key := schema.GroupResource{Group: r.Group, Resource: name}
			if _, taken := c.exact[key]; !taken {
				c.exact[key] = r
			}
			if _, taken := c.byName[name]; !taken {
				c.byName[name] = r
			}
		}
	}
	return c
}

// Lookup returns a resource by its plural, its singular, or its kind in lower case. If group is empty, it returns the
// resource of the first group that has the name. The core group comes first.
func (c *Catalogue) Lookup(group, name string) (Resource, bool) {
	name = strings.ToLower(name)
	if r, ok := c.exact[schema.GroupResource{Group: group, Resource: name}]; ok || group != "" {
		return r, ok
	}
	r, ok := c.byName[name]
	return r, ok
}

// WellKnown returns a catalogue of resources that every cluster has.
func WellKnown() *Catalogue { return newCatalogue(wellKnown()) }

// All returns the resources, with the core group first.
func (c *Catalogue) All() []Resource { return c.all }

// Resources returns the group and name of each resource, in the order of All.
func (c *Catalogue) Resources() []schema.GroupResource {
	out := make([]schema.GroupResource, len(c.all))
	for i, r := range c.all {
		out[i] = r.GroupResource()
	}
	return out
}

// wellKnown returns the resources that metrics describe before discovery has been read. They are also used if a front door
// does not serve a group, but its objects have metrics.
func wellKnown() []Resource {
	var out []Resource
	for _, g := range []struct {
		gv    schema.GroupVersion
		kinds []string
	}{
		{schema.GroupVersion{Version: "v1"}, []string{"Pod", "Service", "PersistentVolumeClaim", "ReplicationController",
			"-Namespace", "-Node", "-PersistentVolume"}},
		{schema.GroupVersion{Group: "apps", Version: "v1"}, []string{"Deployment", "StatefulSet", "DaemonSet", "ReplicaSet"}},
		{schema.GroupVersion{Group: "batch", Version: "v1"}, []string{"Job", "CronJob"}},
		{schema.GroupVersion{Group: "networking.k8s.io", Version: "v1"}, []string{"Ingress"}},
		{schema.GroupVersion{Group: "autoscaling", Version: "v2"}, []string{"HorizontalPodAutoscaler"}},
	} {
		for _, kind := range g.kinds {
			name, clusterScoped := strings.CutPrefix(kind, "-")
			singular := strings.ToLower(name)
			plural := singular + "s"
			if strings.HasSuffix(singular, "s") {
				plural = singular + "es"
			}
			out = append(out, Resource{g.gv.WithResource(plural), name, singular, !clusterScoped})
		}
	}
	return out
}
