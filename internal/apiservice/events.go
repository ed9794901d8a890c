package apiservice

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/util/flowcontrol"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

const (
	// Reasons of the Events.
	backendAvailable   = "BackendAvailable"
	backendUnavailable = "BackendUnavailable"

	// eventSource is who says so.
	eventSource = "portico"
	// maxTidings bounds the Events that wait to be written. What is beyond it is lost; the status is not.
	maxTidings = 1024
	// eventsPerSecond and eventBurst bound the Events of one replica, whatever happens to however many backends.
	eventsPerSecond = 5
	eventBurst      = 50
	// rememberedEvents is how many Events may be counted up instead of written anew, for as long as an Event lives.
	rememberedEvents = 512
	eventLife        = time.Hour
	// countGap is the least time between two writes of one Event. What happens in between is counted by the next.
	countGap = 10 * time.Second
)

// herald tells people of backends that go and return, in Events about the APIService. An APIService has no namespace;
// as everywhere in Kubernetes, Events about such objects are in the namespace default.
type herald struct {
	client  typedcorev1.EventsGetter // nil: nobody is told
	replica string
	log     *zap.Logger
	tidings chan tidings
}

// tidings is one flip of what is written.
type tidings struct {
	name    string
	uid     types.UID
	kind    string // Normal or Warning
	reason  string
	message string
	at      time.Time
}

func newHerald(client typedcorev1.EventsGetter, replica string, log *zap.Logger) *herald {
	return &herald{client: client, replica: replica, log: log, tidings: make(chan tidings, maxTidings)}
}

// tell notes what a write of status changed. It does not block.
func (h *herald) tell(before, after *apiregistrationv1.APIService) {
	t, ok := tidingsOf(before, after)
	if !ok || h.client == nil {
		return
	}
	select {
	case h.tidings <- t:
	default:
		h.log.Warn("too many Events at a time; this one is not written", zap.String("apiservice", t.name), zap.String("reason", t.reason))
	}
}

// tidingsOf says what a change of status tells people; false when nothing. An APIService that is new neither goes nor
// returns.
func tidingsOf(before, after *apiregistrationv1.APIService) (tidings, bool) {
	old, known := find(before.Status.Conditions, apiregistrationv1.Available)
	now, _ := find(after.Status.Conditions, apiregistrationv1.Available)
	was, is := old.Status == apiregistrationv1.ConditionTrue, now.Status == apiregistrationv1.ConditionTrue
	if !known || was == is || after.Spec.Service == nil {
		return tidings{}, false
	}
	t := tidings{name: after.Name, uid: after.UID, at: time.Now()}
	if is {
		t.kind, t.reason = corev1.EventTypeNormal, backendAvailable
		t.message = "the backend is reached again: " + now.Message
	} else {
		t.kind, t.reason = corev1.EventTypeWarning, backendUnavailable
		t.message = now.Reason + ": " + now.Message
	}
	return t, true
}

// subject is what tidings must have in common to be one Event.
type subject struct {
	uid             types.UID
	reason, message string
}

// told is an Event that was written.
type told struct {
	event   *corev1.Event
	written time.Time
}

// run writes until ctx ends. What waits then is not written: the replica that writes from now on knows nothing of it,
// but the status does.
func (h *herald) run(ctx context.Context) error {
	known, err := lru.New[subject, told](rememberedEvents)
	if err != nil {
		return fmt.Errorf("remember events: %w", err)
	}
	limit := flowcontrol.NewTokenBucketRateLimiter(eventsPerSecond, eventBurst)
	defer limit.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case t := <-h.tidings:
			if err := h.write(ctx, known, limit, t); err != nil && ctx.Err() == nil {
				h.log.Warn("an Event is not written", zap.String("apiservice", t.name), zap.String("reason", t.reason), zap.Error(err))
			}
		}
	}
}

// write counts an Event up that says the same, or writes one.
func (h *herald) write(ctx context.Context, known *lru.Cache[subject, told], limit flowcontrol.RateLimiter, t tidings) error {
	key := subject{t.uid, t.reason, t.message}
	last, again := known.Get(key)
	again = again && t.at.Sub(last.written) < eventLife
	if again {
		last.event.Count++
		last.event.LastTimestamp = metav1.NewTime(t.at)
		if t.at.Sub(last.written) < countGap {
			return nil
		}
	}
	if err := limit.Wait(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	if again {
		err := h.count(ctx, last.event)
		if err == nil {
			known.Add(key, told{last.event, t.at})
			return nil
		}
		if !apierrors.IsNotFound(err) {
			return err
		}
	}
	event, err := h.client.Events(metav1.NamespaceDefault).Create(ctx, h.event(t), metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create event: %w", err)
	}
	known.Add(key, told{event, t.at})
	return nil
}

func (h *herald) count(ctx context.Context, e *corev1.Event) error {
	patch, err := json.Marshal(map[string]any{"count": e.Count, "lastTimestamp": e.LastTimestamp})
	if err != nil {
		return err
	}
	_, err = h.client.Events(e.Namespace).Patch(ctx, e.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("count event up: %w", err)
	}
	return nil
}

func (h *herald) event(t tidings) *corev1.Event {
	at := metav1.NewTime(t.at)
	return &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceDefault,
			Name:      fmt.Sprintf("%s.%x", t.name, t.at.UnixNano()),
		},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: apiregistrationv1.SchemeGroupVersion.String(), Kind: "APIService", Name: t.name, UID: t.uid,
		},
		Type: t.kind, Reason: t.reason, Message: t.message,
		Source:         corev1.EventSource{Component: eventSource, Host: h.replica},
		FirstTimestamp: at, LastTimestamp: at, Count: 1,
		ReportingController: eventSource, ReportingInstance: h.replica,
	}
}
