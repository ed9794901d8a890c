package coreapi

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	"portico.dev/internal/coreapi/registry"
)

// codecs translate between bytes and the types served here.
type codecs struct {
	scheme     *runtime.Scheme
	factory    serializer.CodecFactory
	parameters runtime.ParameterCodec
	stored     runtime.Serializer // what objects are stored as
	fields     *fieldSets
}

func newCodecs(groups []registry.Group) (*codecs, error) {
	scheme, err := newScheme(groups)
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
	return frugal{c.factory.CodecForVersions(c.stored, c.factory.UniversalDeserializer(), stored, registry.InternalOf(stored.Group)), c.fields}
}

// newScheme registers every served kind twice: as v1, and, with the same Go type, as its own internal version. The
// scheme then converts between the two by setting apiVersion and kind, and copies nothing.
func newScheme(groups []registry.Group) (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	versions := map[string][]schema.GroupVersion{} // of each group, the preferred first
	for _, g := range groups {
		if err := g.AddToScheme(scheme); err != nil {
			return nil, fmt.Errorf("register %s: %w", g.Version, err)
		}
		if g.Register != nil {
			if err := g.Register(scheme); err != nil {
				return nil, fmt.Errorf("register %s: %w", g.Version, err)
			}
		}
		for _, r := range g.Resources {
			if err := r.AddToScheme(scheme, g.Version); err != nil {
				return nil, fmt.Errorf("register %s: %w", r.Name, err)
			}
		}
		others := slices.Clone(g.Types)
		for _, v := range g.Virtual {
			others = append(others, v.Types...)
		}
		for _, kind := range others {
			scheme.AddKnownTypes(registry.InternalOf(g.Version.Group), kind.DeepCopyObject())
		}
		versions[g.Version.Group] = append(versions[g.Version.Group], g.Version)
		if err := scheme.SetVersionPriority(versions[g.Version.Group]...); err != nil {
			return nil, fmt.Errorf("register %s: %w", g.Version, err)
		}
	}
	return scheme, nil
}
