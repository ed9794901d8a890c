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

// The media types of the API.
const (
	MediaJSON     = "application/json"
	MediaYAML     = "application/yaml"
	MediaProtobuf = "application/vnd.kubernetes.protobuf"
)

// Encoding is one way to write an object.
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
		panic("respond: no serializer for " + e.MediaType) // the three constants above are all supported
	}
	return info.Serializer
}

// Clause is one media range that a client accepts, with its parameters (RFC 9110, 12.5.1).
type Clause struct {
	// MediaType is in lower case; it may be */* or application/*.
	MediaType string
	Params    map[string]string
	// Quality is above 0 and at most 1.
	Quality float64
}

// maxClauses bounds the clauses that are read: far more than any client sends.
const maxClauses = 64

// Clauses are the acceptable clauses of the values of an Accept header, in the order in which they came. Those that do not
// parse, whose weight is 0 or no number, are left out.
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

// ParseAccept is Clauses in the order of preference: by quality, then as they came.
func ParseAccept(accept ...string) []Clause {
	return slices.SortedStableFunc(Clauses(accept...), func(a, b Clause) int { return cmp.Compare(b.Quality, a.Quality) })
}

// Negotiate picks the encoding for an Accept header: the acceptable one with the highest quality, the first among equals.
// An empty header means JSON. Clauses that ask for a transformation (as=Table and the like) are left out.
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

// quality is the weight of a clause: 1 when there is none, and 0 when it is no weight.
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
