package peers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
)

// Purpose is the purpose of keys that all replicas must share.
type Purpose string

// The purposes of shared keys.
const (
	ServiceAccountKeys   Purpose = "service account keys"
	ServiceAccountIssuer Purpose = "service account issuer"
	ServingCA            Purpose = "serving CA"
	ClientCA             Purpose = "client CA"
	FrontProxyCA         Purpose = "front-proxy CA"
	EncryptionKeys       Purpose = "encryption keys"
)

// consequences describes the effects of a difference between replicas, and the remedy.
var consequences = map[Purpose]string{
	ServiceAccountKeys: "a token that one of them issues gets 401 at the other. Give all replicas the same --service-account-signing-key-file " +
		"and --service-account-key-file, or the same service-account.key in the directory pki of --data-dir",
	ServiceAccountIssuer: "a token that one of them issues gets 401 at the other. Give all replicas the same --service-account-issuer",
	ServingCA: "a client that trusts one of them does not trust the other. Give all replicas certificates (--tls-cert-file) of one CA (--root-ca-file), " +
		"or the same ca.crt and ca.key in the directory pki of --data-dir",
	ClientCA: "a client certificate that one of them accepts gets 401 at the other. Give all replicas the same --client-ca-file, or the same client-ca.crt and " +
		"client-ca.key in the directory pki of --data-dir",
	FrontProxyCA: "extension servers refuse the requests of one of them. Give all replicas certificates (--proxy-client-cert-file) of one CA " +
		"(--requestheader-client-ca-file), or the same front-proxy-ca.crt and front-proxy-ca.key in the directory pki of --data-dir",
	EncryptionKeys: "one of them cannot read what the other writes to etcd. Give all replicas the same --encryption-provider-config; " +
		"a new key is added to all of them before it becomes the first of one",
}

const severalDiffer = "clients that one of them accepts fail at the other. Give all replicas the same keys, by flags or with copies of ca.*, client-ca.*, " +
	"front-proxy-ca.* and service-account.key in the directory pki of --data-dir"

// Keys are the fingerprints of one replica's keys for one purpose.
type Keys struct {
	// Uses are the keys that the other replicas must accept.
	Uses []string `json:"uses,omitempty"`
	// Accepts are all keys that the replica accepts.
	Accepts []string `json:"accepts,omitempty"`
}

// match reports whether two replicas can replace each other. Bundles may differ during a rotation, as long as each
// replica accepts the keys that the other one uses.
func (k Keys) match(other Keys) bool {
	return within(k.Uses, other.Accepts) && within(other.Uses, k.Accepts) &&
		(len(k.Accepts) == 0 || len(other.Accepts) == 0 || slices.ContainsFunc(k.Accepts, func(f string) bool { return slices.Contains(other.Accepts, f) }))
}

func within(some, all []string) bool {
	return !slices.ContainsFunc(some, func(f string) bool { return !slices.Contains(all, f) })
}

// SharedKeysConfig contains the dependencies of SharedKeys. All fields are required.
type SharedKeysConfig struct {
	// Section exchanges the keys of replicas.
	Section Section
	// Name is the name of this replica. Oldest returns the names of all live replicas, oldest first.
	Name   string
	Oldest func() []string
	// Keys returns the current keys of this replica. A purpose that is missing in one of two replicas is not
	// compared.
	Keys   func() map[Purpose]Keys
	Logger *zap.Logger
}

// SharedKeys compares the keys that all replicas must share. If they differ, half of the logins through a load
// balancer fail. A replica does not start if its keys differ from the serving replicas' keys. If a difference appears
// later, because a file is reloaded, the smaller group is not ready. All methods are safe for concurrent use.
type SharedKeys struct {
	config SharedKeysConfig
	ready  chan struct{}

	mu      sync.Mutex // guards the fields below
	own     sharedKeys
	problem string
	// unreadable contains the values that could not be compared.
	unreadable unreadable
}

// sharedKeys is the value that a replica publishes.
type sharedKeys struct {
	// Serves is set when the start is complete. Before that, other replicas ignore the value.
	Serves bool             `json:"serves,omitempty"`
	Keys   map[Purpose]Keys `json:"keys"`
}

const (
	// keysInterval is how often keys are checked for changes.
	keysInterval = time.Second
	// startPatience is how long a start tolerates a difference. A replica that has died, maybe this one before it
	// received other keys, counts for as long as its lease.
	startPatience = 10 * time.Second
)

