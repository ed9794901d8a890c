package lifecycle

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// GroupVersion is what namespace finalization must know of one group-version, alive or dead.
type GroupVersion struct {
	schema.GroupVersion
	// Resources are those that are namespaced and have the verb delete; the last-known ones when not Current.
	Resources []Resource
	// Known is false when nobody has ever seen a list of resources: anything may be stored there.
	Known bool
	// Current is false when the backend cannot be reached or its list cannot be believed.
	Current bool
	// APIService, Reason and Since say who is to blame when not Current. Since may be zero.
	APIService, Reason string
	Since              time.Time

	// Service is the backend's; zero for what this server serves itself.
	Service types.NamespacedName
	// UID is the APIService's.
	UID types.UID
	// NonPersistent ones keep nothing, says whoever registered them: they are neither cleared nor waited for. To clear
	// what is made at the moment, such as measurements of the pods that are just going, would never come to an end.
	NonPersistent bool
	// FinalizeAfter is how long a namespace waits for a dead backend. Zero: as long as it takes.
	FinalizeAfter time.Duration
	// Unreached is since when no replica has reached the backend; zero while one does, and while nobody knows.
	Unreached time.Time
}

// remote is the name of the APIService, empty for what this server serves itself: its storage does not lie.
func (gv GroupVersion) remote() string {
	if gv.Service.Name == "" {
		return ""
	}
	return gv.APIService
}

// Resource is a namespaced resource that can be deleted, with what else it can do.
type Resource struct {
	Name                   string
	List, DeleteCollection bool
	// dropped ones are no longer in the backend's list, and were before: see recall.
	dropped bool
}

// blocks says whether objects of the namespace may be stored where we cannot reach them now. A dead group-version that
// is known to hold nothing namespaced and deletable can hide nothing: this is what keeps a dead metrics server from
// holding every namespace of the cluster hostage (contract.md H1, k/k#75788).
func (gv GroupVersion) blocks() bool {
	return !gv.Current && !gv.NonPersistent && (!gv.Known || len(gv.Resources) > 0)
}

// complaint is one clause of the condition: which group-version, whose fault, since when, and what is at stake.
func (gv GroupVersion) complaint() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: APIService %s is not available (%s", gv.GroupVersion, gv.APIService, gv.Reason)
	if !gv.Since.IsZero() {
		fmt.Fprintf(&b, " since %s", gv.Since.UTC().Format(time.RFC3339))
	}
	b.WriteString("), ")
	if gv.Known {
		names := make([]string, 0, len(gv.Resources))
		for _, r := range gv.Resources {
			names = append(names, r.Name)
		}
		fmt.Fprintf(&b, "it may hold %s of this namespace", strings.Join(names, ", "))
	} else {
		b.WriteString("what it holds is not known")
	}
	return b.String()
}
