package debts

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

const (
	prefix = "debts/"
	// maxDebts bounds the number of open debts. Above it, namespaces wait for their backends.
	maxDebts = 10_000
	// recordTimeout bounds the time until a written debt is in etcd and back at this replica.
	recordTimeout = 10 * time.Second
	// namedNamespaces is the maximum number of namespaces named in a condition.
	namedNamespaces = 3
)

// ErrFull is returned by Record if too many debts are open.
var ErrFull = fmt.Errorf("%d cleanup debts are open already: see them with `aggregator debts`", maxDebts)

// Storage persists debts. Mirror calls replaced with all entries under a prefix, and again after each change, until ctx ends.
type Storage interface {
	Put(ctx context.Context, key string, value []byte) error
	Delete(ctx context.Context, key string) error
	Mirror(ctx context.Context, prefix string, replaced func(map[string][]byte))
}

// Store contains the open debts of all replicas.
type Store struct {
	storage Storage
	log     *zap.Logger
	ready   chan struct{}

	mu    sync.Mutex // guards the fields below
	debts map[string]Debt
	// failures maps an APIService to the error of the last cleanup of its backend.
	failures map[string]string
	// changed is closed and replaced when debts or failures change.
	changed chan struct{}
}

// NewStore returns a Store that is empty until Run.
func NewStore(fakeEtcd Storage, log *zap.Logger) *Store {
	return &Store{
		storage: fakeEtcd, log: log.Named("debts"), ready: make(chan struct{}), changed: make(chan struct{}),
		failures: map[string]string{},
	}
}

// Ready is closed when the Store contains every open debt. Before that, the absence of debts at a backend is unknown.
func (s *Store) Ready() <-chan struct{} { return s.ready }

// Run mirrors the storage until ctx ends.
func (s *Store) Run(ctx context.Context) error {
	s.storage.Mirror(ctx, prefix, func(stored map[string][]byte) { s.replace(s.decode(stored)) })
	return nil
}

func (s *Store) decode(stored map[string][]byte) map[string]Debt {
	debts := make(map[string]Debt, len(stored))
	for key, value := range stored {
		d := decodeDebt(strings.TrimPrefix(key, prefix), value)
		if _, known := s.Lookup(d.ID); !known && d.unreadable != "" {
			s.log.Error("cannot decode a cleanup debt", zap.String("id", d.ID), zap.String("apiservice", d.APIService), zap.String("why", d.unreadable))
		}
		debts[d.ID] = d
	}
	return debts
}

// decodeDebt returns an unreadable record as a debt that cannot be cleaned up. Ignoring the record would expose the objects of
// one namespace in another.
func decodeDebt(id string, value []byte) Debt {
	var d Debt
	err := json.Unmarshal(value, &d) // decodes the readable fields even if it returns an error
	switch {
	case err != nil:
		d.unreadable = "it is damaged: " + err.Error()
	case d.ID != id:
		d.unreadable = fmt.Sprintf("it says that it is %q", d.ID)
	case d.Version > debtVersion:
		d.unreadable = "it was written by a newer release"
	}
	d.ID = id
	return d
}

func (s *Store) replace(debts map[string]Debt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := s.debts == nil
	if first {
		defer close(s.ready)
	}
	if !first && maps.Equal(s.debts, debts) {
		return
	}
	s.debts = debts
	for name := range s.failures {
		if !s.hasDebts(name) {
			delete(s.failures, name)
		}
	}
	s.notify()
}

// hasDebts is called with mu held.
func (s *Store) hasDebts(apiService string) bool {
	for _, d := range s.debts {
		if d.concerns(apiService) {
			return true
		}
	}
	return false
}

// notify is called with mu held.
func (s *Store) notify() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// Changed returns a channel that is closed at the next change. Callers must obtain it before they read the state.
func (s *Store) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

