package coreapi

import (
	"context"
	"fmt"
	"hash/maphash"
	"maps"
	"math/bits"
	"slices"
	"sync/atomic"
	"time"
	"unique"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/storage/etcd3"

	"portico.dev/internal/coreapi/encryption"
	"portico.dev/internal/coreapi/registry"
)

// codecs encode and decode the types served here.
type codecs struct {
	scheme     *runtime.Scheme
	factory    serializer.CodecFactory
	parameters runtime.ParameterCodec
	stored     runtime.Serializer // storage format
	json       runtime.Serializer // storage format of objects without a protobuf form
	onlyJSON   sets.Set[string]   // groups with objects without a protobuf form
	fields     *internedFields
	maps       *internedMaps
	decoders   *decoders
}

func newCodecs(groups []registry.Group) (*codecs, error) {
	scheme, err := newScheme(groups)
	if err != nil {
		return nil, err
	}
	// Streaming encoders avoid a second copy of a large LIST in memory.
	factory := serializer.NewCodecFactory(scheme,
		serializer.WithStreamingCollectionEncodingToJSON(), serializer.WithStreamingCollectionEncodingToProtobuf())
	info, ok := runtime.SerializerInfoForMediaType(factory.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	if !ok {
		return nil, fmt.Errorf("no serializer for %s", runtime.ContentTypeProtobuf)
	}
	asJSON, ok := runtime.SerializerInfoForMediaType(factory.SupportedMediaTypes(), runtime.ContentTypeJSON)
	if !ok {
		return nil, fmt.Errorf("no serializer for %s", runtime.ContentTypeJSON)
	}
	return &codecs{
		scheme: scheme, factory: factory, parameters: runtime.NewParameterCodec(scheme), stored: info.Serializer, json: asJSON.Serializer,
		onlyJSON: withoutProtobuf(groups), fields: newInternedFields(), maps: newInternedMaps(), decoders: newDecoders(),
	}, nil
}

// withoutProtobuf returns the groups with objects that can only be stored as JSON, for example groups of embedding programs.
func withoutProtobuf(groups []registry.Group) sets.Set[string] {
	found := sets.New[string]()
	for _, g := range groups {
		for _, r := range g.Resources {
			if _, ok := r.Object.(runtime.ProtobufMarshaller); !ok {
				found.Insert(g.Version.Group)
			}
		}
	}
	return found
}

// storage returns the codec between etcd and memory. It encodes the stored version in the format set by storeAs, protobuf by
// default, and decodes every format, because kube-apiserver may have written the object.
func (c *codecs) storage(stored schema.GroupVersion) runtime.Codec {
	as := c.stored
	if c.onlyJSON.Has(stored.Group) {
		as = c.json
	}
	return interningCodec{c.factory.CodecForVersions(as, c.factory.UniversalDeserializer(), stored, registry.InternalOf(stored.Group)), c.fields, c.maps, c.decoders}
}

// negotiated returns the serializer for requests and responses of a group. It supports protobuf only if all objects of the
// group do. Requests for another format fail with 415 or 406, as for custom resources.
func (c *codecs) negotiated(group string) runtime.NegotiatedSerializer {
	if c.onlyJSON.Has(group) {
		return jsonSerializer{c.factory}
	}
	return c.factory
}

// jsonSerializer omits protobuf.
type jsonSerializer struct{ serializer.CodecFactory }

// SupportedMediaTypes implements runtime.NegotiatedSerializer.
func (s jsonSerializer) SupportedMediaTypes() []runtime.SerializerInfo {
	return slices.DeleteFunc(slices.Clone(s.CodecFactory.SupportedMediaTypes()), func(info runtime.SerializerInfo) bool {
		return info.MediaType == runtime.ContentTypeProtobuf
	})
}

// newScheme registers every served kind twice with the same Go type: as v1 and as the internal version. The scheme then
// converts between the two by setting apiVersion and kind, without a copy.
func newScheme(groups []registry.Group) (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	versions := map[string][]schema.GroupVersion{} // by group, preferred version first
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

// StorageMediaTypes returns the supported storage formats.
func StorageMediaTypes() []string {
	return []string{runtime.ContentTypeProtobuf, runtime.ContentTypeJSON, runtime.ContentTypeYAML}
}

// Storage configures how objects are stored. The zero value stores unencrypted protobuf and never compacts.
type Storage struct {
	// MediaType is one of StorageMediaTypes. Default protobuf. Objects stored in another format remain readable and change to
	// this format at their next write. Custom resources and their definitions are always JSON.
	MediaType string
	// CompactionInterval is the interval between removals of old revisions. A revision is removed at an age of one to two
	// intervals. If it is zero, etcd is never compacted and grows until it is full.
	CompactionInterval time.Duration
	// Encryption encrypts objects in etcd. Nil means that they are stored in plain text.
	Encryption *encryption.Encryption
}

// storeAs sets the storage format.
func (c *codecs) storeAs(mediaType string) error {
	if mediaType == "" {
		return nil
	}
	info, ok := runtime.SerializerInfoForMediaType(c.factory.SupportedMediaTypes(), mediaType)
	if !ok || !slices.Contains(StorageMediaTypes(), mediaType) {
		return fmt.Errorf("objects cannot be stored as %q; choose one of %v", mediaType, StorageMediaTypes())
	}
	c.stored = info.Serializer
	return nil
}

// interningCodec makes decoded objects share common strings: namespaces, names of field managers, subjects of role bindings.
// Watch caches keep objects as decoded. With tens of thousands of bindings, these strings are a third of all objects that the
// garbage collector visits.
//
// Shared values must not be modified in place. Strings cannot be, and sets of managed fields are only replaced as a whole.
// Objects decoded for a watch cache or a list are only read, so they share maps too.
type interningCodec struct {
	runtime.Codec
	fields   *internedFields
	maps     *internedMaps
	decoders *decoders
}

func (f interningCodec) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	obj, kind, err := f.decoders.decode(f.Codec, data, defaults, into)
	if err == nil {
		f.share(obj)
		if into == nil { // an event; for an update, the caller passes into
			f.shareMaps(obj)
		} else {
			// Internal objects have no kind, but the codec leaves the kind of the stored version in into, because both versions
			// have the same Go type. Without this, every item of a list would contain the kind.
			obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
		}
	}
	return obj, kind, err
}

// shareMaps interns labels, annotations and ConfigMap data of an object that will only be read. A map with one entry takes 336
// bytes, and tens of thousands of objects can have equal ones: the pods of a workload, the ConfigMap in each namespace.
func (f interningCodec) shareMaps(obj runtime.Object) {
	m := metaOf(obj)
	if m == nil {
		return
	}
	m.Labels, m.Annotations = f.maps.intern(m.Labels), f.maps.intern(m.Annotations)
	if c, ok := obj.(*corev1.ConfigMap); ok {
		c.Data = f.maps.intern(c.Data)
	}
	for i := range m.ManagedFields {
		if e := &m.ManagedFields[i]; e.Time != nil && *e.Time == m.CreationTimestamp {
			e.Time = &m.CreationTimestamp
		}
	}
}

// sharingDecoder calls shareMaps for list items, because watch caches are filled from lists.
type sharingDecoder struct {
	etcd3.Decoder
	codec interningCodec
}

func (d sharingDecoder) DecodeListItem(ctx context.Context, data []byte, revision uint64, newItem func() runtime.Object) (runtime.Object, error) {
	obj, err := d.Decoder.DecodeListItem(ctx, data, revision, newItem)
	if err == nil {
		d.codec.shareMaps(obj)
	}
	return obj, err
}

// metaOf returns nil if obj has no ObjectMeta.
func metaOf(obj runtime.Object) *metav1.ObjectMeta {
	with, ok := obj.(metav1.ObjectMetaAccessor)
	if !ok {
		return nil
	}
	m, _ := with.GetObjectMeta().(*metav1.ObjectMeta)
	return m
}

func (f interningCodec) share(obj runtime.Object) {
	m := metaOf(obj)
	if m == nil {
		return
	}
	intern(&m.Namespace)
	for i := range m.ManagedFields {
		e := &m.ManagedFields[i]
		intern(&e.Manager)
		intern(&e.Operation)
		intern(&e.APIVersion)
		intern(&e.FieldsType)
		intern(&e.Subresource)
		e.FieldsV1 = f.fields.intern(e.FieldsV1)
	}
	switch o := obj.(type) {
	case *rbacv1.RoleBinding:
		internBinding(&o.RoleRef, o.Subjects)
	case *rbacv1.ClusterRoleBinding:
		internBinding(&o.RoleRef, o.Subjects)
	}
}

func internBinding(ref *rbacv1.RoleRef, subjects []rbacv1.Subject) {
	intern(&ref.APIGroup)
	intern(&ref.Kind)
	intern(&ref.Name)
	for i := range subjects {
		s := &subjects[i]
		intern(&s.APIGroup)
		intern(&s.Kind)
		intern(&s.Namespace)
	}
}

// intern makes equal strings share their bytes. The runtime drops unused ones.
func intern[S ~string](s *S) {
	if *s != "" {
		*s = unique.Make(*s).Value()
	}
}

// internedFields caches recently decoded sets of managed fields. Objects written by one client often have equal ones.
type internedFields struct {
	seed  maphash.Seed
	known [1 << 10]atomic.Pointer[metav1.FieldsV1]
}

// maxInternedBytes limits internedFields to 1 MiB. Larger sets are rarely equal.
const maxInternedBytes = 1 << 10

func newInternedFields() *internedFields { return &internedFields{seed: maphash.MakeSeed()} }

// intern returns f, or an equal one that was decoded before.
func (s *internedFields) intern(f *metav1.FieldsV1) *metav1.FieldsV1 {
	raw := f.GetRawBytes()
	if len(raw) == 0 || len(raw) > maxInternedBytes {
		return f
	}
	place := &s.known[maphash.Bytes(s.seed, raw)%uint64(len(s.known))]
	if known := place.Load(); known != nil && known.Equal(*f) {
		return known
	}
	place.Store(f)
	return f
}

// internedMaps caches recently decoded maps.
type internedMaps struct {
	seed  maphash.Seed
	known [1 << 8]atomic.Pointer[map[string]string]
}

// maxInternedMapBytes limits internedMaps to 1 MiB.
const maxInternedMapBytes = 4 << 10

func newInternedMaps() *internedMaps { return &internedMaps{seed: maphash.MakeSeed()} }

// intern returns m, or an equal one that was decoded before.
func (s *internedMaps) intern(m map[string]string) map[string]string {
	size := 0
	for k, v := range m {
		size += len(k) + len(v)
	}
	if len(m) == 0 || size > maxInternedMapBytes {
		return m
	}
	place := s.place(m)
	if known := place.Load(); known != nil && maps.Equal(*known, m) {
		return *known
	}
	place.Store(&m)
	return m
}

// place returns the slot for m. Maps with the same hash share a slot.
func (s *internedMaps) place(m map[string]string) *atomic.Pointer[map[string]string] {
	var sum uint64 // sum over all entries, independent of their order
	for k, v := range m {
		sum += maphash.String(s.seed, k) ^ bits.RotateLeft64(maphash.String(s.seed, v), 1)
	}
	return &s.known[sum%uint64(len(s.known))]
}
