// Package adopter puts APIServices behind a gateway and releases them again, with the rights of an administrator.
package adopter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico.dev/internal/gateway/adoption"
	"portico.dev/internal/gateway/lastknown"
	"portico.dev/internal/run"
	"portico.dev/internal/tools/toolclient"
	"portico.dev/internal/version"
)

const (
	// DefaultPatience is how long an adoption waits until the gateway reaches the server and the server trusts the
	// gateway. Servers read the trusted front proxies once a minute.
	DefaultPatience = 2 * time.Minute
	pollInterval    = 500 * time.Millisecond
	// settled is the number of consecutive responses through the gateway that complete an adoption.
	settled = 4
	// gatewayStart limits the wait for a gateway that has not published its authority.
	gatewayStart = 10 * time.Second
	// arrival limits the wait for the API server to reach the gateway.
	arrival = 30 * time.Second
)

// Adopter adopts and releases APIServices with the rights of an administrator. A release does not require a gateway.
type Adopter struct {
	gateway  adoption.Service
	patience time.Duration
	client   *toolclient.Client
	objects  *toolclient.APIServices
}

// New returns an Adopter for a gateway. If patience is 0, it is DefaultPatience.
func New(config *rest.Config, gateway adoption.Service, patience time.Duration) (*Adopter, error) {
	client, err := toolclient.New(config)
	if err != nil {
		return nil, err
	}
	if patience <= 0 {
		patience = DefaultPatience
	}
	return &Adopter{gateway: gateway, patience: patience, client: client, objects: client.APIServices()}, nil
}

// Candidates returns the names of all APIServices that can be adopted and are not.
func (a *Adopter) Candidates(ctx context.Context) ([]string, error) {
	return a.names(ctx, func(o *apiregistrationv1.APIService) bool {
		return o.Spec.Service != nil && !a.gateway.Fronts(o)
	})
}

// Adopted returns the names of all APIServices that are adopted or prepared for adoption.
func (a *Adopter) Adopted(ctx context.Context) ([]string, error) {
	return a.names(ctx, adoption.Adopted)
}

func (a *Adopter) names(ctx context.Context, want func(*apiregistrationv1.APIService) bool) ([]string, error) {
	list, err := a.objects.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list APIServices: %w", err)
	}
	var names []string
	for i := range list.Items {
		if want(&list.Items[i]) {
			names = append(names, list.Items[i].Name)
		}
	}
	return names, nil
}

// servingCA returns the authority of the gateway's serving certificate. It waits for a gateway that is starting.
func (a *Adopter) servingCA(ctx context.Context) (ca []byte, err error) {
	err = a.poll(ctx, gatewayStart, func() error {
		ca, err = a.PublishedCA(ctx)
		return err
	})
	return ca, err
}

// PublishedCA returns the authority of the gateway's serving certificate, which the gateway publishes.
func (a *Adopter) PublishedCA(ctx context.Context) ([]byte, error) {
	cm, err := a.client.ConfigMaps(a.gateway.Namespace).Get(ctx, adoption.PublishedConfigMap, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("ConfigMap %s/%s, in which a gateway publishes its authorities, does not exist; is a gateway running? `kubectl -n %s get pods`", a.gateway.Namespace, adoption.PublishedConfigMap, a.gateway.Namespace)
	case err != nil:
		return nil, fmt.Errorf("get ConfigMap %s/%s: %w", a.gateway.Namespace, adoption.PublishedConfigMap, err)
	}
	return []byte(cm.Data[adoption.PublishedServingCA]), nil
}

// Recipe returns how to adopt an APIService and release it with kubectl. It does not change anything.
func (a *Adopter) Recipe(ctx context.Context, name string) (adoption.Recipe, error) {
	ca, err := a.servingCA(ctx)
	if err != nil {
		return adoption.Recipe{}, err
	}
	o, err := a.objects.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return adoption.Recipe{}, fmt.Errorf("get APIService %s: %w", name, err)
	}
	if err := a.gateway.Prepare(o); err != nil {
		return adoption.Recipe{}, fmt.Errorf("APIService %s: %w", name, err)
	}
	return a.gateway.RecipeFor(o, ca)
}

// Adopt puts an APIService behind the gateway, once the gateway reaches its server, the server trusts the gateway,
// and both the gateway and the API server receive the same resources. Otherwise it restores the APIService and
// returns the reason. It reports whether it changed the APIService.
func (a *Adopter) Adopt(ctx context.Context, name string) (changed bool, err error) {
	ca, err := a.servingCA(ctx)
	if err != nil {
		return false, err
	}
	o, err := a.objects.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return false, fmt.Errorf("get APIService %s: %w", name, err)
	}
	// The role may have been deleted with the manifests of the gateway, so it is also written for an adopted
	// APIService.
	if err := a.grant(ctx, name, true); err != nil {
		return false, err
	}
	if a.gateway.Fronts(o) && adoption.Adopted(o) {
		return false, nil
	}
	if _, err := a.change(ctx, name, a.gateway.Prepare); err != nil {
		return false, errors.Join(err, a.grant(ctx, name, false))
	}
	if err = a.examine(ctx, name); err == nil {
		_, err = a.change(ctx, name, func(o *apiregistrationv1.APIService) error { return a.gateway.Adopt(o, ca) })
	}
	if err == nil {
		if err = a.awaitArrival(ctx, name); err == nil {
			return true, nil
		}
	}
	undoing, cancel := context.WithTimeout(context.WithoutCancel(ctx), arrival)
	defer cancel()
	if _, undone := a.Release(undoing, name); undone != nil {
		err = errors.Join(err, fmt.Errorf("and it could not be undone; `%s release %s` does it: %w", version.Program, name, undone))
	}
	return false, err
}

