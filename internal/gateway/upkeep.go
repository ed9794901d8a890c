package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/util/retry"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	typedclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/typed/apiregistration/v1"
	aggregatorlisters "k8s.io/kube-aggregator/pkg/client/listers/apiregistration/v1"

	"portico.dev/internal/apiservice"
	"portico.dev/internal/gateway/adopter"
	"portico.dev/internal/gateway/adoption"
	"portico.dev/internal/gateway/lastknown"
	"portico.dev/internal/metrics"
	"portico.dev/internal/routetable"
)

// Reasons of the condition BackendAvailable that only a gateway sets.
//
//reference:conditions Reasons of BackendAvailable that only a gateway has
const (
	// reasonInvalidOriginal is set if the annotations of an adopted APIService do not identify its server.
	reasonInvalidOriginal = "InvalidOriginal"
	// reasonNotAdopted is set if an APIService points to the gateway, and has no annotation that names its server.
	reasonNotAdopted = "NotAdopted"
)

const (
	// upkeepInterval is how often all objects are compared, in addition to every change.
	upkeepInterval = 10 * time.Second
	writeTimeout   = 10 * time.Second
)

// upkeep maintains the objects from which other components learn about the gateway: the front-proxy authority in the
// ConfigMap of extension servers, while an APIService needs it; the caBundle of adopted APIServices; the conditions
// that the routing table does not write. One replica does this. It does not write data that is already correct.
type upkeep struct {
	gateway     adoption.Service
	apiServices aggregatorlisters.APIServiceLister // all APIServices of the API server, unmodified
	client      typedclient.APIServiceInterface
	trust       typedcorev1.ConfigMapInterface // of kube-system
	own         typedcorev1.ConfigMapInterface // of the gateway's namespace
	keys        *keys
	leads       func() bool
	routes      func() *routetable.Table
	metrics     *metrics.Gateway
	log         *zap.Logger
	wake        chan struct{}

	checks trustChecks

	mu        sync.Mutex
	published [][]byte // bundles that all readers have received
	problem   error    // of the latest round
}

// Wake triggers a round soon. It does not block.
func (u *upkeep) Wake() {
	select {
	case u.wake <- struct{}{}:
	default:
	}
}

// Published reports whether all readers have received a bundle.
func (u *upkeep) Published(bundle []byte) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.ContainsFunc(u.published, func(p []byte) bool { return bytes.Equal(p, bundle) })
}

// Problem returns the errors of the latest round. It is nil after a complete round, and if another replica leads.
func (u *upkeep) Problem() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.problem
}

// Run performs rounds until ctx ends.
func (u *upkeep) Run(ctx context.Context) error {
	tick := time.NewTicker(upkeepInterval)
	defer tick.Stop()
	for ctx.Err() == nil {
		u.round(ctx)
		select {
		case <-ctx.Done():
		case <-u.wake:
		case <-tick.C:
		}
	}
	return nil
}

// round performs all work once.
func (u *upkeep) round(ctx context.Context) {
	all, err := u.apiServices.List(labels.Everything())
	if err != nil { // reading a cache does not fail
		u.log.Error("list APIServices", zap.Error(err))
		return
	}
	u.count(all)
	if !u.leads() {
		u.finish(nil, nil)
		return
	}
	if u.checks.check(ctx, u.remote(), u.keys.client.Fingerprint()) {
		u.Wake() // check unsettled results again
	}
	serving, client := u.keys.servingBundle(), u.keys.clientBundle()
	problems := []error{u.publishHere(ctx, serving, client), u.publishTrust(ctx, client, slices.ContainsFunc(all, adoption.Adopted))}
	trustPublished := problems[1] == nil
	bundled := true
	for _, o := range all {
		err := u.keepBundle(ctx, o, serving)
		bundled = bundled && err == nil
		problems = append(problems, err, u.keepConditions(ctx, o))
	}
	var published [][]byte
	if trustPublished {
		published = append(published, client)
	}
	if bundled {
		published = append(published, serving)
	}
	if ctx.Err() == nil {
		u.finish(published, errors.Join(problems...))
	}
}

