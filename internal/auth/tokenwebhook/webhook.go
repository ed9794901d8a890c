package tokenwebhook

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/singleflight"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/plugin/pkg/authenticator/token/webhook"
	"k8s.io/client-go/tools/clientcmd"

	"portico.dev/internal/auth/authn"
	"portico.dev/internal/auth/ttlcache"
	"portico.dev/internal/metrics"
	"portico.dev/internal/request"
	"portico.dev/internal/transport"
)

const (
	// reviewTimeout limits a review including retries. It is below the timeout of client requests.
	reviewTimeout = 10 * time.Second
	// rememberBad is how long the refusal of an unknown token is cached.
	rememberBad = 2 * time.Second
	// rememberTokens is the size of the cache. An entry takes about a kilobyte.
	rememberTokens = 4096
	// maxAsking is the maximum number of reviews in flight.
	maxAsking = 64
	// noRateLimit disables client-go's rate limit; the limits above apply instead.
	noRateLimit = -1
)

var errBusy = errors.New("too many tokens wait for the token review webhook")

// Config configures the webhook and the caching of its results.
type Config struct {
	// File is a kubeconfig with the server in its current context; --authentication-token-webhook-config-file.
	File string
	// Version is the version of TokenReview: v1 or v1beta1. Default v1beta1, as in kube-apiserver.
	Version string
	// CacheTTL is how long a positive result is cached. 0 disables caching. Results are never cached beyond the
	// expiry in the token.
	CacheTTL time.Duration
	// Audiences are assumed if the server returns none.
	Audiences []string
	// Dial opens connections. If nil, connections are direct.
	Dial    func(ctx context.Context, network, address string) (net.Conn, error)
	Metrics *metrics.Auth
}

// Webhook verifies tokens that the server recognizes. It is safe for concurrent use.
type Webhook struct {
	cfg    Config
	server authenticator.Token
	seen   *ttlcache.Cache[[sha256.Size]byte, cachedResult]
	asking singleflight.Group
	slots  chan struct{}
	// clients divides the slots among clients, so that unknown tokens of one client cannot use all of them.
	clients transport.Shares
	// open is canceled when Run returns, which cancels all reviews.
	open  context.Context
	close context.CancelFunc
}

// cachedResult is the result of a review.
type cachedResult struct {
	response *authenticator.Response
	ok       bool
	err      error
}

// New reads the kubeconfig. It does not send requests.
func New(cfg Config) (*Webhook, error) {
	cfg.Version = cmp.Or(cfg.Version, "v1beta1")
	if cfg.CacheTTL < 0 {
		return nil, fmt.Errorf("--authentication-token-webhook-cache-ttl: %s is negative", cfg.CacheTTL)
	}
	client, err := clientcmd.BuildConfigFromFlags("", cfg.File)
	if err != nil {
		return nil, fmt.Errorf("--authentication-token-webhook-config-file: %w", err)
	}
	if !strings.HasPrefix(client.Host, "https://") || client.Insecure {
		return nil, fmt.Errorf("--authentication-token-webhook-config-file: tokens are sent only to a server that proves who it is; "+
			"make %s an https address and remove insecure-skip-tls-verify", client.Host)
	}
	client.QPS, client.Dial = noRateLimit, cfg.Dial
	backoff := wait.Backoff{Duration: 500 * time.Millisecond, Factor: 1.5, Jitter: 0.2, Steps: 5}
	server, err := webhook.New(client, cfg.Version, authenticator.Audiences(cfg.Audiences), backoff)
	if err != nil {
		return nil, fmt.Errorf("--authentication-token-webhook-config-file %s: %w", cfg.File, err)
	}
	w := &Webhook{
		cfg: cfg, server: server, slots: make(chan struct{}, maxAsking),
		seen: ttlcache.New[[sha256.Size]byte, cachedResult](rememberTokens),
	}
	w.open, w.close = context.WithCancel(context.Background())
	return w, nil
}

