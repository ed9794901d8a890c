package discovery

import (
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"fmt"
	"sync"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/yaml"

	"portico.dev/internal/respond"
)

// compressAbove is the size from which upstream compresses for those who can read it: below, the work is worth more than
// the bytes.
const compressAbove = 128 << 10

// aggregatedParams follow the media type of an aggregated document, in the order in which upstream writes them.
const aggregatedParams = "g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// document is one object in every encoding. The ETag is the hash of its JSON whatever the encoding, as upstream's is, so
// that it depends on nothing but the content.
type document struct {
	etag      string
	encodings map[string]*encoding // by media type, without parameters
}

// encoding is the bytes of a document, made the first time somebody wants them.
type encoding struct {
	contentType string
	plain       func() ([]byte, error)
	// packed is the same compressed, nil when that is not worth it.
	packed func() ([]byte, error)
}

type encoder struct {
	codecs serializer.CodecFactory
}

func newEncoder() (*encoder, error) {
	scheme := runtime.NewScheme()
	if err := apidiscoveryv2.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("register discovery types: %w", err)
	}
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	return &encoder{codecs: serializer.NewCodecFactory(scheme)}, nil
}

// document encodes obj, whose kind and apiVersion must be set, as JSON now and as anything else when wanted. params go
// behind the media types.
func (e *encoder) document(obj runtime.Object, params string) (*document, error) {
	asJSON, err := e.encode(obj, respond.MediaJSON)
	if err != nil {
		return nil, err
	}
	d := &document{etag: fmt.Sprintf(`"%X"`, sha512.Sum512(asJSON)), encodings: map[string]*encoding{}}
	for _, mediaType := range []string{respond.MediaJSON, respond.MediaYAML, respond.MediaProtobuf} {
		plain := sync.OnceValues(func() ([]byte, error) { return e.encode(obj, mediaType) })
		switch mediaType {
		case respond.MediaJSON:
			plain = func() ([]byte, error) { return asJSON, nil }
		case respond.MediaYAML: // it would hold obj, which is larger than what is made of it, until somebody asks, which is never
			plain = sync.OnceValues(func() ([]byte, error) { return yaml.JSONToYAML(asJSON) })
		}
		d.encodings[mediaType] = &encoding{
			contentType: withParams(mediaType, params),
			plain:       plain,
			packed:      sync.OnceValues(func() ([]byte, error) { return pack(plain) }),
		}
	}
	return d, nil
}

// prepare makes what clients ask for most, so that none of them has to wait for it. YAML, which is slow to make and
// which nobody asks for, is left for whoever does.
func (d *document) prepare() error {
	for _, mediaType := range []string{respond.MediaJSON, respond.MediaProtobuf} {
		if _, err := d.encodings[mediaType].packed(); err != nil {
			return err
		}
	}
	return nil
}

func (e *encoder) encode(obj runtime.Object, mediaType string) ([]byte, error) {
	info, ok := runtime.SerializerInfoForMediaType(e.codecs.SupportedMediaTypes(), mediaType)
	if !ok {
		return nil, fmt.Errorf("no serializer for %s", mediaType)
	}
	var body bytes.Buffer
	if err := info.Serializer.Encode(obj, &body); err != nil {
		return nil, fmt.Errorf("encode %T as %s: %w", obj, mediaType, err)
	}
	return body.Bytes(), nil
}

func pack(plain func() ([]byte, error)) ([]byte, error) {
	body, err := plain()
	if err != nil || len(body) <= compressAbove {
		return nil, err
	}
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, gzip.BestSpeed)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(body); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return packed.Bytes(), nil
}

func withParams(mediaType, params string) string {
	if params == "" {
		return mediaType
	}
	return mediaType + ";" + params
}