func (u *upkeep) finish(published [][]byte, problem error) {
	u.mu.Lock()
	before := u.problem
	u.published, u.problem = published, problem
	u.mu.Unlock()
	switch {
	case problem != nil && (before == nil || before.Error() != problem.Error()):
		u.log.Warn("failed to reconcile the APIServices and authorities of the gateway; retrying", zap.Error(problem))
	case problem == nil && before != nil:
		u.log.Info("reconciled the APIServices and authorities of the gateway")
	}
}

// count sets the metrics.
func (u *upkeep) count(all []*apiregistrationv1.APIService) {
	adopted, prepared, trusted := 0, 0, map[string]bool{}
	for _, o := range all {
		if c, _ := adoption.Condition(o, adoption.FrontProxyTrusted); c.Status == apiregistrationv1.ConditionTrue || c.Status == apiregistrationv1.ConditionFalse {
			trusted[o.Name] = c.Status == apiregistrationv1.ConditionTrue
		}
		switch {
		case u.gateway.Fronts(o):
			adopted++
		case adoption.Adopted(o):
			prepared++
		}
	}
	u.metrics.Set(adopted, prepared, u.leads(), trusted)
}

// remote returns the routes of extension servers. For an APIRoute it returns the routes of the backends.
func (u *upkeep) remote() (all []*routetable.Route) {
	for _, r := range u.routes().Routes() {
		if !r.Local {
			all = append(all, serversOf(r)...)
		}
	}
	return all
}

func serversOf(r *routetable.Route) []*routetable.Route {
	if r.Routing == nil {
		return []*routetable.Route{r}
	}
	return slices.DeleteFunc(slices.Clone(r.Parts), func(part *routetable.Route) bool { return part.Local })
}

// trusted returns whether the extension servers of an APIService trust the gateway. The second result is false if
// that is unknown.
func (u *upkeep) trusted(o *apiregistrationv1.APIService) (apiregistrationv1.APIServiceCondition, bool) {
	route, ok := u.routes().Lookup(schema.GroupVersion{Group: o.Spec.Group, Version: o.Spec.Version})
	if !ok || route.Name != o.Name {
		return u.checks.condition(o.Name)
	}
	var all apiregistrationv1.APIServiceCondition
	known := false
	for _, server := range serversOf(route) {
		c, ok := u.checks.condition(server.Name)
		if !ok {
			continue
		}
		if _, backend, isPart := strings.Cut(server.Name, "/"); isPart && c.Message != "" {
			c.Message = "backend " + backend + ": " + c.Message
		}
		if !known || all.Status == apiregistrationv1.ConditionTrue || c.Status == apiregistrationv1.ConditionFalse && all.Status != c.Status {
			all, known = c, true
		}
	}
	return all, known
}

// publishHere writes the authorities to the ConfigMap that adopters read.
func (u *upkeep) publishHere(ctx context.Context, serving, client []byte) error {
	want := map[string]string{adoption.PublishedServingCA: string(serving), adoption.PublishedFrontProxyCA: string(client)}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	err := retry.OnError(retry.DefaultRetry, lastknown.Conflicts, func() error {
		cm, err := u.own.Get(ctx, adoption.PublishedConfigMap, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			_, err = u.own.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: adoption.PublishedConfigMap}, Data: want}, metav1.CreateOptions{})
			return err
		case err != nil || maps.Equal(cm.Data, want):
			return err
		}
		cm = cm.DeepCopy()
		cm.Data = want
		_, err = u.own.Update(ctx, cm, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("publish the authorities in ConfigMap %s: %w", adoption.PublishedConfigMap, err)
	}
	return nil
}