// NewSharedKeys returns a SharedKeys. It does not start anything.
func NewSharedKeys(c SharedKeysConfig) *SharedKeys {
	return &SharedKeys{config: c, ready: make(chan struct{})}
}

// Ready returns a channel that is closed when this replica is known to have the keys of the other replicas.
func (s *SharedKeys) Ready() <-chan struct{} { return s.ready }

// Run publishes keys and compares them until ctx ends. It returns an error if this replica's keys differ at its
// start.
func (s *SharedKeys) Run(ctx context.Context) error {
	tick := time.NewTicker(keysInterval)
	defer tick.Stop()
	patience := time.After(startPatience)
	for {
		changed := s.config.Section.Changed()
		s.compare()
		serves, problem := s.state()
		switch {
		case serves:
		case problem == nil:
			s.serve()
			continue
		default:
			select {
			case <-patience:
				return problem
			default:
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-tick.C:
		}
	}
}

func (s *SharedKeys) state() (serves bool, problem error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.problem != "" {
		problem = errors.New(s.problem)
	}
	return s.own.Serves, problem
}

// Check returns the reason why this replica must not receive requests of clients, or nil.
func (s *SharedKeys) Check(context.Context) error {
	_, problem := s.state()
	return problem
}

func (s *SharedKeys) serve() {
	s.mu.Lock()
	s.own.Serves = true
	s.mu.Unlock()
	close(s.ready)
}

// compare publishes the keys of this replica and compares them with the other replicas' keys.
func (s *SharedKeys) compare() {
	keys := s.config.Keys()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.own.Keys = keys
	text, err := json.Marshal(s.own)
	if err != nil {
		s.config.Logger.Error("failed to encode the shared keys", zap.Error(err))
		return
	}
	s.config.Section.Publish(text)
	problem := s.difference()
	switch {
	case problem == s.problem:
	case problem == "":
		s.config.Logger.Info("keys of this replica match the other replicas again")
	default:
		s.config.Logger.Warn("replica is not ready: its keys differ from the other replicas", zap.String("difference", problem))
	}
	s.problem = problem
}

// difference describes how this replica differs from replicas that agree with more replicas than this one does, or
// with as many if they are older. It must be called with mu held.
func (s *SharedKeys) difference() string {
	serving := map[string]sharedKeys{s.config.Name: s.own}
	received, _ := s.config.Section.Received()
	for name, text := range received {
		var k sharedKeys
		if len(text) == 0 {
			continue // a release without this check, or a replica that has just started
		}
		if err := json.Unmarshal(text, &k); err != nil {
			if s.unreadable.add(name, text) {
				s.config.Logger.Warn("ignoring the unreadable keys of a replica, which may run another release", zap.String("replica", name), zap.Error(err))
			}
			continue
		}
		if k.Serves {
			serving[name] = k
		}
	}
	rank := map[string]int{} // a larger rank is older; 0 for replicas without a key in etcd
	order := s.config.Oldest()
	for i, name := range order {
		rank[name] = len(order) - i
	}
	agree := func(name string) (n int) {
		for _, other := range serving {
			if len(differing(serving[name], other)) == 0 {
				n++
			}
		}
		return n
	}
	mine := agree(s.config.Name)
	var from []string
	var purposes []Purpose
	for _, name := range slices.Sorted(maps.Keys(serving)) {
		found := differing(s.own, serving[name])
		theirs := agree(name)
		if len(found) == 0 || theirs < mine || theirs == mine && rank[name] < rank[s.config.Name] {
			continue
		}
		from, purposes = append(from, name), append(purposes, found...)
	}
	slices.Sort(purposes)
	return describe(slices.Compact(purposes), from)
}

// describe returns a message about the difference, with the remedy.
func describe(purposes []Purpose, from []string) string {
	if len(purposes) == 0 {
		return ""
	}
	consequence := severalDiffer
	if len(purposes) == 1 {
		consequence = consequences[purposes[0]]
	}
	var names []string
	for _, p := range purposes {
		names = append(names, string(p))
	}
	return fmt.Sprintf("the %s of this replica and of %s differ: %s", strings.Join(names, ", "), strings.Join(from, ", "), consequence)
}

// differing returns the purposes for which two replicas do not have matching keys.
func differing(a, b sharedKeys) (purposes []Purpose) {
	for purpose, keys := range a.Keys {
		if other, ok := b.Keys[purpose]; ok && !keys.match(other) {
			purposes = append(purposes, purpose)
		}
	}
	return purposes
}
