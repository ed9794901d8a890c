package register

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"time"

	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

const (
	// fieldManager owns the fields that this package writes.
	fieldManager = "extserver"

	attemptTimeout  = 15 * time.Second
	firstBackoff    = 500 * time.Millisecond
	longestBackoff  = 30 * time.Second
	keepInterval    = 5 * time.Minute
	maxResponseBody = 1 << 20
)

// Config makes a Keeper.
type Config struct {
	// Client is how the front door is reached, and as whom.
	Client *rest.Config
	// Registration is asked for at each write: the port is only known once the server listens, and a caBundle changes.
	Registration func() Registration
	// Logger is told of successes and failures. Default: silence.
	Logger *zap.Logger
}

// Keeper writes a registration and keeps it as it should be.
type Keeper struct {
	config Config
	http   *http.Client
	base   *url.URL
	ready  chan struct{}
}

// New makes a keeper. It does no I/O beyond the files that Client names.
func New(c Config) (*Keeper, error) {
	if c.Logger == nil {
		c.Logger = zap.NewNop()
	}
	client, err := rest.HTTPClientFor(c.Client)
	if err != nil {
		return nil, fmt.Errorf("client of the front door: %w", err)
	}
	base, _, err := rest.DefaultServerUrlFor(c.Client)
	if err != nil {
		return nil, fmt.Errorf("address of the front door: %w", err)
	}
	own := *client // the library shares clients between those who ask with the same configuration
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Keeper{config: c, http: &own, base: base, ready: make(chan struct{})}, nil
}

// Ready is closed once everything has been written.
func (k *Keeper) Ready() <-chan struct{} { return k.ready }

// Run registers the server, then keeps the registration until ctx ends. A front door that is away is waited for; one
// that refuses is an error that says what to do.
func (k *Keeper) Run(ctx context.Context) error {
	defer k.http.CloseIdleConnections()
	backoff := firstBackoff
	registered := false
	for {
		err := k.apply(ctx)
		wait := jittered(keepInterval)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil && !registered:
			registered = true
			close(k.ready)
			k.config.Logger.Info("registered", zap.Stringers("objects", k.config.Registration().Objects()))
		case err != nil && !registered && final(err):
			return fmt.Errorf("%w; or apply the output of 'extserver manifests' as an administrator and start with --register=false", err)
		case err != nil:
			k.config.Logger.Warn("register", zap.Error(err), zap.Duration("next attempt", backoff))
			wait, backoff = jittered(backoff), min(2*backoff, longestBackoff)
		}
		if err == nil {
			backoff = firstBackoff
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

func jittered(d time.Duration) time.Duration { return d + rand.N(d/5+1) }

func (k *Keeper) apply(ctx context.Context) error {
	r := k.config.Registration()
	if err := r.Validate(); err != nil {
		return &refusal{err: err}
	}
	for _, o := range r.Objects() {
		if err := k.applyOne(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

// refusal is an answer that asking again will not change.
type refusal struct{ err error }

func (e *refusal) Error() string { return e.err.Error() }
func (e *refusal) Unwrap() error { return e.err }

func final(err error) bool {
	var r *refusal
	return errors.As(err, &r)
}

func (k *Keeper) applyOne(ctx context.Context, o Manifest) error {
	body, err := json.Marshal(o)
	if err != nil {
		return fmt.Errorf("encode %s: %w", o, err)
	}
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPatch, k.url(o), bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("register %s: %w", o, err)
	}
	r.Header.Set("Content-Type", "application/apply-patch+yaml")
	r.Header.Set("Accept", "application/json")
	answer, err := k.http.Do(r)
	if err != nil {
		return fmt.Errorf("register %s: %w", o, err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxResponseBody))
	if err != nil {
		return fmt.Errorf("register %s: %w", o, err)
	}
	if answer.StatusCode < 300 {
		return nil
	}
	err = fmt.Errorf("register %s: the front door answered %d: %s", o, answer.StatusCode, message(text))
	if answer.StatusCode >= 500 || slices.Contains(passing, answer.StatusCode) {
		return err
	}
	return &refusal{err: err}
}

// passing are the answers below 500 that the next attempt may change. A redirect is not among them: what was asked
// with our credentials is not asked elsewhere.
var passing = []int{http.StatusRequestTimeout, http.StatusConflict, http.StatusTooEarly, http.StatusTooManyRequests}

func message(body []byte) string {
	var status metav1.Status
	if err := json.Unmarshal(body, &status); err == nil && status.Message != "" {
		return status.Message
	}
	return fmt.Sprintf("%q", body[:min(len(body), 200)])
}

// plurals are the resources of the kinds that are written here.
var plurals = map[string]string{"Service": "services", "EndpointSlice": "endpointslices", "APIService": "apiservices"}

func (k *Keeper) url(o Manifest) string {
	prefix := "apis"
	if o.text("apiVersion") == "v1" {
		prefix = "api"
	}
	path := []string{prefix, o.text("apiVersion")}
	if ns := o.meta("namespace"); ns != "" {
		path = append(path, "namespaces", ns)
	}
	u := k.base.JoinPath(append(path, plurals[o.text("kind")], o.meta("name"))...)
	u.RawQuery = url.Values{"fieldManager": {fieldManager}, "force": {"true"}}.Encode()
	return u.String()
}
