package coreapi

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
)

// codecs translate between bytes and the types served here.
type codecs struct {
	scheme     *runtime.Scheme
	factory    serializer.CodecFactory
	parameters runtime.ParameterCodec
	stored     runtime.Serializer // what objects are stored as
	fields     *fieldSets
}

func newCodecs() (*codecs, error) {
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	// Streaming lists item by item keeps a large LIST from being held twice in memory.
	factory := serializer.NewCodecFactory(scheme,
		serializer.WithStreamingCollectionEncodingToJSON(), serializer.WithStreamingCollectionEncodingToProtobuf())
	info, ok := runtime.SerializerInfoForMediaType(factory.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	if !ok {
		return nil, fmt.Errorf("no serializer for %s", runtime.ContentTypeProtobuf)
	}
	return &codecs{scheme, factory, runtime.NewParameterCodec(scheme), info.Serializer, newFieldSets()}, nil
}

// storage is the codec between etcd and memory: the stored version in the form that storeAs said, protobuf by default, and
// read back in whichever form it was written (kube-apiserver may have been there before us).
func (c *codecs) storage(stored schema.GroupVersion) runtime.Codec {
	return frugal{c.factory.CodecForVersions(c.stored, c.factory.UniversalDeserializer(), stored, internalOf(stored.Group)), c.fields}
}

// newScheme registers every served kind twice: as v1, and, with the same Go type, as its own internal version. The
// scheme then converts between the two by setting apiVersion and kind, and copies nothing.
func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	versions := map[string][]schema.GroupVersion{} // of each group, the preferred first
	for _, g := range groups() {
		if err := g.addToScheme(scheme); err != nil {
			return nil, fmt.Errorf("register %s: %w", g.version, err)
		}
		if g.register != nil {
			if err := g.register(scheme); err != nil {
				return nil, fmt.Errorf("register %s: %w", g.version, err)
			}
		}
		for _, r := range g.resources {
			if err := r.addToScheme(scheme, g.version); err != nil {
				return nil, fmt.Errorf("register %s: %w", r.name, err)
			}
		}
		for _, kind := range g.transient {
			scheme.AddKnownTypes(internalOf(g.version.Group), kind.DeepCopyObject())
		}
		versions[g.version.Group] = append(versions[g.version.Group], g.version)
		if err := scheme.SetVersionPriority(versions[g.version.Group]...); err != nil {
			return nil, fmt.Errorf("register %s: %w", g.version, err)
		}
	}
	return scheme, nil
}
