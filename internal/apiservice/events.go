package apiservice

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/flowcontrol"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// Reasons of the Events about an APIService, or an APIRoute.
//
//reference:conditions Events
const (
	// backendAvailable is recorded when a backend becomes available.
	backendAvailable = "BackendAvailable"
	// backendUnavailable is recorded when a backend becomes unavailable. The message contains the condition's reason and
	// message.
	backendUnavailable = "BackendUnavailable"
	// backendUnavailableOnSome is recorded when only some replicas reach a backend. The message names the replicas.
	backendUnavailableOnSome = "BackendUnavailableOnSomeReplicas"
	// backendAvailableOnAll is recorded when all replicas reach a backend again.
	backendAvailableOnAll = "BackendAvailableOnAllReplicas"
	// rolledBack is recorded for a rule of an APIRoute if a backend failed too many requests. Another backend now receives
	// them.
	rolledBack = "RolledBack"
)

const (
	// eventSource is the component that reports the Events.
	eventSource = "portico"
	// maxQueuedEvents is the maximum number of Events that wait to be written. Further Events are lost; the status is not.
	maxQueuedEvents = 1024
	// eventsPerSecond and eventBurst limit the rate of Events of one replica, however many backends change.
	eventsPerSecond = 5
	eventBurst      = 50
	// cachedEvents is the number of Events that are kept for eventTTL, so that a repeated Event increments their count.
	cachedEvents = 512
	eventTTL     = time.Hour
	// countInterval is the minimum time between two writes of one Event. The next write includes the repetitions in
	// between.
	countInterval = 10 * time.Second
)

// eventRecorder records Events about APIServices whose backend becomes available or unavailable, and about APIRoutes that
// are rolled back. Events about objects without a namespace are in the namespace default, as is usual in Kubernetes.
//
// It does not use client-go's recorder (tools/events), for the reasons in docs/decisions/0011-limits.md. TestEventsMatchClientGoRecorder compares
// the two.
type eventRecorder struct {
	client  Events // nil if no Events are recorded
	replica string
	log     *zap.Logger
	queue   chan availabilityEvent

	mu       sync.Mutex // guards disagree
	disagree map[types.UID]bool
}

// Events writes Events in the namespace default. client-go's typed client of that namespace implements it.
type Events interface {
	Create(context.Context, *corev1.Event, metav1.CreateOptions) (*corev1.Event, error)
	Patch(ctx context.Context, name string, t types.PatchType, patch []byte, o metav1.PatchOptions, subresources ...string) (*corev1.Event, error)
}

// availabilityEvent is one change of the Available condition, or a rollback.
type availabilityEvent struct {
	name    string
	uid     types.UID
	about   schema.GroupVersionKind // zero for an APIService
	kind    string                  // Normal or Warning
	reason  string
	message string
	at      time.Time
}

func newEventRecorder(client Events, replica string, log *zap.Logger) *eventRecorder {
	return &eventRecorder{client: client, replica: replica, log: log, queue: make(chan availabilityEvent, maxQueuedEvents), disagree: make(map[types.UID]bool)}
}

// record queues an Event if a write of status changed the availability. It does not block.
func (h *eventRecorder) record(before, after *apiregistrationv1.APIService) {
	if t, ok := availabilityEventOf(before, after); ok {
		h.enqueue(t)
	}
	if t, ok := replicasEventOf(before, after); ok && h.announces(t) {
		h.enqueue(t)
	}
}

func (h *eventRecorder) enqueue(t availabilityEvent) {
	if h.client == nil {
		return
	}
	select {
	case h.queue <- t:
	default:
		h.log.Warn("too many Events in progress; dropping an Event", zap.String("apiservice", t.name), zap.String("reason", t.reason))
	}
}

// announces reports whether t should be sent. It remembers the APIServices with an Event about disagreeing replicas: only
// for these is the end of the disagreement announced.
func (h *eventRecorder) announces(t availabilityEvent) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if t.reason == backendUnavailableOnSome {
		if len(h.disagree) >= maxQueuedEvents {
			clear(h.disagree)
		}
		h.disagree[t.uid] = true
		return true
	}
	told := h.disagree[t.uid]
	delete(h.disagree, t.uid)
	return told
}

