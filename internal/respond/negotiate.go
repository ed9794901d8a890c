package respond

import (
	"cmp"
	"iter"
	"mime"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
)

// Media types of the API.
const (
	MediaJSON     = "application/json"
	MediaYAML     = "application/yaml"
	MediaProtobuf = "application/vnd.kubernetes.protobuf"
)

// Encoding is an encoding of API objects.
type Encoding struct {
	MediaType string
}

var (
	jsonEncoding = Encoding{MediaJSON}
	yamlEncoding = Encoding{MediaYAML}
	pbEncoding   = Encoding{MediaProtobuf}
)

func (e Encoding) serializer() runtime.Encoder {
	info, ok := runtime.SerializerInfoForMediaType(codecs().SupportedMediaTypes(), e.MediaType)
	if !ok {
		panic("respond: no serializer for " + e.MediaType) // unreachable: the three constants above are supported
	}
	return info.Serializer
}

// Clause is a media range in an Accept header, with its parameters (RFC 9110, 12.5.1).
type Clause struct {
	// MediaType is in lower case. It may be */* or application/*.
	MediaType string
	Params    map[string]string
	// Quality is greater than 0 and at most 1.
	Quality float64
}

// maxClauses is the maximum number of parsed clauses, far more than any client sends.
const maxClauses = 64

// Clauses returns the acceptable clauses of Accept header values, in their original order. It omits clauses that
// cannot be parsed, and clauses with an invalid weight or a weight of 0.
func Clauses(accept ...string) iter.Seq[Clause] {
	return func(yield func(Clause) bool) {
		n := 0
		for _, value := range accept {
			for text := range strings.SplitSeq(value, ",") {
				media, params, err := mime.ParseMediaType(strings.TrimSpace(text))
				if err != nil {
					continue
				}
				if q := quality(params["q"]); q > 0 && !yield(Clause{media, params, q}) {
					return
				}
				if n++; n == maxClauses {
					return
				}
			}
		}
	}
}

// ParseAccept returns the clauses sorted by descending quality. Equal clauses keep their order.
func ParseAccept(accept ...string) []Clause {
	return slices.SortedStableFunc(Clauses(accept...), func(a, b Clause) int { return cmp.Compare(b.Quality, a.Quality) })
}

// Negotiate selects the encoding for an Accept header: the acceptable one with the highest quality, and the first
// among equals. An empty header selects JSON. Clauses that request a transformation (as=Table and similar) are
// ignored.
func Negotiate(accept string) (Encoding, bool) {
	if strings.TrimSpace(accept) == "" {
		return jsonEncoding, true
	}
	best, quality := Encoding{}, 0.0
	for c := range Clauses(accept) {
		if e, ok := encodingFor(c.MediaType); ok && c.Params["as"] == "" && c.Quality > quality {
			best, quality = e, c.Quality
		}
	}
	return best, quality > 0
}

func encodingFor(mediaType string) (Encoding, bool) {
	switch mediaType {
	case MediaJSON, "*/*", "application/*":
		return jsonEncoding, true
	case MediaYAML:
		return yamlEncoding, true
	case MediaProtobuf:
		return pbEncoding, true
	}
	return Encoding{}, false
}

// quality parses the weight of a clause. It returns 1 for an empty weight and 0 for an invalid one.
func quality(q string) float64 {
	if q == "" {
		return 1
	}
	v, err := strconv.ParseFloat(q, 64)
	if err != nil || !(v >= 0 && v <= 1) {
		return 0
	}
	return v
}
