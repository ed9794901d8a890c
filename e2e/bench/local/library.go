package local

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/watch"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/apiserver/pkg/storage/names"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"portico.dev/internal/store"
)

// library is the generic registry store of k8s.io/apiserver over Portico's etcd, with a watch cache.
type library struct {
	store *registry.Store
	close func()
}

var configMaps = schema.GroupResource{Resource: "configmaps"}

func openLibrary(s *store.Store) (*library, error) {
	scheme := runtime.NewScheme()
	internal := schema.GroupVersion{Version: runtime.APIVersionInternal}
	if err := corev1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	scheme.AddKnownTypes(internal, &corev1.ConfigMap{}, &corev1.ConfigMapList{})
	codecs := serializer.NewCodecFactory(scheme)
	info, _ := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	codec := codecs.CodecForVersions(info.Serializer, codecs.UniversalDeserializer(), corev1.SchemeGroupVersion, internal)

	l := &library{}
	strategy := plain{scheme, names.SimpleNameGenerator}
	l.store = &registry.Store{
		NewFunc:                  func() runtime.Object { return &corev1.ConfigMap{} },
		NewListFunc:              func() runtime.Object { return &corev1.ConfigMapList{} },
		DefaultQualifiedResource: configMaps, SingularQualifiedResource: schema.GroupResource{Resource: "configmap"},
		CreateStrategy: strategy, UpdateStrategy: strategy, DeleteStrategy: strategy,
		TableConvertor: rest.NewDefaultTableConvertor(configMaps),
	}
	options := generic.RESTOptions{
		StorageConfig: storagebackend.NewDefaultConfig("/bench", codec).ForResource(configMaps),
		Decorator:     l.decorate(s), ResourcePrefix: "/configmaps",
	}
	if err := l.store.CompleteWithOptions(&generic.StoreOptions{RESTOptions: options, AttrFunc: storage.DefaultNamespaceScopedAttr}); err != nil {
		return nil, fmt.Errorf("registry store: %w", err)
	}
	return l, nil
}

// decorate returns the same storage that the local groups use: one etcd client and a watch cache.
func (l *library) decorate(s *store.Store) generic.StorageDecorator {
	return func(config *storagebackend.ConfigForResource, prefix string, keyOf func(runtime.Object) (string, error), newFunc, newList func() runtime.Object,
		attributes storage.AttrFunc, triggers storage.IndexerFuncs, indexers *cache.Indexers,
	) (storage.Interface, factory.DestroyFunc, error) {
		versioner := storage.APIObjectVersioner{}
		compactor := etcd3.NewCompactor(s.Client().Client, 0, clock.RealClock{}, nil)
		raw, err := etcd3.New(s.Client(), compactor, config.Codec, newFunc, newList, config.Prefix, prefix, config.GroupResource,
			identity.NewEncryptCheckTransformer(), config.LeaseManagerConfig, etcd3.NewDefaultDecoder(config.Codec, versioner), versioner)
		if err != nil {
			return nil, nil, err
		}
		watched, err := cacher.NewCacherFromConfig(cacher.Config{
			Storage: raw, Versioner: versioner, GroupResource: config.GroupResource, EventsHistoryWindow: config.EventsHistoryWindow,
			ResourcePrefix: prefix, KeyFunc: keyOf, NewFunc: newFunc, NewListFunc: newList, GetAttrsFunc: attributes,
			IndexerFuncs: triggers, Indexers: indexers, Codec: config.Codec,
		})
		if err != nil {
			return nil, nil, err
		}
		front := cacher.NewCacheDelegator(watched, raw)
		l.close = func() {
			front.Stop()
			watched.Stop()
			raw.Close()
			compactor.Stop()
		}
		return front, l.close, nil
	}
}

func (l *library) context(ctx context.Context, ns string) context.Context {
	return apirequest.WithRequestInfo(apirequest.WithNamespace(ctx, ns), &apirequest.RequestInfo{
		IsResourceRequest: true, APIVersion: "v1", Resource: "configmaps", Namespace: ns,
	})
}

func (l *library) create(ctx context.Context, ns, name string) error {
	_, err := l.store.Create(l.context(ctx, ns), newConfigMap(ns, name), rest.ValidateAllObjectFunc, &metav1.CreateOptions{})
	return err
}

func (l *library) get(ctx context.Context, ns, name, version string) error {
	_, err := l.store.Get(l.context(ctx, ns), name, &metav1.GetOptions{ResourceVersion: version})
	return err
}

func (l *library) list(ctx context.Context, ns, _ string) error {
	_, err := l.store.List(l.context(ctx, ns), &metainternalversion.ListOptions{})
	return err
}

func (l *library) empty(context.Context) error { return nil }

// touch changes an annotation, which causes an event for the watches.
func (l *library) touch(ctx context.Context, ns, name, with string) error {
	update := rest.DefaultUpdatedObjectInfo(nil, func(_ context.Context, _, old runtime.Object) (runtime.Object, error) {
		c := old.DeepCopyObject().(*corev1.ConfigMap)
		c.Annotations = map[string]string{"sent": with}
		return c, nil
	})
	_, _, err := l.store.Update(l.context(ctx, ns), name, update, rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{})
	return err
}

func (l *library) watch(ctx context.Context, ns string, opened func(), heard func()) error {
	w, err := l.store.Watch(l.context(ctx, ns), &metainternalversion.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", first)})
	if err != nil {
		return err
	}
	defer w.Stop()
	opened()
	for {
		select {
		case <-ctx.Done():
			return nil
		case event, open := <-w.ResultChan():
			if !open {
				return fmt.Errorf("the watch ended")
			}
			if event.Type == watch.Modified {
				heard()
			}
		}
	}
}

// plain is the minimal strategy of a kind.
type plain struct {
	runtime.ObjectTyper
	names.NameGenerator
}

func (plain) NamespaceScoped() bool                                            { return true }
func (plain) PrepareForCreate(context.Context, runtime.Object)                 {}
func (plain) PrepareForUpdate(context.Context, runtime.Object, runtime.Object) {}
func (plain) Validate(context.Context, runtime.Object) field.ErrorList         { return nil }
func (plain) ValidateUpdate(context.Context, runtime.Object, runtime.Object) field.ErrorList {
	return nil
}
func (plain) WarningsOnCreate(context.Context, runtime.Object) []string                 { return nil }
func (plain) WarningsOnUpdate(context.Context, runtime.Object, runtime.Object) []string { return nil }
func (plain) AllowCreateOnUpdate(context.Context) bool                                  { return false }
func (plain) AllowUnconditionalUpdate(context.Context) bool                             { return true }
func (plain) Canonicalize(runtime.Object)                                               {}
