// Package lastknown stores the latest documents of extension servers in the namespace of a gateway.
package lastknown

import (
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/retry"

	"portico.dev/internal/respond"
)

// ConfigMaps accesses the ConfigMaps of a namespace. Typed clients of ConfigMaps implement it.
type ConfigMaps interface {
	Get(ctx context.Context, name string, o metav1.GetOptions) (*corev1.ConfigMap, error)
	List(context.Context, metav1.ListOptions) (*corev1.ConfigMapList, error)
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
	Create(context.Context, *corev1.ConfigMap, metav1.CreateOptions) (*corev1.ConfigMap, error)
	Update(context.Context, *corev1.ConfigMap, metav1.UpdateOptions) (*corev1.ConfigMap, error)
	Delete(ctx context.Context, name string, o metav1.DeleteOptions) error
}

// Storage stores the latest documents of extension servers in ConfigMaps of the gateway's namespace, one for each
// APIService: its discovery document under one key, its OpenAPI document under another. A replica writes a document
// only if it differs from the stored one, so that only one of the replicas that poll the same document writes it.
type Storage struct {
	// Client accesses the namespace of the gateway.
	Client ConfigMaps
	// Key is Discovery or OpenAPI, the key in binaryData.
	Key string
	// Packed is set if values are already compressed.
	Packed bool
	// Logger receives warnings about documents that are too large to be stored. Only Save needs it.
	Logger *zap.Logger
}

// The documents of an APIService.
const (
	Discovery = "discovery"
	OpenAPI   = "openapi"
)

const (
	documentsLabel       = "gateway.portico.dev/documents"
	apiServiceAnnotation = "gateway.portico.dev/apiservice"
	// maxStored limits the data of one ConfigMap. The API server accepts a mebibyte.
	maxStored = 1000 << 10
)

// Name returns the name of the ConfigMap of an APIService, or of "<APIService>/<backend>" of an APIRoute. Names that
// are too long with a prefix, or are not valid names of objects, are hashed.
func Name(apiService string) string {
	const prefix = "last-known."
	if name := prefix + apiService; len(name) <= 253 && !strings.Contains(apiService, "/") {
		return name
	}
	sum := sha256.Sum256([]byte(apiService))
	return prefix + hex.EncodeToString(sum[:16])
}

// Load returns all stored values.
func (s Storage) Load(ctx context.Context) (map[string][]byte, error) {
	list, err := s.Client.List(ctx, metav1.ListOptions{LabelSelector: documentsLabel})
	if err != nil {
		return nil, fmt.Errorf("list last-known documents: %w", err)
	}
	out := map[string][]byte{}
	for i := range list.Items {
		if name, value, ok := s.read(&list.Items[i]); ok {
			out[name] = value
		}
	}
	return out, nil
}

// read returns the value under the key in a ConfigMap. It ignores a value that cannot be unpacked.
func (s Storage) read(cm *corev1.ConfigMap) (apiService string, value []byte, ok bool) {
	stored, ok := cm.BinaryData[s.Key]
	if !ok || cm.Annotations[apiServiceAnnotation] == "" {
		return "", nil, false
	}
	if !s.Packed {
		var err error
		if stored, err = unpack(stored); err != nil {
			return "", nil, false
		}
	}
	return cm.Annotations[apiServiceAnnotation], stored, true
}

// Save stores a value if it differs from the stored one.
func (s Storage) Save(ctx context.Context, apiService string, value []byte) error {
	if !s.Packed {
		var err error
		if value, err = pack(value); err != nil {
			return err
		}
	}
	err := s.change(ctx, apiService, func(cm *corev1.ConfigMap) error {
		cm.BinaryData[s.Key] = value
		if size(cm) > maxStored && s.Key == Discovery {
			delete(cm.BinaryData, OpenAPI) // needed by fewer clients
		}
		if size(cm) > maxStored {
			return fmt.Errorf("%w: they have %d bytes, and a ConfigMap holds %d", errTooLarge, size(cm), maxStored)
		}
		return nil
	})
	if errors.Is(err, errTooLarge) { // a retry would not help
		s.Logger.Warn("last-known documents are too large to be stored; they are lost when this process exits", zap.String("apiservice", apiService), zap.String("document", s.Key), zap.Error(err))
		return nil
	}
	return err
}

var errTooLarge = errors.New("the documents of the APIService are too large to be stored")

func size(cm *corev1.ConfigMap) int {
	n := 0
	for _, value := range cm.BinaryData {
		n += len(value)
	}
	return n
}

// Delete removes a value, and with the last one the ConfigMap.
func (s Storage) Delete(ctx context.Context, apiService string) error {
	return s.change(ctx, apiService, func(cm *corev1.ConfigMap) error {
		delete(cm.BinaryData, s.Key)
		return nil
	})
}

// change applies a change, and writes the ConfigMap if it differs.
func (s Storage) change(ctx context.Context, apiService string, change func(*corev1.ConfigMap) error) error {
	name := Name(apiService)
	return retry.OnError(retry.DefaultRetry, Conflicts, func() error {
		before, err := s.Client.Get(ctx, name, metav1.GetOptions{})
		absent := apierrors.IsNotFound(err)
		if err != nil && !absent {
			return err
		}
		after := before.DeepCopy()
		if absent {
			after = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
				Name: name, Labels: map[string]string{documentsLabel: ""}, Annotations: map[string]string{apiServiceAnnotation: apiService},
			}}
		}
		if after.BinaryData == nil {
			after.BinaryData = map[string][]byte{}
		}
		if err := change(after); err != nil {
			return err
		}
		switch {
		case absent && len(after.BinaryData) == 0:
			return nil
		case absent:
			_, err = s.Client.Create(ctx, after, metav1.CreateOptions{})
		case len(after.BinaryData) == 0:
			err = s.Client.Delete(ctx, name, metav1.DeleteOptions{Preconditions: metav1.NewRVDeletionPrecondition(before.ResourceVersion).Preconditions})
			if apierrors.IsNotFound(err) {
				err = nil
			}
		case !equality.Semantic.DeepEqual(before.BinaryData, after.BinaryData):
			_, err = s.Client.Update(ctx, after, metav1.UpdateOptions{})
		}
		return err
	})
}

// Conflicts reports whether another client has written the same object in between.
func Conflicts(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }

// Follow calls saved with every value that a replica stores, until ctx ends.
func (s Storage) Follow(ctx context.Context, saved func(name string, value []byte)) {
	informer := cache.NewSharedIndexInformer(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.LabelSelector = documentsLabel
			return s.Client.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector = documentsLabel
			return s.Client.Watch(ctx, o)
		},
	}, &corev1.ConfigMap{}, 0, cache.Indexers{})
	heard := func(o any) {
		if cm, ok := o.(*corev1.ConfigMap); ok {
			if name, value, ok := s.read(cm); ok {
				saved(name, value)
			}
		}
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: heard, UpdateFunc: func(_, o any) { heard(o) }})
	if err != nil {
		return // unreachable: the informer has not been started, and so has not stopped
	}
	informer.RunWithContext(ctx)
}

func pack(value []byte) ([]byte, error) {
	packed, err := respond.Pack(value, gzip.BestCompression)
	if err != nil {
		return nil, fmt.Errorf("compress: %w", err)
	}
	return packed, nil
}

func unpack(packed []byte) ([]byte, error) {
	r, err := respond.Unpack(packed)
	if err != nil {
		return nil, fmt.Errorf("uncompress: %w", err)
	}
	return io.ReadAll(r) // bounded by Unpack
}
