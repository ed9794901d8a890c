// Package debts is what finalized namespaces may have left behind at backends that could not be asked, and its removal
// when they return.
//
// A debt is written to etcd before the namespace goes, so that no crash loses it, and removed when the backend itself has
// shown that nothing is left; meanwhile nobody may use the backend's group-version (apiservice.CleanupDebt). What is
// deleted is decided here, in owed.go, and errs on the side of leaving an object where it is: a debt that cannot be paid
// has a reason that people can read and a command that drops it, while somebody's live object would just be gone.
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
	// Since is when the debt was recorded, in whole seconds, as creation timestamps are.
	Since time.Time `json:"since"`
}

// Settle is how long a namespace goes on existing after its debts were recorded. An object's creation timestamp is cut
// off at the second: without a whole second in between, an object of a new namespace of the same name could look as old
// as the debt.
const Settle = 2 * time.Second

// NewDebt is a debt of now.
func NewDebt(namespace string, uid types.UID, gv schema.GroupVersion, apiService, reason string) Debt {
	return Debt{
		ID: IDOf(uid, gv), Namespace: namespace, NamespaceUID: uid, GroupVersion: gv.String(), APIService: apiService,
		Reason: reason, Since: time.Now().UTC().Truncate(time.Second),
	}
}

// IDOf is the ID of a namespace's debt in a group-version.
func IDOf(uid types.UID, gv schema.GroupVersion) string {
	sum := sha256.Sum256([]byte(string(uid) + "/" + gv.String()))
	return hex.EncodeToString(sum[:6])
}

// Entry is a debt as people see it.
type Entry struct {
	Debt
	// State is Waiting, Paying or Orphaned, and Message says what for.
	State   State  `json:"state"`
	Message string `json:"message,omitempty"`
}

// State is how far a debt has come.
type State string

const (
	// Waiting debts wait for the backend's return.
	Waiting State = "Waiting"
	// Paying debts are being cleaned up.
	Paying State = "Paying"
	// Orphaned debts have no APIService any more. They stay: it may be registered anew.
	Orphaned State = "Orphaned"
)

// List is what /debug/debts answers.
type List struct {
	Debts []Entry `json:"debts"`
}
