package registration

import (
	"cmp"
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
	longestBackoff  = 4 * time.Second // without the jitter
	checkInterval   = time.Minute
	maxResponseBody = 1 << 20
	// maxRefusals is how often a refusal at the start is asked again: rights that were granted a moment ago reach a front
	// door with its next look at them.
	maxRefusals = 4
)

// RegistrarConfig makes a Registrar.
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
	config  RegistrarConfig
	client  *apiclient.Client
	ready   chan struct{}
	trigger chan struct{} // has a token while the registration is to be written at once

	written []Manifest // APIServices that are ours to delete when they are not served any more
}

// NewRegistrar makes a Registrar. It does no I/O beyond the files that Client names.
func NewRegistrar(c RegistrarConfig) (*Registrar, error) {
	c.Logger = cmp.Or(c.Logger, zap.NewNop())
	client, err := apiclient.New(c.Client)
	if err != nil {
		return nil, err
	}
	return &Registrar{config: c, client: client, ready: make(chan struct{}), trigger: make(chan struct{}, 1)}, nil
}

// Ready is closed once everything has been written.
func (k *Registrar) Ready() <-chan struct{} { return k.ready }

// Trigger has the registration written at once, because what is served has changed.
func (k *Registrar) Trigger() {
	select {
	case k.trigger <- struct{}{}:
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
		wait := jittered(checkInterval)
		var refused *RefusedError
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil && !registered:
			registered = true
			close(k.ready)
			k.config.Logger.Info("registered", zap.Stringers("objects", k.config.Registration().Objects()))
		case errors.As(err, &refused) && !registered && refusals == maxRefusals:
			return refused
		case err != nil:
			k.config.Logger.Warn("register", zap.Error(err), zap.Duration("next attempt", backoff))
			wait, backoff = jittered(backoff), min(2*backoff, longestBackoff)
		}
		if err == nil {
			backoff = firstBackoff
		}
		if !k.wait(ctx, wait) {
			return nil
		}
	}
}

// wait waits until the registration is to be written again. It reports false when ctx ends first.
func (k *Registrar) wait(ctx context.Context, wait time.Duration) bool {
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
	case <-k.trigger:
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
	text, err := k.send(ctx, http.MethodGet, o, nil, nil)
	if err == nil {
		o = behindGateway(text, o)
	}
	body, e := json.Marshal(o)
	if e != nil {
		return fmt.Errorf("encode %s: %w", o, e)
	}
	var no *answerError
	missing := errors.As(err, &no) && no.code == http.StatusNotFound
	switch {
	case err == nil && upToDate(text, body):
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

// upToDate reports whether an object says all that is to be applied, whatever else it says.
func upToDate(object, applied []byte) bool {
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

// retire deletes the APIServices that this registrar wrote for group-versions that are not served any more. One that is
// left behind would make its group unavailable, and with it the discovery that deleting any namespace waits for.
func (k *Registrar) retire(ctx context.Context, r Registration) error {
	serving := r.apiServices()
	gone := slices.DeleteFunc(k.written, func(o Manifest) bool {
		return slices.ContainsFunc(serving, func(s Manifest) bool { return s.String() == o.String() })
	})
	k.written = slices.Concat(serving, gone)
	for _, o := range gone {
		err := k.deleteOurs(ctx, o, r)
		var no *answerError
		if errors.As(err, &no) && no.final() {
			k.config.Logger.Warn("the registration of what is not served any more stays; delete it by hand",
				zap.String("next step", "kubectl delete apiservice "+o.meta("name")), zap.Error(err))
			err = nil
		}
		if err != nil {
			return err
		}
		k.written = slices.DeleteFunc(k.written, func(w Manifest) bool { return w.String() == o.String() })
	}
	return nil
}

// deleteOurs deletes an APIService unless somebody else serves it by now.
func (k *Registrar) deleteOurs(ctx context.Context, o Manifest, r Registration) error {
	text, err := k.send(ctx, http.MethodGet, o, nil, nil)
	var no *answerError
	if errors.As(err, &no) && no.code == http.StatusNotFound {
		return nil
	}
	if err != nil {
		return err
	}
	var found struct {
		Metadata struct{ UID, ResourceVersion string }
		Spec     struct {
			Service struct{ Namespace, Name string }
		}
	}
	if err := json.Unmarshal(text, &found); err != nil {
		return fmt.Errorf("read %s: %w", o, err)
	}
	if found.Spec.Service.Namespace != r.Namespace || found.Spec.Service.Name != r.Service {
		return nil
	}
	// With the version that was looked at: who takes it over in this moment keeps it.
	body, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": map[string]any{
		"uid": found.Metadata.UID, "resourceVersion": found.Metadata.ResourceVersion}})
	if err != nil {
		return fmt.Errorf("encode %s: %w", o, err)
	}
	if _, err := k.send(ctx, http.MethodDelete, o, nil, body); err != nil {
		return err
	}
	k.config.Logger.Info("deleted the registration of what is not served any more", zap.Stringer("object", o))
	return nil
}

// answerError is an answer of a front door that is no success.
type answerError struct {
	verb    string
	object  Manifest
	code    int
	message string
	missing bool // the object that was to be written was not there
}

func (e *answerError) Error() string {
	return fmt.Sprintf("%s %s: the front door answered %d: %s", e.verb, e.object, e.code, e.message)
}

// retriable are the answers below 500 that the next attempt may change. A redirect is not among them: what was asked
// with our credentials is not asked elsewhere.
var retriable = []int{http.StatusRequestTimeout, http.StatusConflict, http.StatusTooEarly, http.StatusTooManyRequests}

// final is whether asking again will not change the answer.
func (e *answerError) final() bool {
	return e.code < 500 && !slices.Contains(retriable, e.code)
}

// RefusedError is a registration that a front door does not take from this server.
type RefusedError struct {
	// Err is every refusal, or what is wrong with the registration itself.
	Err error
	// Permissions are the rights that the server would need, one line each: "patch services/metrics in kube-system".
	Permissions []string
	// Objects are what an administrator applies instead, RBAC included: the output of "extserver manifests".
	Objects []Manifest

	answers []error
	missing bool
}

// Error is one line, with the next step.
func (e *RefusedError) Error() string {
	what := e.Err.Error()
	if len(e.answers) > 0 {
		what = e.answers[0].Error()
	}
	if more := len(e.answers) - 1; more > 0 {
		what += fmt.Sprintf(" (and %d more)", more)
	}
	for i, p := range e.Permissions {
		if i == 0 {
			what += "; this server needs the right to "
		} else {
			what += ", to "
		}
		what += p
	}
	return what + "; as an administrator: extserver manifests FLAGS | kubectl apply --server-side -f -, with the flags of this server" + e.hint()
}

// hint is what else there is to do.
func (e *RefusedError) hint() string {
	if e.missing {
		return " (with --create-registration among them it may create what is missing itself), or start it with --register=false"
	}
	return ", or start it with --register=false"
}

func (e *RefusedError) Unwrap() error { return e.Err }

func (e *RefusedError) add(no *answerError) {
	e.answers = append(e.answers, no)
	e.Err = errors.Join(e.answers...)
	if no.code != http.StatusForbidden {
		return
	}
	verb := "patch "
	if no.missing {
		verb, e.missing = "create ", true
	}
	p := verb + plurals[no.object.text("kind")] + "/" + no.object.meta("name")
	if ns := no.object.meta("namespace"); ns != "" {
		p += " in " + ns
	}
	if no.missing {
		p += ", which is missing"
	}
	if !slices.Contains(e.Permissions, p) {
		e.Permissions = append(e.Permissions, p)
	}
}