// replicasEventOf returns the Event of a change between agreement and disagreement of the replicas, or false if there is
// none. A backend that returns to one replica after the other causes no Event.
func replicasEventOf(before, after *apiregistrationv1.APIService) (availabilityEvent, bool) {
	old, _ := findCondition(before.Status.Conditions, AvailableOnAllReplicas)
	now, _ := findCondition(after.Status.Conditions, AvailableOnAllReplicas)
	t := availabilityEvent{name: after.Name, uid: after.UID, at: time.Now(), message: now.Message}
	switch {
	case now.Reason == someReplicas && old.Status != apiregistrationv1.ConditionFalse:
		t.kind, t.reason = corev1.EventTypeWarning, backendUnavailableOnSome
	case now.Status == apiregistrationv1.ConditionTrue && old.Reason == someReplicas:
		t.kind, t.reason = corev1.EventTypeNormal, backendAvailableOnAll
	default:
		return availabilityEvent{}, false
	}
	return t, true
}

// availabilityEventOf returns the Event of a status change, or false. The first condition of an APIService
// causes no Event.
func availabilityEventOf(before, after *apiregistrationv1.APIService) (availabilityEvent, bool) {
	old, known := findCondition(before.Status.Conditions, apiregistrationv1.Available)
	now, _ := findCondition(after.Status.Conditions, apiregistrationv1.Available)
	was, is := old.Status == apiregistrationv1.ConditionTrue, now.Status == apiregistrationv1.ConditionTrue
	if !known || was == is || after.Spec.Service == nil {
		return availabilityEvent{}, false
	}
	t := availabilityEvent{name: after.Name, uid: after.UID, at: time.Now()}
	if is {
		t.kind, t.reason = corev1.EventTypeNormal, backendAvailable
		t.message = "the backend is reached again: " + now.Message
	} else {
		t.kind, t.reason = corev1.EventTypeWarning, backendUnavailable
		t.message = now.Reason + ": " + now.Message
	}
	return t, true
}

// eventKey identifies availabilityEvents that are counted in one Event.
type eventKey struct {
	uid             types.UID
	reason, message string
}

// writtenEvent is an Event that was written.
type writtenEvent struct {
	event   *corev1.Event
	written time.Time
}

// run writes Events until ctx ends. Events that are queued then are lost; the status contains their information.
func (h *eventRecorder) run(ctx context.Context) error {
	known, err := lru.New[eventKey, writtenEvent](cachedEvents)
	if err != nil {
		return fmt.Errorf("remember events: %w", err)
	}
	limit := flowcontrol.NewTokenBucketRateLimiter(eventsPerSecond, eventBurst)
	defer limit.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case t := <-h.queue:
			if err := h.write(ctx, known, limit, t); err != nil && ctx.Err() == nil {
				h.log.Warn("failed to write an Event", zap.String("apiservice", t.name), zap.String("reason", t.reason), zap.Error(err))
			}
		}
	}
}

// write increments the count of an equal Event, or creates one.
func (h *eventRecorder) write(ctx context.Context, known *lru.Cache[eventKey, writtenEvent], limit flowcontrol.RateLimiter, t availabilityEvent) error {
	key := eventKey{t.uid, t.reason, t.message}
	last, again := known.Get(key)
	again = again && t.at.Sub(last.written) < eventTTL
	if again {
		last.event.Count++
		last.event.LastTimestamp = metav1.NewTime(t.at)
		if t.at.Sub(last.written) < countInterval {
			return nil
		}
	}
	if err := limit.Wait(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	if again {
		err := h.patchCount(ctx, last.event)
		if err == nil {
			known.Add(key, writtenEvent{last.event, t.at})
			return nil
		}
		if !apierrors.IsNotFound(err) {
			return err
		}
	}
	event, err := h.client.Create(ctx, h.newEvent(t), metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create event: %w", err)
	}
	known.Add(key, writtenEvent{event, t.at})
	return nil
}

func (h *eventRecorder) patchCount(ctx context.Context, e *corev1.Event) error {
	patch, err := json.Marshal(map[string]any{"count": e.Count, "lastTimestamp": e.LastTimestamp})
	if err != nil {
		return err
	}
	_, err = h.client.Patch(ctx, e.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("count event up: %w", err)
	}
	return nil
}

func (h *eventRecorder) newEvent(t availabilityEvent) *corev1.Event {
	at := metav1.NewTime(t.at)
	about := t.about
	if about.Empty() {
		about = apiregistrationv1.SchemeGroupVersion.WithKind("APIService")
	}
	return &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceDefault,
			Name:      fmt.Sprintf("%s.%x", t.name, t.at.UnixNano()),
		},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: about.GroupVersion().String(), Kind: about.Kind, Name: t.name, UID: t.uid,
		},
		Type: t.kind, Reason: t.reason, Message: t.message,
		Source:         corev1.EventSource{Component: eventSource, Host: h.replica},
		FirstTimestamp: at, LastTimestamp: at, Count: 1,
		ReportingController: eventSource, ReportingInstance: h.replica,
	}
}