// Record writes a debt. It returns nil when the debt is in etcd and in this replica's Store.
func (s *Store) Record(ctx context.Context, d Debt) error {
	s.mu.Lock()
	full := len(s.debts) >= maxDebts
	s.mu.Unlock()
	if full {
		return ErrFull
	}
	value, err := json.Marshal(d)
	if err != nil {
		return fmt.Errorf("write cleanup debt: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	if err := s.storage.Put(ctx, prefix+d.ID, value); err != nil {
		return fmt.Errorf("write cleanup debt: %w", err)
	}
	for {
		changed := s.Changed()
		if _, ok := s.Lookup(d.ID); ok {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return errors.New("write cleanup debt: it is in etcd, but this replica has not received it")
		}
	}
}

// Lookup returns an open debt.
func (s *Store) Lookup(id string) (Debt, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d, ok := s.debts[id]
	return d, ok
}

// Forget removes a debt. It returns nil if the debt does not exist.
func (s *Store) Forget(ctx context.Context, id string) error {
	if err := s.storage.Delete(ctx, prefix+id); err != nil {
		return fmt.Errorf("drop cleanup debt: %w", err)
	}
	return nil
}

// All returns the open debts, oldest first.
func (s *Store) All() []Debt { return s.filter(func(Debt) bool { return true }) }

// OpenDebts returns the open debts at the backend of an APIService, oldest first.
func (s *Store) OpenDebts(apiService string) []Debt {
	return s.filter(func(d Debt) bool { return d.concerns(apiService) })
}

// concerns reports whether a debt may be at the backend of an APIService. An unreadable debt without an APIService may be at
// any backend.
func (d Debt) concerns(apiService string) bool {
	return d.APIService == apiService || d.unreadable != "" && d.APIService == ""
}

func (s *Store) filter(which func(Debt) bool) []Debt {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := []Debt{}
	for _, d := range s.debts {
		if which(d) {
			out = append(out, d)
		}
	}
	slices.SortFunc(out, func(a, b Debt) int {
		if c := a.Since.Compare(b.Since); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	return out
}

// Message returns the condition message about the debts of an APIService, or "" if it has none.
func (s *Store) Message(apiService string) string {
	open := s.OpenDebts(apiService)
	if len(open) == 0 {
		return ""
	}
	if i := slices.IndexFunc(open, func(d Debt) bool { return d.unreadable != "" }); i >= 0 {
		return fmt.Sprintf("what a namespace left at the backend when it was finalized without it has to be deleted first, and the cleanup debt %s cannot be read: %s; "+
			"run the release that wrote it, or give it up with `aggregator debts forget %s`", open[i].ID, open[i].unreadable, open[i].ID)
	}
	var names []string
	for _, d := range open[:min(namedNamespaces, len(open))] {
		names = append(names, d.Namespace)
	}
	if len(open) > namedNamespaces {
		names = append(names, "...")
	}
	text := fmt.Sprintf("paying: the backend is back, and what %d namespaces left there when they were finalized without it (%s) is deleted first",
		len(open), strings.Join(names, ", "))
	if failure := s.failureOf(apiService); failure != "" {
		text += "; the last attempt failed: " + failure + "; if it cannot succeed, `aggregator debts forget ID` gives up a debt"
	}
	return text
}

func (s *Store) failureOf(apiService string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failures[apiService]
}

// setFailure records the error of a cleanup, or its success if failure is empty.
func (s *Store) setFailure(apiService, failure string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failures[apiService] == failure {
		return
	}
	if s.failures[apiService] = failure; failure == "" {
		delete(s.failures, apiService)
	}
	s.notify()
}

// A Debt records that a namespace was finalized without one of its group-versions.
type Debt struct {
	// Version is the version of this format, 0 in records from before versioning. All versions have id and apiService.
	Version int `json:"version,omitempty"`
	// ID is derived from the UID of the namespace and the group-version, so that replicas that record the same debt
	// concurrently write the same key.
	ID           string    `json:"id"`
	Namespace    string    `json:"namespace"`
	NamespaceUID types.UID `json:"namespaceUID"`
	GroupVersion string    `json:"groupVersion"`
	// APIService is the name of an APIService, or "<APIService>/<backend>" if its APIRoute has several backends.
	APIService string `json:"apiService"`
	// Reason is why the namespace was finalized without waiting.
	Reason string `json:"reason"`
	// Since is when the debt was recorded, in whole seconds, like creation timestamps.
	Since time.Time `json:"since"`

	// unreadable is why this replica cannot read the record and clean it up; empty if it can.
	unreadable string
}

// debtVersion is the version that this release writes, and the newest that it can read.
const debtVersion = 1

// FinalizeDelay is how long a namespace exists after its debts were recorded. Creation timestamps are truncated to the second.
// Without a whole second in between, an object of a new namespace of the same name could appear as old as the debt.
const FinalizeDelay = 2 * time.Second

// NewDebt returns a debt recorded now.
func NewDebt(namespace string, uid types.UID, gv schema.GroupVersion, apiService, reason string) Debt {
	return Debt{
		Version: debtVersion, ID: IDOf(uid, gv, apiService), Namespace: namespace, NamespaceUID: uid, GroupVersion: gv.String(), APIService: apiService,
		Reason: reason, Since: time.Now().UTC().Truncate(time.Second),
	}
}

// IDOf returns the ID of a namespace's debt in a group-version, at the backend of its APIService or at one of several backends
// of its APIRoute.
func IDOf(uid types.UID, gv schema.GroupVersion, apiService string) string {
	of := string(uid) + "/" + gv.String()
	if _, backend, several := strings.Cut(apiService, "/"); several {
		of += "/" + backend
	}
	sum := sha256.Sum256([]byte(of))
	return hex.EncodeToString(sum[:6])
}

// Entry is a debt with its state, as /debug/debts shows it.
type Entry struct {
	Debt
	// State is Waiting, Paying, Orphaned or Unreadable. Message contains the reason.
	State   State  `json:"state"`
	Message string `json:"message,omitempty"`
}

// State is the progress of a debt.
type State string

const (
	// Waiting debts wait for the backend's return.
	Waiting State = "Waiting"
	// Paying debts are being cleaned up.
	Paying State = "Paying"
	// Orphaned debts have no APIService. They are kept, because it may be registered again.
	Orphaned State = "Orphaned"
	// Unreadable debts are damaged, or were written by a newer release. Their backend stays unavailable.
	Unreadable State = "Unreadable"
)

// List is the response of /debug/debts.
type List struct {
	Debts []Entry `json:"debts"`
}
