package debts

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

const (
	prefix = "debts/"
	// maxDebts bounds the ledger. A namespace beyond it waits for the backend as if there were no policy.
	maxDebts = 10_000
	// recordTimeout bounds how long a debt may take from etcd to the ledgers that must heed it.
	recordTimeout = 10 * time.Second
	// named is how many namespaces a condition names.
	named = 3
)

// ErrFull: too many debts are open for another one.
var ErrFull = fmt.Errorf("%d cleanup debts are open already: see them with `aggregator debts`", maxDebts)

// Keep is where debts outlive this process. Mirror calls replaced with everything under a prefix, and again after each
// change, until ctx ends.
type Keep interface {
	Put(ctx context.Context, key string, value []byte) error
	Delete(ctx context.Context, key string) error
	Mirror(ctx context.Context, prefix string, replaced func(map[string][]byte))
}

// Ledger is the debts of all replicas, as this one knows them.
type Ledger struct {
	keep  Keep
	log   *zap.Logger
	ready chan struct{}

	mu    sync.Mutex // guards what follows
	debts map[string]Debt
	// trouble is why the last payment to an APIService's backend failed.
	trouble map[string]string
	// changed is closed and replaced when any of it changes.
	changed chan struct{}
}

// NewLedger makes a ledger that knows nothing until Run.
func NewLedger(keep Keep, log *zap.Logger) *Ledger {
	return &Ledger{
		keep: keep, log: log.Named("debts"), ready: make(chan struct{}), changed: make(chan struct{}),
		trouble: map[string]string{},
	}
}

// Ready is closed when every debt that was open is known. Before that no backend may be taken for one without debts.
func (l *Ledger) Ready() <-chan struct{} { return l.ready }

// Run follows what is kept until ctx ends.
func (l *Ledger) Run(ctx context.Context) error {
	l.keep.Mirror(ctx, prefix, func(kept map[string][]byte) { l.replace(l.decode(kept)) })
	return nil
}

func (l *Ledger) decode(kept map[string][]byte) map[string]Debt {
	debts := make(map[string]Debt, len(kept))
	for key, value := range kept {
		var d Debt
		if err := json.Unmarshal(value, &d); err != nil || prefix+d.ID != key {
			l.log.Warn("a cleanup debt cannot be read and is ignored", zap.String("key", key), zap.Error(err))
			continue
		}
		debts[d.ID] = d
	}
	return debts
}

func (l *Ledger) replace(debts map[string]Debt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	first := l.debts == nil
	if first {
		defer close(l.ready)
	}
	if !first && maps.Equal(l.debts, debts) {
		return
	}
	l.debts = debts
	for name := range l.trouble {
		if !l.owes(name) {
			delete(l.trouble, name)
		}
	}
	l.wake()
}

// owes is called with mu held.
func (l *Ledger) owes(apiService string) bool {
	for _, d := range l.debts {
		if d.APIService == apiService {
			return true
		}
	}
	return false
}

// wake is called with mu held.
func (l *Ledger) wake() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// Changed returns a channel that is closed at the next change. Take it before reading what may change.
func (l *Ledger) Changed() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changed
}

// Record writes a debt, and returns without error when it is in etcd and this replica heeds it.
func (l *Ledger) Record(ctx context.Context, d Debt) error {
	l.mu.Lock()
	full := len(l.debts) >= maxDebts
	l.mu.Unlock()
	if full {
		return ErrFull
	}
	value, err := json.Marshal(d)
	if err != nil {
		return fmt.Errorf("write cleanup debt: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	if err := l.keep.Put(ctx, prefix+d.ID, value); err != nil {
		return fmt.Errorf("write cleanup debt: %w", err)
	}
	for {
		changed := l.Changed()
		if _, ok := l.Lookup(d.ID); ok {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return errors.New("write cleanup debt: it is in etcd, and this replica does not hear of it")
		}
	}
}

// Lookup returns a debt that is open.
func (l *Ledger) Lookup(id string) (Debt, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	d, ok := l.debts[id]
	return d, ok
}

// Forget drops a debt, paid or not. One that is not there is no error.
func (l *Ledger) Forget(ctx context.Context, id string) error {
	if err := l.keep.Delete(ctx, prefix+id); err != nil {
		return fmt.Errorf("drop cleanup debt: %w", err)
	}
	return nil
}

// All are the open debts, oldest first.
func (l *Ledger) All() []Debt { return l.where(func(Debt) bool { return true }) }

// Of are the open debts at the backend of an APIService, oldest first.
func (l *Ledger) Of(apiService string) []Debt {
	return l.where(func(d Debt) bool { return d.APIService == apiService })
}

func (l *Ledger) where(which func(Debt) bool) []Debt {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := []Debt{}
	for _, d := range l.debts {
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

// Owed is what the condition of an APIService says of its debts; empty without any.
func (l *Ledger) Owed(apiService string) string {
	open := l.Of(apiService)
	if len(open) == 0 {
		return ""
	}
	var names []string
	for _, d := range open[:min(named, len(open))] {
		names = append(names, d.Namespace)
	}
	if len(open) > named {
		names = append(names, "...")
	}
	text := fmt.Sprintf("paying: the backend is back, and what %d namespaces left there when they were finalized without it (%s) is deleted first",
		len(open), strings.Join(names, ", "))
	if trouble := l.troubleOf(apiService); trouble != "" {
		text += "; the last attempt failed: " + trouble + "; if it cannot succeed, `aggregator debts forget ID` gives up a debt"
	}
	return text
}

func (l *Ledger) troubleOf(apiService string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.trouble[apiService]
}

// note keeps why a payment failed, empty when it did not.
func (l *Ledger) note(apiService, trouble string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.trouble[apiService] == trouble {
		return
	}
	if l.trouble[apiService] = trouble; trouble == "" {
		delete(l.trouble, apiService)
	}
	l.wake()
}
