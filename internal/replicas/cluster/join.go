package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico.dev/internal/pki"
)

const (
	// joinTimeout limits one request to join, and joinRetry is the minimum time between two requests.
	joinTimeout = 20 * time.Second
	joinRetry   = time.Second
	maxRetry    = 30 * time.Second
)

// Joiner joins a cluster through one of its members.
type Joiner struct {
	server   *url.URL
	token    Token
	versions Versions
	client   *http.Client
	log      *zap.Logger
}

// NewJoiner returns a Joiner for the member at an address of the form https://HOST:PORT. It does not send requests
// yet.
func NewJoiner(server string, token Token, versions Versions, log *zap.Logger) (*Joiner, error) {
	u, err := CheckServer(server)
	if err != nil {
		return nil, err
	}
	return &Joiner{
		server: u, token: token, versions: versions, log: log,
		client: &http.Client{
			Timeout:       joinTimeout,
			Transport:     &http.Transport{TLSClientConfig: pki.AuthorityPinnedConfig(ServerName, token.CAHash), DisableKeepAlives: true},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

// CheckServer parses the address of a member.
func CheckServer(server string) (*url.URL, error) {
	u, err := url.Parse(server)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.Port() == "" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.User != nil {
		return nil, fmt.Errorf("%q is no address of a front door: want https://HOST:PORT", server)
	}
	return u, nil
}

// Keys returns the keys and settings of the cluster. It waits for a member that does not respond, or is busy, until
// ctx ends.
func (j *Joiner) Keys(ctx context.Context) (HandOver, error) {
	nonce := newNonce()
	var answer keysAnswer
	if err := j.send(ctx, keysPath, keysRequest{Nonce: nonce, Versions: j.versions}, &answer); err != nil {
		return HandOver{}, err
	}
	return open(j.token, nonce, answer.Sealed)
}

// Member adds this front door to the members of etcd, and returns the URLs of all members by name. Members join one
// at a time, so Member waits until ctx ends.
func (j *Joiner) Member(ctx context.Context, name, address string) (map[string][]string, error) {
	var answer memberAnswer
	err := j.send(ctx, membersPath, memberRequest{Name: name, Address: address, Versions: j.versions}, &answer)
	return answer.Members, err
}

// refusal is an error response that a retry would not change.
type refusal struct{ message string }

func (e *refusal) Error() string { return e.message }

// send sends a request until it succeeds or is refused.
func (j *Joiner) send(ctx context.Context, path string, request, answer any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	var last string
	for {
		wait, err := j.askOnce(ctx, path, body, answer)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if r := (*refusal)(nil); errors.As(err, &r) || errors.Is(err, pki.ErrOtherAuthority) {
			return fmt.Errorf("join the cluster at %s: %w", j.server.Host, err)
		}
		if err.Error() != last { // once per reason
			last = err.Error()
			j.log.Warn("waiting to join the cluster", zap.String("at", j.server.Host), zap.Error(err))
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C:
		}
	}
}

// askOnce sends a request once. wait is the time until the next attempt.
func (j *Joiner) askOnce(ctx context.Context, path string, body []byte, answer any) (wait time.Duration, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, j.server.JoinPath(path).String(), bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	r.Header.Set("Authorization", "Bearer "+j.token.credential())
	r.Header.Set("Content-Type", "application/json")
	resp, err := j.client.Do(r)
	if errors.Is(err, pki.ErrOtherAuthority) {
		return 0, fmt.Errorf("%w: it is no member of the token's cluster, or has no etcd of several members (--cluster-init)", pki.ErrOtherAuthority)
	}
	if err != nil {
		return joinRetry, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return joinRetry, fmt.Errorf("read the answer: %w", err)
	case len(text) > maxAnswer:
		return 0, &refusal{fmt.Sprintf("the answer has more than %d bytes", maxAnswer)}
	case resp.StatusCode == http.StatusOK:
		if err := json.Unmarshal(text, answer); err != nil {
			return 0, &refusal{"read the answer: " + err.Error()}
		}
		return 0, nil
	}
	var status metav1.Status
	if json.Unmarshal(text, &status) != nil || status.Message == "" {
		status.Message = resp.Status
	}
	if resp.StatusCode != http.StatusTooManyRequests && resp.StatusCode < http.StatusInternalServerError {
		return 0, &refusal{status.Message}
	}
	wait = joinRetry
	if status.Details != nil {
		wait = min(max(wait, time.Duration(status.Details.RetryAfterSeconds)*time.Second), maxRetry)
	}
	return wait, errors.New(status.Message)
}