// change reads an APIService, changes it and writes it. It retries if another client has written the APIService in
// between.
func (a *Adopter) change(ctx context.Context, name string, change func(*apiregistrationv1.APIService) error) (o *apiregistrationv1.APIService, err error) {
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if o, err = a.objects.Get(ctx, name, metav1.GetOptions{}); err != nil {
			return fmt.Errorf("get APIService %s: %w", name, err)
		}
		if err := change(o); err != nil {
			return fmt.Errorf("APIService %s: %w", name, err)
		}
		o, err = a.objects.Update(ctx, o, metav1.UpdateOptions{})
		return err
	})
	return o, err
}

// examine waits for the gateway's conditions of a prepared APIService, and compares the resources that the API server
// and the gateway receive.
func (a *Adopter) examine(ctx context.Context, name string) error {
	var o *apiregistrationv1.APIService
	err := a.poll(ctx, a.patience, func() (err error) {
		if o, err = a.objects.Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		for _, t := range []apiregistrationv1.APIServiceConditionType{adoption.BackendAvailable, adoption.FrontProxyTrusted} {
			c, there := adoption.Condition(o, t)
			switch {
			case !there && t == adoption.BackendAvailable:
				return fmt.Errorf("the gateway has written no condition %s; is it running, and may it write the status of APIService %s? `kubectl -n %s logs deployment/%s`", t, name, a.gateway.Namespace, a.gateway.Name)
			case !there:
				return fmt.Errorf("the gateway has not found out yet whether the extension server believes its front-proxy certificate")
			case c.Status != apiregistrationv1.ConditionTrue:
				return fmt.Errorf("the gateway says %s=%s (%s): %s", t, c.Status, c.Reason, c.Message)
			}
		}
		return a.compare(ctx, o)
	})
	if err != nil {
		return fmt.Errorf("APIService %s is not adopted: %w", name, err)
	}
	return nil
}

// compare compares the resources that the extension server returns to the API server and to the gateway.
func (a *Adopter) compare(ctx context.Context, o *apiregistrationv1.APIService) error {
	gv := schema.GroupVersion{Group: o.Spec.Group, Version: o.Spec.Version}
	direct, err := a.client.Resources(ctx, gv)
	if err != nil {
		available, _ := adoption.Condition(o, apiregistrationv1.Available)
		return fmt.Errorf("the API server does not get the discovery document of %s itself (Available=%s: %s): %w", gv, available.Status, available.Message, err)
	}
	known, routed, err := a.storedResources(ctx, o.Name, gv)
	if err != nil {
		return err
	}
	if routed { // its other backends may have more resources
		known = slices.DeleteFunc(known, func(r metav1.APIResource) bool {
			return !slices.ContainsFunc(direct, func(d metav1.APIResource) bool { return d.Name == r.Name })
		})
	}
	if differ := differences(direct, known); len(differ) > 0 {
		return fmt.Errorf("the extension server tells the gateway other resources than the API server: %s", strings.Join(differ, ", "))
	}
	return nil
}

// storedResources returns the resources that the gateway has stored for an APIService or, with an APIRoute, for its backends.
func (a *Adopter) storedResources(ctx context.Context, apiService string, gv schema.GroupVersion) (resources []metav1.APIResource, routed bool, err error) {
	stored, err := lastknown.Storage{Client: a.client.ConfigMaps(a.gateway.Namespace), Key: lastknown.Discovery}.Load(ctx)
	if err != nil {
		return nil, false, err
	}
	names := sets.New[string]()
	for _, name := range slices.Sorted(maps.Keys(stored)) {
		of, _, isBackend := strings.Cut(name, "/")
		var document struct {
			Resources []apidiscoveryv2.APIResourceDiscovery `json:"resources"`
		}
		if of != apiService || json.Unmarshal(stored[name], &document) != nil {
			continue
		}
		routed = routed || isBackend
		for _, r := range toolclient.FromAggregated(document.Resources) {
			if !names.Has(r.Name) {
				names.Insert(r.Name)
				resources = append(resources, r)
			}
		}
	}
	if len(names) == 0 {
		return nil, false, fmt.Errorf("the gateway has stored no discovery document of %s", gv)
	}
	return resources, routed, nil
}

