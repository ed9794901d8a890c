package apiservice

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Annotations by which the owner of an APIService says how its backend is to be treated. A value that makes no sense is
// as good as none, and a condition says so: a slip of the pen must not take a backend down.
const (
	// MaxInFlightAnnotation is how many requests the backend may hold at one time, a number from 1 up.
	MaxInFlightAnnotation = "portico.dev/max-inflight"
	// LongRunningAnnotation lists the subresources, separated by commas, whose requests have no deadline, as log, exec
	// and the like have none.
	LongRunningAnnotation = "portico.dev/long-running-subresources"
	// RejectSendInitialEventsAnnotation, "true", answers watches that ask for initial events with 422, for servers that
	// take the question for a plain watch and leave the client waiting for a bookmark that never comes.
	RejectSendInitialEventsAnnotation = "portico.dev/reject-send-initial-events"
	// ConvertAnnotation lists what is made here of objects for servers that cannot: table, metadata.
	ConvertAnnotation = "portico.dev/convert"
	// NonPersistentAnnotation, "true", says that the backend keeps nothing: what it lists is made at the moment, so that
	// no namespace has to wait for it.
	NonPersistentAnnotation = "portico.dev/non-persistent"
	// FinalizeAfterAnnotation is how long a namespace that is deleted waits for a dead backend before it goes without it,
	// and leaves a debt behind.
	FinalizeAfterAnnotation = "portico.dev/finalize-namespaces-after"
)

// Options are the annotations of an APIService, read. The zero Options are those of one without annotations.
type Options struct {
	// MaxInFlight bounds the requests that the backend holds at one time. Default 0: as every other backend. Where the
	// APIServices of one Service differ, the smallest counts.
	MaxInFlight int
	// LongRunningSubresources have no deadline, beside those that never have one.
	LongRunningSubresources []string
	// RejectSendInitialEvents answers 422 to watches with sendInitialEvents.
	RejectSendInitialEvents bool
	// ConvertTable and ConvertMetadata make Tables and PartialObjectMetadata of the backend's objects.
	ConvertTable, ConvertMetadata bool
	// NonPersistent backends keep nothing that a namespace could leave behind.
	NonPersistent bool
	// FinalizeAfter is how long a namespace waits for the backend. Default 0: as long as it takes.
	FinalizeAfter time.Duration
}

// A namespace waits ten seconds at the least, or every restart of a backend would make debts, and objects made just before
// it could not be told by their age from those of the next namespace; and a year at the most, beyond which the number is
// a mistake.
const minFinalizeAfter, maxFinalizeAfter = 10 * time.Second, 365 * 24 * time.Hour

// maxMaxInFlight is far beyond what one backend can hold, so that a number above it is a mistake.
const maxMaxInFlight = 1_000_000

// subresourceName is what may stand in a path segment that names a subresource.
var subresourceName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)

// parseOptions reads annotations. wrong says, in a stable order, which of them make no sense and why.
func parseOptions(annotations map[string]string) (o Options, wrong []string) {
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
	for _, a := range []struct {
		name string
		into *bool
	}{{RejectSendInitialEventsAnnotation, &o.RejectSendInitialEvents}, {NonPersistentAnnotation, &o.NonPersistent}} {
		if text, ok := annotations[a.name]; ok {
			value := strings.TrimSpace(text)
			if *a.into = value == "true"; !*a.into && value != "false" {
				complain(a.name, `%.64q is neither "true" nor "false"`, text)
			}
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

// listOf splits a list at its commas, sorted and without doubles.
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
