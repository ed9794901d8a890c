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
	// MaxInFlightAnnotation limits the requests in flight to the backend. A number of at least 1.
	MaxInFlightAnnotation = "portico.dev/max-inflight"
	// LongRunningAnnotation is a comma-separated list of subresources with requests that have no deadline, like log
	// and exec.
	LongRunningAnnotation = "portico.dev/long-running-subresources"
	// InitialEventsAnnotation configures watches that request initial events. auto, the default, forwards them unless
	// a probe has found that the server ignores the parameter, so that the client would wait for a bookmark that
	// never arrives; such watches get a 422. pass always forwards them, reject always responds with a 422, and make
	// creates the initial events from a list. With these three values, the server is not probed.
	InitialEventsAnnotation = "portico.dev/initial-events"
	// RejectSendInitialEventsAnnotation is an older form of portico.dev/initial-events: reject, if set to "true". The
	// newer annotation takes precedence.
	RejectSendInitialEventsAnnotation = "portico.dev/reject-send-initial-events"
	// ConvertAnnotation lists the conversions that this server makes for backends that do not support them: table,
	// metadata.
	ConvertAnnotation = "portico.dev/convert"
	// NonPersistentAnnotation declares whether the backend stores objects. "true" means that it does not: it computes
	// its lists, so that no namespace deletion waits for it. "false" means that a backend of metrics.k8s.io,
	// custom.metrics.k8s.io or external.metrics.k8s.io may store objects before its resources have been discovered.
	NonPersistentAnnotation = "portico.dev/non-persistent"
	// FinalizeAfterAnnotation is how long the deletion of a namespace waits for an unavailable backend. Then the
	// namespace is finalized without the backend, and a cleanup debt is recorded.
	FinalizeAfterAnnotation = "portico.dev/finalize-namespaces-after"
	// DiscoveryWhenUnavailableAnnotation configures how discovery shows the last-known resources of an unavailable
	// backend: "stale", so that clients ignore them, or "current", so that clients use them and their requests get
	// the 503.
	DiscoveryWhenUnavailableAnnotation = "portico.dev/discovery-when-unavailable"
)

// Options are the parsed annotations of an APIService. The zero value belongs to an APIService without annotations.
type Options struct {
	// MaxInFlight limits the requests in flight to the backend. Default 0: the limit of every backend. The smallest value
	// among the APIServices of one Service applies.
	MaxInFlight int
	// LongRunningSubresources have no deadline, in addition to the subresources that never have one.
	LongRunningSubresources []string
	// InitialEvents configures watches with sendInitialEvents.
	InitialEvents InitialEvents
	// ConvertTable and ConvertMetadata convert the backend's objects to Tables and PartialObjectMetadata.
	ConvertTable, ConvertMetadata bool
	// NonPersistent backends do not store objects.
	NonPersistent bool
	// Persistent backends may store objects until discovery shows their resources, regardless of the definition of
	// their API.
	Persistent bool
	// FinalizeAfter is how long a namespace waits for the backend. Default 0: without a limit.
	FinalizeAfter time.Duration
	// CurrentWhenUnavailable keeps the last-known resources Current in discovery while the backend is unavailable.
	// Default: Stale, if some of them are namespaced and can be deleted.
	CurrentWhenUnavailable bool
}

// InitialEvents configures watches that request initial events.
type InitialEvents int

const (
	// InitialEventsAuto rejects watches for which the server would ignore the parameter.
	InitialEventsAuto InitialEvents = iota
	// InitialEventsPass forwards all watches.
	InitialEventsPass
	// InitialEventsReject rejects all watches with a 422.
	InitialEventsReject
	// InitialEventsMake creates the initial events of all watches from a list.
	InitialEventsMake
)

// With the lower limit, restarts of a backend do not cause cleanup debts, and the age of an object shows whether it
// belongs to a deleted namespace or to a new one with the same name. A duration above the upper limit is a mistake.
const minFinalizeAfter, maxFinalizeAfter = 10 * time.Second, 365 * 24 * time.Hour

// maxMaxInFlight is far beyond what one backend can handle: a number above it is a mistake.
const maxMaxInFlight = 1_000_000

// subresourceName matches valid names of subresources.
var subresourceName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)

// ParseOptions parses annotations. wrong lists the invalid ones with the reasons, in a stable order.
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

// HasReadOnlyDefinition reports whether the API definition of the group-version has no deletable resource, and no
// annotation overrides that. It applies until discovery has shown the resources of the backend: a backend that serves
// a resource with the verb delete in such a group may store objects.
func (r *Route) HasReadOnlyDefinition() bool {
	return !r.Options.Persistent && slices.Contains(readOnlyGroups, r.GroupVersion.Group)
}

// listOf splits a comma-separated list. The result is sorted and has no duplicates.
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
