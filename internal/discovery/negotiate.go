package discovery

import (
	"mime"
	"strings"

	"portico.dev/internal/discovery/conditional"
	"portico.dev/internal/respond"
)

// negotiateAggregated looks for a clause of an Accept header that asks for aggregated discovery v2. Such a clause wins
// over any other, whatever their weights, as it does upstream: clients write the plain one behind it as a fallback for
// servers that know no better. Among several the weight decides, then the order. v2beta1 is as unknown here as it is
// upstream since 1.35.
func negotiateAggregated(accept string) (mediaType string, ok bool) {
	best := 0.0
	for clause := range strings.SplitSeq(accept, ",") {
		named, params, err := mime.ParseMediaType(strings.TrimSpace(clause))
		if err != nil || !asksAggregated(params) {
			continue
		}
		candidate, known := concrete(named)
		if q := conditional.Quality(params["q"]); known && q > best {
			mediaType, best = candidate, q
		}
	}
	return mediaType, best > 0
}

func concrete(mediaType string) (string, bool) {
	switch mediaType {
	case "*/*", "application/*":
		return respond.MediaJSON, true
	case respond.MediaJSON, respond.MediaYAML, respond.MediaProtobuf:
		return mediaType, true
	}
	return "", false
}
