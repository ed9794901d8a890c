package respond

import (
	"mime"
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

// Negotiate picks the encoding for an Accept header: the acceptable one with the highest q, the first among equals.
// Nothing named means JSON. Clauses that ask for a transformation (as=Table and the like) are not ours to answer.
func Negotiate(accept string) (Encoding, bool) {
	if strings.TrimSpace(accept) == "" {
		return jsonEncoding, true
	}
	best, bestQ := Encoding{}, 0.0
	for clause := range strings.SplitSeq(accept, ",") {
		mediaType, params, err := mime.ParseMediaType(strings.TrimSpace(clause))
		if err != nil || params["as"] != "" {
			continue
		}
		e, ok := encodingFor(mediaType)
		if !ok {
			continue
		}
		if q := quality(params["q"]); q > bestQ {
			best, bestQ = e, q
		}
	}
	return best, bestQ > 0
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

func quality(q string) float64 {
	if q == "" {
		return 1
	}
	v, err := strconv.ParseFloat(q, 64)
	if err != nil || v < 0 || v > 1 {
		return 0
	}
	return v
}
