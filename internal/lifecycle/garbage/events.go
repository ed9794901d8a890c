package garbage

import (
	"context"
	"fmt"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
)

const (
	// eventSource is what kube-controller-manager's garbage collector calls itself.
	eventSource = "garbage-collector-controller"
	// eventInterval is the least time between two equal Events.
	eventInterval = time.Hour
)

// Reasons of the Events about objects that cannot be collected.
//
//reference:conditions Events
const (
	// reasonInvalidOwnerNamespace is an ownerReference that is invalid because the owner would be in another namespace.
	reasonInvalidOwnerNamespace = "OwnerRefInvalidNamespace"
	// reasonOrphanWaits is a deletion with propagationPolicy Orphan that waits because dependents may be where nothing can be listed.
	reasonOrphanWaits = "OrphanWaits"
)

// events writes Events about problems with objects. An Event that cannot be written is lost.
type events struct {
	client corev1client.EventsGetter
	sent   *lru.Cache[string, time.Time]
	log    *zap.Logger
}

func newEvents(client corev1client.EventsGetter, log *zap.Logger) *events {
	return &events{client: client, sent: newCache[string, time.Time](), log: log}
}

// misplaced reports an owner in another namespace, or in a namespace while the object is in none.
func (e *events) misplaced(ctx context.Context, kind schema.GroupVersionKind, o *metav1.PartialObjectMetadata, ref metav1.OwnerReference) {
	owner := fmt.Sprintf("[%s/%s, namespace: %s, name: %s, uid: %s]", ref.APIVersion, ref.Kind, o.Namespace, ref.Name, ref.UID)
	e.warn(ctx, kind, o, reasonInvalidOwnerNamespace, fmt.Sprintf("ownerRef %s does not exist in namespace %q", owner, o.Namespace))
}

// orphanWaits reports why a deletion with propagationPolicy Orphan waits.
func (e *events) orphanWaits(ctx context.Context, kind schema.GroupVersionKind, o *metav1.PartialObjectMetadata, unseen string) {
	e.warn(ctx, kind, o, reasonOrphanWaits, "dependents that have to be kept may be among "+unseen+
		", which cannot be listed now; the deletion goes on when they can be, or when their APIService is deleted")
}

func (e *events) warn(ctx context.Context, kind schema.GroupVersionKind, o *metav1.PartialObjectMetadata, reason, message string) {
	id, now := string(o.UID)+" "+message, time.Now()
	if last, ok := e.sent.Get(id); ok && now.Sub(last) < eventInterval {
		return
	}
	e.sent.Add(id, now)
	namespace := o.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	event := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s.%x", o.Name, now.UnixNano()), Namespace: namespace},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: kind.GroupVersion().String(), Kind: kind.Kind, Namespace: o.Namespace, Name: o.Name, UID: o.UID,
		},
		Reason: reason, Message: message, Type: corev1.EventTypeWarning,
		Source: corev1.EventSource{Component: eventSource}, ReportingController: eventSource,
		FirstTimestamp: metav1.NewTime(now), LastTimestamp: metav1.NewTime(now), Count: 1,
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if _, err := e.client.Events(namespace).Create(ctx, event, metav1.CreateOptions{}); err != nil {
		e.log.Warn("an Event could not be written", zap.String("reason", reason), zap.String("message", message), zap.Error(err))
	}
}