// publishTrust adds the front-proxy authority to the authorities that extension servers trust, or removes it when no
// APIService needs it.
func (u *upkeep) publishTrust(ctx context.Context, client []byte, needed bool) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	err := adopter.RewriteTrust(ctx, u.trust, func(data map[string]string) (map[string]string, error) {
		if !needed {
			return u.gateway.Withdraw(data)
		}
		return u.gateway.Publish(data, client)
	})
	if err != nil {
		return fmt.Errorf("publish the front-proxy authority in ConfigMap %s/%s: %w", adoption.TrustNamespace, adoption.TrustConfigMap, err)
	}
	return nil
}

// keepBundle writes the caBundle of an APIService that points to this gateway, unless it disables verification.
func (u *upkeep) keepBundle(ctx context.Context, o *apiregistrationv1.APIService, bundle []byte) error {
	changed := o.DeepCopy()
	if !u.gateway.KeepBundle(changed, bundle) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	_, err := u.client.Update(ctx, changed, metav1.UpdateOptions{}) // of the version that was compared
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		u.Wake()
		return nil
	}
	if err != nil {
		return fmt.Errorf("write spec.caBundle of APIService %s: %w", o.Name, err)
	}
	return nil
}

// notAdopted returns the message of reasonNotAdopted. It names the gateway, because other gateways write the same
// condition.
func (u *upkeep) notAdopted() string {
	return "it leads to the gateway " + u.gateway.String() + ", and has no annotation " + adoption.OriginalServiceAnnotation + " that names its extension server"
}

// keepConditions writes the conditions that the routing table does not write, and removes all of the gateway's
// conditions from an APIService that does not use a gateway.
func (u *upkeep) keepConditions(ctx context.Context, o *apiregistrationv1.APIService) error {
	if u.gateway.FrontedElsewhere(o) {
		return nil
	}
	changed := o.DeepCopy()
	_, invalid := u.gateway.OriginalOf(o)
	switch {
	case !adoption.Adopted(o) && !u.gateway.Fronts(o):
		if c, _ := adoption.Condition(o, adoption.BackendAvailable); c.Reason == reasonNotAdopted && c.Message != u.notAdopted() {
			return nil // it points to another gateway, which has written the condition
		}
		adoption.RemoveConditions(changed)
	case !adoption.Adopted(o):
		setCondition(changed, apiregistrationv1.APIServiceCondition{
			Type: adoption.BackendAvailable, Status: apiregistrationv1.ConditionFalse, Reason: reasonNotAdopted,
			Message: u.notAdopted(),
		})
	case invalid != nil:
		setCondition(changed, apiregistrationv1.APIServiceCondition{
			Type: adoption.BackendAvailable, Status: apiregistrationv1.ConditionFalse, Reason: reasonInvalidOriginal, Message: apiservice.SingleLine(invalid.Error()),
		})
	default:
		if c, ok := u.trusted(o); ok {
			setCondition(changed, c)
		}
	}
	if equality.Semantic.DeepEqual(o.Status, changed.Status) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	_, err := u.client.UpdateStatus(ctx, changed, metav1.UpdateOptions{})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		u.Wake()
		return nil
	}
	if apierrors.IsForbidden(err) && !adoption.Adopted(o) && !u.gateway.Fronts(o) {
		return nil // `aggregator release` removes the conditions, and then the gateway's right to write them
	}
	if err != nil {
		return fmt.Errorf("write conditions of APIService %s: %w", o.Name, err)
	}
	return nil
}

// setCondition sets a condition. Its lastTransitionTime changes with its status.
func setCondition(o *apiregistrationv1.APIService, c apiregistrationv1.APIServiceCondition) {
	old, there := adoption.Condition(o, c.Type)
	c.LastTransitionTime = metav1.Now()
	if there && old.Status == c.Status {
		c.LastTransitionTime = old.LastTransitionTime
	}
	if i := slices.IndexFunc(o.Status.Conditions, func(x apiregistrationv1.APIServiceCondition) bool { return x.Type == c.Type }); i >= 0 {
		o.Status.Conditions[i] = c
		return
	}
	o.Status.Conditions = append(o.Status.Conditions, c)
}
