package watchlist

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico.dev/internal/transport"
)

// Verdict describes how an extension server handles watches of one resource with initial events.
type Verdict int

const (
	// Unprobed means that no probe has ended yet.
	Unprobed Verdict = iota
	// Honours means that the stream contained the bookmark that ends the initial events.
	Honours
	// Refuses means that the server answered 400 or 422, or with an error event. Clients then list and watch.
	Refuses
	// Ignores means that the stream contained no such bookmark, or that the server answers in a way that makes client-go
	// repeat the same request forever. Informers that begin with such a watch never sync.
	Ignores
	// Undetermined means that the server did not answer, or answered with a code that is unrelated to initial events, such
	// as 401, 403, 404, 405, 429 or 500.
	Undetermined
)

// String returns the name of the verdict in metrics and debug output.
func (v Verdict) String() string {
	return [...]string{"unprobed", "honours", "refuses", "ignores", "undetermined"}[v]
}

const (
	// probeTimeout limits a probe, from the request to the last byte that is read.
	probeTimeout = 3 * time.Second
	// maxProbeBody limits the number of bytes that are read of a response.
	maxProbeBody = 1 << 20
)

// probeQuery is the query of client-go's informers, with a label selector that matches no object, so that the response is
// short. The server ends the stream itself if the end of the request does not reach it.
var probeQuery = url.Values{
	"watch": {"true"}, "sendInitialEvents": {"true"}, "allowWatchBookmarks": {"true"},
	"resourceVersionMatch": {string(metav1.ResourceVersionMatchNotOlderThan)},
	"timeoutSeconds":       {"5"},
	"labelSelector":        {"portico.dev/watch-probe=none"},
}.Encode()

// Probe watches one resource in all namespaces as kube-aggregator's user, and returns how the server handles the request
// for initial events. reason briefly describes the observation, without addresses. It takes at most 3 s and reads at most 1
// MiB. Redirects are not followed.
func Probe(ctx context.Context, backend http.RoundTripper, of schema.GroupVersionResource) (v Verdict, reason string) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	path := "/apis/" + of.Group + "/" + of.Version + "/" + of.Resource
	if of.Group == "" {
		path = "/api/" + of.Version + "/" + of.Resource
	}
	r := (&http.Request{
		Method: http.MethodGet,
		URL:    &url.URL{Scheme: "https", Host: "backend", Path: path, RawQuery: probeQuery},
		Header: http.Header{
			"Accept": {"application/json"}, "User-Agent": {"portico"},
			"X-Remote-User": {"system:kube-aggregator"}, "X-Remote-Group": {"system:masters"},
		},
	}).WithContext(ctx)
	resp, err := backend.RoundTrip(r)
	if err != nil {
		return fromError(ctx, err)
	}
	defer func() { _ = resp.Body.Close() }() // nothing was written
	switch resp.StatusCode {
	case http.StatusOK:
		return fromStream(ctx, resp.Body)
	case http.StatusBadRequest, http.StatusUnprocessableEntity:
		return Refuses, fmt.Sprintf("the server answered %d", resp.StatusCode)
	case http.StatusGone:
		return Ignores, "the server answered 410, to which clients ask for the same again"
	}
	return Undetermined, fmt.Sprintf("the server answered %d", resp.StatusCode)
}

// fromError distinguishes a server that was not reached from one that sends no headers before the first event, so that a
// watch without events gets no response.
func fromError(ctx context.Context, err error) (Verdict, string) {
	var ours *transport.Error
	if errors.As(err, &ours) && ours.Sent && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return Ignores, fmt.Sprintf("no response headers in %s", probeTimeout)
	}
	return Undetermined, "the server could not be reached, or broke off"
}

// watchEvent is one event of a watch. The type determines the form of object.
type watchEvent struct {
	Type   string          `json:"type"`
	Object json.RawMessage `json:"object"`
}

// endsInitialEvents reports whether an event is the bookmark after the initial events.
func (e *watchEvent) endsInitialEvents() bool {
	var o struct {
		Metadata struct {
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
	}
	return e.Type == "BOOKMARK" && json.Unmarshal(e.Object, &o) == nil && o.Metadata.Annotations[metav1.InitialEventsAnnotationKey] == "true"
}

// fromStream reads events until one of them determines the verdict.
func fromStream(ctx context.Context, body io.Reader) (Verdict, string) {
	limited := &io.LimitedReader{R: body, N: maxProbeBody}
	decoder := json.NewDecoder(limited)
	for events := 0; ; events++ {
		var e watchEvent
		if err := decoder.Decode(&e); err != nil {
			return fromBrokenStream(ctx, err, limited.N <= 0, events)
		}
		switch {
		case e.endsInitialEvents():
			return Honours, "the stream had the bookmark that ends the initial events"
		case e.Type == "ERROR":
			return fromErrorEvent(e.Object)
		}
	}
}

// fromErrorEvent distinguishes errors after which client-go repeats the same watch from errors after which it lists. The
// former refer to a resource version that is too old or too new, although the probe sends none.
func fromErrorEvent(object []byte) (Verdict, string) {
	var s metav1.Status
	_ = json.Unmarshal(object, &s) // an error of unknown form is still an error
	failed := apierrors.FromObject(&s)
	if apierrors.IsResourceExpired(failed) || apierrors.IsGone(failed) || apierrors.HasStatusCause(failed, metav1.CauseTypeResourceVersionTooLarge) {
		return Ignores, fmt.Sprintf("the stream ended in error event %d, to which clients ask for the same again", s.Code)
	}
	return Refuses, fmt.Sprintf("the stream ended in error event %d", s.Code)
}

// fromBrokenStream returns the verdict on a stream that ended or failed after some events.
func fromBrokenStream(ctx context.Context, err error, full bool, events int) (Verdict, string) {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return Undetermined, "the probe was stopped"
	case full:
		return Undetermined, fmt.Sprintf("%d events and no bookmark in the first %d bytes", events, maxProbeBody)
	case ctx.Err() != nil:
		return Ignores, fmt.Sprintf("%d events and no bookmark in %s", events, probeTimeout)
	case errors.As(err, &syntax), errors.As(err, &kind):
		return Undetermined, "the stream is not JSON events"
	case errors.Is(err, io.EOF):
		return Ignores, fmt.Sprintf("the stream ended after %d events without the bookmark", events)
	}
	return Undetermined, fmt.Sprintf("the stream broke off after %d events", events)
}
