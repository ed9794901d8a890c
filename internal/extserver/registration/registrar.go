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

	"portico.dev/internal/clients/apiclient"
)

const (
	// fieldManager owns the fields that this package writes.
	fieldManager = "extserver"

	attemptTimeout  = 15 * time.Second
	firstBackoff    = 500 * time.Millisecond
	longestBackoff  = 4 * time.Second // without jitter
	checkInterval   = time.Minute
	maxResponseBody = 1 << 20
	// maxRefusals is the number of attempts at the start if the registration is refused, because it takes a moment until a
	// front door sees new permissions.
	maxRefusals = 4
)

// RegistrarConfig configures a Registrar.
type RegistrarConfig struct {
	// Client configures the connection and the identity for the front door.
	Client *rest.Config
	// Registration is called before each write, because the port is unknown before the server listens, and the caBundle and
	// the served resources may change.
	Registration func() Registration
	// Certificate receives the published caBundle and signals changes. Optional.
	Certificate interface {
		// Changed has a token when CABundle differs from the published one.
		Changed() <-chan struct{}
		// Published is called with a bundle after all objects contain it.
		Published(bundle []byte)
	}
	// Logger logs successes and failures. Default: no logging.
	Logger *zap.Logger
}

// Registrar writes a registration and restores it within a minute if another client has changed or deleted its objects, as
// far as the server's permissions allow. It reads objects first and does not write the ones that are up to date, so that an
// identity with permission to update the objects of an administrator is sufficient.
type Registrar struct {
	config  RegistrarConfig
	client  *apiclient.Client
	ready   chan struct{}
	trigger chan struct{} // has a token if the registration must be written at once

	written []Manifest // APIServices to delete when they are no longer served
}

// NewRegistrar returns a Registrar. It does no I/O except for reading the files that Client names.
func NewRegistrar(c RegistrarConfig) (*Registrar, error) {
	c.Logger = cmp.Or(c.Logger, zap.NewNop())
	client, err := apiclient.New(c.Client)
	if err != nil {
		return nil, err
	}
	return &Registrar{config: c, client: client, ready: make(chan struct{}), trigger: make(chan struct{}, 1)}, nil
}

// Ready returns a channel that is closed when all objects have been written.
func (k *Registrar) Ready() <-chan struct{} { return k.ready }

// Trigger requests an immediate write, because the served resources have changed.
func (k *Registrar) Trigger() {
	select {
	case k.trigger <- struct{}{}:
	default: // the pending write covers this change
	}
}

// Run registers the server and maintains the registration until ctx ends. It waits for a front door that is not reachable. If
// the front door keeps refusing the registration at the start, Run returns a RefusedError, which contains the next step.
// After the first registration, errors are only logged.
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
			k.config.Logger.Warn("registration failed; retrying", zap.Error(err), zap.Duration("next attempt", backoff))
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

// wait waits until the next write is due. It returns false if ctx ends first.
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

// apply writes all objects. It continues after a refusal, so that all missing permissions are reported at once.
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

// applyOne writes an object unless it is up to date.
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
	// An identity without permission to read the object may have permission to write it.
	_, err = k.send(ctx, http.MethodPatch, o, url.Values{"fieldManager": {fieldManager}, "force": {"true"}}, body)
	if errors.As(err, &no) {
		no.missing = missing
	}
	return err
}

// upToDate reports whether object contains all fields of applied. Additional fields are ignored.
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

// send sends one request for o and returns the response body. For an unsuccessful response, the error is an *answerError.
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

// plurals maps the kinds of this package to their resources.
var plurals = map[string]string{"Service": "services", "EndpointSlice": "endpointslices", "APIService": "apiservices"}

// path returns the API path of the object.
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

// retire deletes the APIServices that this registrar has written for group-versions that are no longer served. A leftover
// APIService would make its group unavailable. Discovery would then fail, which blocks the deletion of all namespaces.
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
			k.config.Logger.Warn("cannot delete an APIService that is no longer served; delete it manually",
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

// deleteOurs deletes an APIService unless it refers to another Service.
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
	// Include the resourceVersion, so that an APIService that is changed concurrently is not deleted.
	body, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": map[string]any{
		"uid": found.Metadata.UID, "resourceVersion": found.Metadata.ResourceVersion}})
	if err != nil {
		return fmt.Errorf("encode %s: %w", o, err)
	}
	if _, err := k.send(ctx, http.MethodDelete, o, nil, body); err != nil {
		return err
	}
	k.config.Logger.Info("deleted an APIService that is no longer served", zap.Stringer("object", o))
	return nil
}

// answerError is an unsuccessful response of a front door.
type answerError struct {
	verb    string
	object  Manifest
	code    int
	message string
	missing bool // the object did not exist
}

func (e *answerError) Error() string {
	return fmt.Sprintf("%s %s: the front door answered %d: %s", e.verb, e.object, e.code, e.message)
}

// retriable are the status codes below 500 that may change with the next attempt. They do not include redirects, because
// credentials must not be sent to another server.
var retriable = []int{http.StatusRequestTimeout, http.StatusConflict, http.StatusTooEarly, http.StatusTooManyRequests}

// final reports whether a retry cannot succeed.
func (e *answerError) final() bool {
	return e.code < 500 && !slices.Contains(retriable, e.code)
}

// RefusedError reports that a front door refuses the registration.
type RefusedError struct {
	// Err contains all refusals, or the error of Validate.
	Err error
	// Permissions lists the permissions that the server lacks, such as "patch services/metrics in kube-system".
	Permissions []string
	// Objects are the objects that an administrator can apply instead, including RBAC. They equal the output of "extserver
	// manifests".
	Objects []Manifest

	answers []error
	missing bool
}

// Error returns one line, with the next step.
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

// hint returns alternatives to the next step.
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
