package coreapi

import (
	"runtime"
	"sync"
	"sync/atomic"

	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// decoders decode objects on goroutines with grown stacks while watch caches are filled. k8s.io/apiserver decodes each object
// of a watch cache on a new goroutine. Its stack grows by copying, which takes nearly as long as the decoding. At other times
// callers decode on their own stacks.
type decoders struct {
	running atomic.Bool
	jobs    chan *decoding
	stopped chan struct{}
}

// A decoding is a request to decode one object.
type decoding struct {
	codec    kruntime.Codec
	data     []byte
	defaults *schema.GroupVersionKind
	into     kruntime.Object

	done chan struct{} // closed when obj, kind and err are set
	obj  kruntime.Object
	kind *schema.GroupVersionKind
	err  error
}

func newDecoders() *decoders {
	return &decoders{jobs: make(chan *decoding), stopped: make(chan struct{})}
}

// start starts the goroutines. It must be called only once. stop waits until they have ended.
func (d *decoders) start() (stop func()) {
	var working sync.WaitGroup
	for range runtime.NumCPU() {
		working.Go(d.work)
	}
	d.running.Store(true)
	return sync.OnceFunc(func() {
		d.running.Store(false)
		close(d.stopped)
		working.Wait()
	})
}

func (d *decoders) work() {
	for {
		select {
		case <-d.stopped:
			return
		case j := <-d.jobs:
			j.obj, j.kind, j.err = j.codec.Decode(j.data, j.defaults, j.into)
			close(j.done)
		}
	}
}

func (d *decoders) decode(codec kruntime.Codec, data []byte, defaults *schema.GroupVersionKind, into kruntime.Object) (kruntime.Object, *schema.GroupVersionKind, error) {
	if !d.running.Load() {
		return codec.Decode(data, defaults, into)
	}
	j := &decoding{codec: codec, data: data, defaults: defaults, into: into, done: make(chan struct{})}
	select {
	case d.jobs <- j:
		<-j.done
		return j.obj, j.kind, j.err
	case <-d.stopped:
		return codec.Decode(data, defaults, into)
	}
}