// differences returns the names of the resources that differ.
func differences(x, y []metav1.APIResource) []string {
	index := func(list []metav1.APIResource) map[string]string {
		out := map[string]string{}
		for _, r := range list {
			verbs := slices.Sorted(slices.Values([]string(r.Verbs)))
			out[r.Name] = fmt.Sprint(r.Kind, r.Namespaced, verbs)
		}
		return out
	}
	a, b := index(x), index(y)
	var out []string
	for name, description := range a {
		if b[name] != description {
			out = append(out, name)
		}
	}
	for name := range b {
		if _, both := a[name]; !both {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// awaitArrival waits until the API server receives responses through the gateway.
func (a *Adopter) awaitArrival(ctx context.Context, name string) error {
	good := 0
	err := a.poll(ctx, arrival, func() error {
		o, err := a.objects.Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			_, err = a.client.Resources(ctx, schema.GroupVersion{Group: o.Spec.Group, Version: o.Spec.Version})
		}
		if err != nil {
			good = 0
			return err
		}
		if c, _ := adoption.Condition(o, apiregistrationv1.Available); c.Status != apiregistrationv1.ConditionTrue {
			good = 0
			return fmt.Errorf("condition Available is %s (%s): %s", c.Status, c.Reason, c.Message)
		}
		if good++; good < settled {
			return errors.New("it has answered so far")
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("APIService %s is not adopted: the API server does not reach the gateway at Service %s: %w", name, a.gateway, err)
	}
	return nil
}

// poll calls try until it succeeds. It returns the last error when the time is over.
func (a *Adopter) poll(ctx context.Context, within time.Duration, try func() error) error {
	deadline := time.Now().Add(within)
	for {
		err := try()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) || !run.Pause(ctx, pollInterval) {
			return err
		}
	}
}

// Release points an APIService to its server again, and removes everything that an adoption added. After the last
// release, it also removes the gateway's authority from the authorities that extension servers trust. It reports
// whether it released the APIService.
func (a *Adopter) Release(ctx context.Context, name string) (released bool, err error) {
	gateway := a.gateway
	_, err = a.change(ctx, name, func(o *apiregistrationv1.APIService) error {
		if original, err := adoption.OriginalOf(o); err == nil && o.Spec.Service != nil && adoption.ServiceOf(o.Spec.Service) != original.Service {
			gateway = adoption.ServiceOf(o.Spec.Service)
		}
		released, err = adoption.Release(o)
		return err
	})
	if err != nil || !released {
		return false, err
	}
	err = errors.Join(a.removeConditions(ctx, name), a.grant(ctx, name, false))
	left, listed := a.Adopted(ctx)
	if listed == nil && len(left) == 0 {
		listed = RewriteTrust(ctx, a.client.ConfigMaps(adoption.TrustNamespace), gateway.Withdraw)
	}
	return true, errors.Join(err, listed)
}

func (a *Adopter) removeConditions(ctx context.Context, name string) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		o, err := a.objects.Get(ctx, name, metav1.GetOptions{})
		if err != nil || !adoption.RemoveConditions(o) {
			return err
		}
		_, err = a.objects.UpdateStatus(ctx, o, metav1.UpdateOptions{})
		return err
	})
}

// grant allows the gateway to write exactly the adopted APIServices, by a ClusterRole that names them.
func (a *Adopter) grant(ctx context.Context, name string, may bool) error {
	roles, role, change := a.client.ClusterRoles(), a.gateway.AdoptedRole(), adoption.Revoke
	if may {
		change = adoption.Grant
	}
	err := retry.OnError(retry.DefaultBackoff, lastknown.Conflicts, func() error {
		have, err := roles.Get(ctx, role, metav1.GetOptions{})
		absent := apierrors.IsNotFound(err)
		if err != nil && !absent {
			return err
		}
		want := have.DeepCopy()
		if want.Name = role; !change(want, name) {
			return nil
		}
		if absent {
			_, err = roles.Create(ctx, want, metav1.CreateOptions{})
		} else {
			_, err = roles.Update(ctx, want, metav1.UpdateOptions{})
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("write ClusterRole %s, by which the gateway may write APIService %s: %w", role, name, err)
	}
	return nil
}

// RewriteTrust changes the ConfigMap in which extension servers find the trusted front proxies, if a change is
// needed. It never overwrites a concurrent change.
func RewriteTrust(ctx context.Context, client lastknown.ConfigMaps, rewrite func(map[string]string) (map[string]string, error)) error {
	return retry.OnError(retry.DefaultRetry, apierrors.IsConflict, func() error {
		cm, err := client.Get(ctx, adoption.TrustConfigMap, metav1.GetOptions{})
		if err != nil {
			return err
		}
		data, err := rewrite(cm.Data)
		if err != nil || maps.Equal(data, cm.Data) {
			return err
		}
		cm = cm.DeepCopy()
		cm.Data = data
		_, err = client.Update(ctx, cm, metav1.UpdateOptions{})
		return err
	})
}
