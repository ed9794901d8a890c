package registration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
	"k8s.io/client-go/rest"

	"portico.dev/internal/apiclient"
)

const (
	// fieldManager owns the fields that this package writes.
	fieldManager = "extserver"

	attemptTimeout  = 15 * time.Second
	firstBackoff    = 500 * time.Millisecond
	longestBackoff  = 30 * time.Second
	keepInterval    = time.Minute
	maxResponseBody = 1 << 20
	// patience is how often a refusal at the start is asked again: rights that were granted a moment ago reach a front
	// door with its next look at them.
	patience = 4
)

// RegistrarConfig makes a Keeper.
type RegistrarConfig struct {
	// Client is how the front door is reached, and as whom.
	Client *rest.Config
	// Registration is asked for at each write: the port is only known once the server listens, a caBundle changes, and so
	// may what is served.
	Registration func() Registration
	// Certificate is told which caBundle front doors have been given, and says when there is another. Optional.
	Certificate interface {
		// Changed has a token when CABundle is another than was published.
		Changed() <-chan struct{}
		// Published is told of a bundle once every registration has it.
		Published(bundle []byte)
	}
	// Logger is told of successes and failures. Default: silence.
	Logger *zap.Logger
}

// Registrar writes a registration and keeps it as it should be: what somebody else has changed or deleted is written again
// within a minute, as far as the server's rights go. What is as it should be is read and not written, so that an identity
// that may only update what an administrator has applied is enough.
type Registrar struct {
	config RegistrarConfig
	client *apiclient.Client
	ready  chan struct{}
	nudge  chan struct{} // has a token while the registration is to be written at once

	written []Manifest // APIServices that are ours to delete when they are not served any more
}

// NewRegistrar makes a keeper. It does no I/O beyond the files that Client names.
func NewRegistrar(c RegistrarConfig) (*Registrar, error) {
	if c.Logger == nil {
		c.Logger = zap.NewNop()
	}
	client, err := apiclient.New(c.Client)
	if err != nil {
		return nil, err
	}
	return &Registrar{config: c, client: client, ready: make(chan struct{}), nudge: make(chan struct{}, 1)}, nil
}

// Ready is closed once everything has been written.
func (k *Registrar) Ready() <-chan struct{} { return k.ready }

// Nudge has the registration written at once, because what is served has changed.
func (k *Registrar) Nudge() {
	select {
	case k.nudge <- struct{}{}:
	default: // one write is waiting already and will see this change too
	}
}

// Run registers the server, then keeps the registration until ctx ends. A front door that is away is waited for; one
// that goes on refusing at the start is a RefusedError, which says what to do. Once registered, the server serves on whatever
// becomes of the registration.
func (k *Registrar) Run(ctx context.Context) error {
	defer k.client.Close()
	backoff := firstBackoff
	registered := false
	for refusals := 1; ; refusals++ {
		err := k.apply(ctx)
		wait := jittered(keepInterval)
		var refused *RefusedError
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil && !registered:
			registered = true
			close(k.ready)
			k.config.Logger.Info("registered", zap.Stringers("objects", k.config.Registration().Objects()))
		case errors.As(err, &refused) && !registered && refusals == patience:
			return refused
		case err != nil:
			k.config.Logger.Warn("register", zap.Error(err), zap.Duration("next attempt", backoff))
			wait, backoff = jittered(backoff), min(2*backoff, longestBackoff)
		}
		if err == nil {
			backoff = firstBackoff
		}
		if !k.rest(ctx, wait) {
			return nil
		}
	}
}

// rest waits until the registration is to be written again. It reports false when ctx ends first.
func (k *Registrar) rest(ctx context.Context, wait time.Duration) bool {
	var changed <-chan struct{}
	if k.config.Certificate != nil {
		changed = k.config.Certificate.Changed()
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
	case <-changed:
	case <-k.nudge:
	}
	return true
}

func jittered(d time.Duration) time.Duration { return d + rand.N(d/5+1) }

// apply writes all objects. One that is refused does not keep the others from being written, so that everything that is
// missing is told at once.
func (k *Registrar) apply(ctx context.Context) error {
	r := k.config.Registration()
	if err := r.Validate(); err != nil {
		return &RefusedError{Err: err}
	}
	refused := &RefusedError{Objects: r.All()}
	for _, o := range r.Objects() {
		err := k.applyOne(ctx, o)
		var no *answerError
		switch {
		case errors.As(err, &no) && no.final():
			refused.add(no)
		case err != nil:
			return err
		}
	}
	if refused.Err != nil {
		return refused
	}
	if k.config.Certificate != nil {
		k.config.Certificate.Published(r.CABundle)
	}
	return k.retire(ctx, r)
}

// applyOne writes an object unless it is as it should be.
func (k *Registrar) applyOne(ctx context.Context, o Manifest) error {
	body, err := json.Marshal(o)
	if err != nil {
		return fmt.Errorf("encode %s: %w", o, err)
	}
	text, err := k.send(ctx, http.MethodGet, o, nil, nil)
	var no *answerError
	missing := errors.As(err, &no) && no.code == http.StatusNotFound
	switch {
	case err == nil && holds(text, body):
		return nil
	case err != nil && (no == nil || !no.final()):
		return err
	}
	// One that may not be read may perhaps be written.
	_, err = k.send(ctx, http.MethodPatch, o, url.Values{"fieldManager": {fieldManager}, "force": {"true"}}, body)
	if errors.As(err, &no) {
		no.missing = missing
	}
	return err
}

// holds reports whether an object says all that is to be applied, whatever else it says.
func holds(object, applied []byte) bool {
	var have, want any
	return json.Unmarshal(object, &have) == nil && json.Unmarshal(applied, &want) == nil && includes(have, want)
}

func includes(have, want any) bool {
	switch want := want.(type) {
	case map[string]any:
		have, ok := have.(map[string]any)
		for key, value := range want {
			ok = ok && includes(have[key], value)
		}
		return ok
	case []any:
		have, ok := have.([]any)
		return ok && slices.EqualFunc(have, want, includes)
	}
	return have == want
}

// send makes one request about o and returns what is answered; any answer that is no success is an *answerError.
func (k *Registrar) send(ctx context.Context, method string, o Manifest, query url.Values, body []byte) ([]byte, error) {
	verb := map[string]string{http.MethodPatch: "register", http.MethodGet: "read", http.MethodDelete: "delete"}[method]
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	r := apiclient.Request{Method: method, Path: o.path(), Query: query, Body: body, MaxBytes: maxResponseBody}
	if method == http.MethodPatch {
		r.ContentType = "application/apply-patch+yaml"
	}
	text, err := k.client.Do(ctx, r)
	var refused *apiclient.Error
	switch {
	case errors.As(err, &refused):
		return nil, &answerError{verb: verb, object: o, code: refused.Code, message: refused.Message}
	case err != nil:
		return nil, fmt.Errorf("%s %s: %w", verb, o, err)
	}
	return text, nil
}

// plurals are the resources of the kinds that are written here.
var plurals = map[string]string{"Service": "services", "EndpointSlice": "endpointslices", "APIService": "apiservices"}

// path is where the object is in the API.
func (o Manifest) path() string {
	prefix := "/apis"
	if o.text("apiVersion") == "v1" {
		prefix = "/api"
	}
	path := []string{prefix, o.text("apiVersion")}
	if ns := o.meta("namespace"); ns != "" {
		path = append(path, "namespaces", ns)
	}
	return strings.Join(append(path, plurals[o.text("kind")], o.meta("name")), "/")
}
