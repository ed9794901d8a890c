package coreapi

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"portico.dev/internal/coreapi/encryption"
)

// StorageMediaTypes are the forms in which objects can be stored.
func StorageMediaTypes() []string {
	return []string{runtime.ContentTypeProtobuf, runtime.ContentTypeJSON, runtime.ContentTypeYAML}
}

// Storage is how objects are stored. The zero value stores protobuf in the clear and compacts nothing.
type Storage struct {
	// MediaType is one of StorageMediaTypes. Default protobuf. What is stored in another form already is read all the
	// same, and takes on this one when it is next written. Custom resources and their definitions are JSON always.
	MediaType string
	// CompactionInterval is how often old versions are removed, each at an age of one to two intervals. Zero: never, and
	// etcd grows until it is full.
	CompactionInterval time.Duration
	// Encryption stands between objects and etcd. Nil: they are stored in the clear.
	Encryption *encryption.Encryption
}

// storeAs makes c encode what is stored in another form.
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
