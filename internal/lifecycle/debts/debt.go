// Package debts records what finalized namespaces may have left at backends that were unreachable, and deletes it when the
// backends return.
//
// A cleanup debt is written to etcd before the namespace is finalized, so that no crash loses it, and removed when the
// backend itself has shown that nothing is left. Meanwhile the backend's group-version is unavailable
// (apiservice.CleanupDebt). Debt.decide (backend.go) decides what is deleted. In doubt it keeps an object: a debt that
// cannot be cleaned up has a reason that people can read and a command that drops it, while a live object would be lost.
package debts

import (
	"crypto/sha256"
	"encoding/hex"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Debt is one namespace that was finalized without one group-version.
type Debt struct {
	// ID is a function of the namespace's UID and the group-version, so that replicas that record the same debt at the
	// same time record one.
	ID           string    `json:"id"`
	Namespace    string    `json:"namespace"`
	NamespaceUID types.UID `json:"namespaceUID"`
	GroupVersion string    `json:"groupVersion"`
	APIService   string    `json:"apiService"`
	// Reason is why the namespace did not wait.
	Reason string `json:"reason"`
	// Since is when the debt was recorded, in whole seconds, like creation timestamps.
	Since time.Time `json:"since"`
}

// FinalizeDelay is how long a namespace exists after its debts were recorded. Creation timestamps are truncated to the
// second: without a whole second in between, an object of a new namespace of the same name could look as old as the debt.
const FinalizeDelay = 2 * time.Second

// NewDebt returns a debt recorded now.
func NewDebt(namespace string, uid types.UID, gv schema.GroupVersion, apiService, reason string) Debt {
	return Debt{
		ID: IDOf(uid, gv), Namespace: namespace, NamespaceUID: uid, GroupVersion: gv.String(), APIService: apiService,
		Reason: reason, Since: time.Now().UTC().Truncate(time.Second),
	}
}

// IDOf returns the ID of a namespace's debt in a group-version.
func IDOf(uid types.UID, gv schema.GroupVersion) string {
	sum := sha256.Sum256([]byte(string(uid) + "/" + gv.String()))
	return hex.EncodeToString(sum[:6])
}

// Entry is a debt with its state, as /debug/debts shows it.
type Entry struct {
	Debt
	// State is Waiting, Paying or Orphaned, and Message says what for.
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
	// Orphaned debts have no APIService any more. They stay, because it may be registered again.
	Orphaned State = "Orphaned"
)

// List is what /debug/debts answers.
type List struct {
	Debts []Entry `json:"debts"`
}
