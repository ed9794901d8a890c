package routetable

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Annotations of an APIService that configure how requests to its backend are handled. Invalid values are ignored and
// reported in a condition: a typing error must not make a backend unavailable.
//
//reference:annotations Annotations of an APIService
const (
	// MaxInFlightAnnotation limits the requests in flight to the backend. A number from 1 up.
	MaxInFlightAnnotation = "portico.dev/max-inflight"
	// LongRunningAnnotation is a comma-separated list of subresources whose requests have no deadline, as log and exec
	// have none.
	LongRunningAnnotation = "portico.dev/long-running-subresources"
	// InitialEventsAnnotation says what becomes of watches that ask for initial events. auto, the default, passes them on
	// unless a probe has found that the server ignores the wish, which leaves the client waiting for a bookmark that never
	// comes; such watches get 422. pass always passes them on, reject always answers 422, and make makes the initial events
	// of a list; with these three there are no probes.
	InitialEventsAnnotation = "portico.dev/initial-events"
	// RejectSendInitialEventsAnnotation set to "true" is an older name for portico.dev/initial-events: reject. The newer
	// one takes precedence.
	RejectSendInitialEventsAnnotation = "portico.dev/reject-send-initial-events"
	// ConvertAnnotation lists the conversions that this server does for backends that cannot: table, metadata.
	ConvertAnnotation = "portico.dev/convert"
	// NonPersistentAnnotation set to "true" says that the backend stores nothing: it computes what it lists, so that no
	// namespace deletion has to wait for it. Set to "false" it says that metrics.k8s.io, custom.metrics.k8s.io or
	// external.metrics.k8s.io may store objects at this backend before its resources have been discovered.
	NonPersistentAnnotation = "portico.dev/non-persistent"
	// FinalizeAfterAnnotation is how long the deletion of a namespace waits for a dead backend before the namespace is
	// finalized without it and a cleanup debt is recorded.
	FinalizeAfterAnnotation = "portico.dev/finalize-namespaces-after"
	// DiscoveryWhenUnavailableAnnotation says how the last-known resources of a dead backend are in discovery: "stale", which
	// clients leave out, or "current", which they use, so that their requests get the 503.
	DiscoveryWhenUnavailableAnnotation = "portico.dev/discovery-when-unavailable"
)

// Options are the parsed annotations of an APIService. The zero value is that of an APIService without annotations.
type Options struct {
	// MaxInFlight limits the requests in flight to the backend. Default 0: the limit of every backend. The smallest value
	// among the APIServices of one Service applies.
	MaxInFlight int
	// LongRunningSubresources have no deadline, beside those that never have one.
	LongRunningSubresources []string
	// InitialEvents is what becomes of watches with sendInitialEvents.
	InitialEvents InitialEvents
	// ConvertTable and ConvertMetadata make Tables and PartialObjectMetadata of the backend's objects.
	ConvertTable, ConvertMetadata bool
	// NonPersistent backends store no objects.
	NonPersistent bool
	// Persistent backends may store objects until discovery shows their resources, whatever the definition of their API.
	Persistent bool
	// FinalizeAfter is how long a namespace waits for the backend. Default 0: as long as it takes.
	FinalizeAfter time.Duration
	// CurrentWhenUnavailable keeps the last-known resources Current in discovery while the backend is dead. Default: Stale, if
	// some of them are namespaced and can be deleted.
	CurrentWhenUnavailable bool
}

// InitialEvents is what becomes of watches that ask for initial events.
type InitialEvents int

const (
	// InitialEventsAuto rejects those that the server would ignore.
	InitialEventsAuto InitialEvents = iota
	// InitialEventsPass passes all on.
	InitialEventsPass
	// InitialEventsReject answers all with 422.
	InitialEventsReject
	// InitialEventsMake makes the initial events of all, of a list.
	InitialEventsMake
)

// The lower limit keeps restarts of a backend from causing cleanup debts, and lets the age of objects tell those of a
// deleted namespace from those of a new one with its name. A duration above the upper limit is a mistake.
const minFinalizeAfter, maxFinalizeAfter = 10 * time.Second, 365 * 24 * time.Hour

// maxMaxInFlight is far beyond what one backend can handle: a number above it is a mistake.
const maxMaxInFlight = 1_000_000