// Run waits until ctx ends, cancels the reviews and waits for them.
func (w *Webhook) Run(ctx context.Context) error {
	<-ctx.Done()
	w.close()
	for range maxAsking {
		w.slots <- struct{}{}
	}
	return nil
}

// AuthenticateToken implements [authenticator.Token]. It returns false without an error if the server does not
// recognize the token, and an error if the review failed or the server reports the token as invalid.
func (w *Webhook) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	if len(token) > authn.MaxTokenBytes {
		return nil, false, authn.ErrInvalidToken
	}
	audiences, limited := authenticator.AudiencesFrom(ctx)
	sum := cacheKey(token, audiences, limited)
	if v, ok := w.seen.Get(sum); ok {
		return v.response, v.ok, v.err
	}
	// The review is detached from the first request, because other requests may wait for it and its result is cached.
	answered := w.asking.DoChan(string(sum[:]), func() (any, error) {
		return w.review(context.WithoutCancel(ctx), sum, token), nil
	})
	select {
	case <-ctx.Done():
		return nil, false, fmt.Errorf("token review webhook: %w", ctx.Err())
	case result := <-answered:
		v := result.Val.(cachedResult)
		return v.response, v.ok, v.err
	}
}

func (w *Webhook) review(ctx context.Context, sum [sha256.Size]byte, token string) cachedResult {
	if client := request.ClientNetwork(ctx); client != "" {
		if ok, _ := w.clients.Take(client, 1, maxAsking); !ok {
			w.cfg.Metrics.Reviewed("busy")
			return cachedResult{err: errBusy}
		}
		defer w.clients.Give(client, 1)
	}
	select {
	case w.slots <- struct{}{}:
		defer func() { <-w.slots }()
	default:
		w.cfg.Metrics.Reviewed("busy")
		return cachedResult{err: errBusy}
	}
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	defer context.AfterFunc(w.open, cancel)()
	response, ok, err := w.server.AuthenticateToken(ctx, token)
	v := cachedResult{response: response, ok: ok}
	now := time.Now()
	switch {
	case err != nil:
		// Not cached: upstream's client does not distinguish an unavailable server from an invalid token.
		w.cfg.Metrics.Reviewed("error")
		v.err = fmt.Errorf("token review webhook: %w", err)
	case !ok:
		w.cfg.Metrics.Reviewed("failure")
		w.seen.Add(sum, v, now.Add(rememberBad))
	case response.User.GetName() == "":
		w.cfg.Metrics.Reviewed("error")
		return cachedResult{err: errors.New("token review webhook: it answered with an empty user name")}
	default:
		w.cfg.Metrics.Reviewed("success")
		if until := notAfterExpiry(token, now.Add(w.cfg.CacheTTL)); until.After(now) {
			w.seen.Add(sum, v, until)
		}
	}
	return v
}

// cacheKey returns the hash of a token and its audiences. The same token for other audiences requires another review
// (attack row B12).
func cacheKey(token string, audiences authenticator.Audiences, limited bool) [sha256.Size]byte {
	h := sha256.New()
	fmt.Fprintf(h, "%d %t", len(token), limited)
	h.Write([]byte(token))
	for _, a := range slices.Sorted(slices.Values(audiences)) {
		fmt.Fprintf(h, " %d %s", len(a), a)
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// notAfterExpiry returns the earlier of until and the expiry in the token. The unverified expiry is only used to
// shorten caching.
func notAfterExpiry(token string, until time.Time) time.Time {
	_, body, err := authn.SplitToken(token)
	if err != nil {
		return until
	}
	var c struct {
		Expires authn.Seconds `json:"exp"`
	}
	if authn.DecodeTokenPart(body, &c, false) != nil || c.Expires == 0 || c.Expires.Time().After(until) {
		return until
	}
	return c.Expires.Time()
}