// subresourceName matches valid names of subresources.
var subresourceName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)

// ParseOptions parses annotations. wrong lists the invalid ones and why, in a stable order.
func ParseOptions(annotations map[string]string) (o Options, wrong []string) {
	complain := func(annotation, format string, args ...any) {
		wrong = append(wrong, fmt.Sprintf("%s: "+format, append([]any{annotation}, args...)...))
	}
	if text, ok := annotations[MaxInFlightAnnotation]; ok {
		n, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil || n < 1 || n > maxMaxInFlight {
			complain(MaxInFlightAnnotation, "%.64q is not a number from 1 to %d", text, maxMaxInFlight)
		} else {
			o.MaxInFlight = n
		}
	}
	for _, name := range listOf(annotations[LongRunningAnnotation]) {
		if !subresourceName.MatchString(name) {
			complain(LongRunningAnnotation, "%.64q is not the name of a subresource", name)
			continue
		}
		o.LongRunningSubresources = append(o.LongRunningSubresources, name)
	}
	reject := false
	for _, a := range []struct {
		name string
		into *bool
	}{{RejectSendInitialEventsAnnotation, &reject}, {NonPersistentAnnotation, &o.NonPersistent}} {
		if text, ok := annotations[a.name]; ok {
			value := strings.TrimSpace(text)
			if *a.into = value == "true"; !*a.into && value != "false" {
				complain(a.name, `%.64q is neither "true" nor "false"`, text)
			}
		}
	}
	o.Persistent = strings.TrimSpace(annotations[NonPersistentAnnotation]) == "false"
	if reject {
		o.InitialEvents = InitialEventsReject
	}
	if text, ok := annotations[InitialEventsAnnotation]; ok {
		switch strings.TrimSpace(text) {
		case "auto":
			o.InitialEvents = InitialEventsAuto
		case "pass":
			o.InitialEvents = InitialEventsPass
		case "reject":
			o.InitialEvents = InitialEventsReject
		case "make":
			o.InitialEvents = InitialEventsMake
		default:
			complain(InitialEventsAnnotation, "%.64q is none of auto, pass, reject and make", text)
		}
	}
	if text, ok := annotations[FinalizeAfterAnnotation]; ok {
		after, err := time.ParseDuration(strings.TrimSpace(text))
		if err != nil || after < minFinalizeAfter || after > maxFinalizeAfter {
			complain(FinalizeAfterAnnotation, "%.64q is not a duration from %s to %s, such as 10m", text, minFinalizeAfter, maxFinalizeAfter)
		} else {
			o.FinalizeAfter = after
		}
	}
	if text, ok := annotations[DiscoveryWhenUnavailableAnnotation]; ok {
		value := strings.TrimSpace(text)
		if o.CurrentWhenUnavailable = value == "current"; !o.CurrentWhenUnavailable && value != "stale" {
			complain(DiscoveryWhenUnavailableAnnotation, "%.64q is neither current nor stale", text)
		}
	}
	for _, what := range listOf(annotations[ConvertAnnotation]) {
		switch what {
		case "table":
			o.ConvertTable = true
		case "metadata":
			o.ConvertMetadata = true
		default:
			complain(ConvertAnnotation, "%.64q is neither table nor metadata", what)
		}
	}
	return o, wrong
}

// readOnlyGroups are the API groups whose definitions in k8s.io/metrics have only the verbs get and list. Groups of other
// projects are not in the list, because their definitions may get more verbs in any release.
var readOnlyGroups = []string{"metrics.k8s.io", "custom.metrics.k8s.io", "external.metrics.k8s.io"}

// HasReadOnlyDefinition reports whether the API definition of the group-version has no resource that can be deleted, and
// no annotation overrides that. It applies until discovery has shown the resources of the backend: a backend that serves
// a resource with the verb delete in such a group may store objects.
func (r *Route) HasReadOnlyDefinition() bool {
	return !r.Options.Persistent && slices.Contains(readOnlyGroups, r.GroupVersion.Group)
}

// listOf splits a comma-separated list, sorted and without duplicates.
func listOf(text string) []string {
	var out []string
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part != "" {
			out = append(out, part)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
