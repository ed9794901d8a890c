package coreapi

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The result equals the codec's before, during and after the decoders run, and while they stop.
func TestDecodersMatchTheCodec(t *testing.T) {
	shared, plain := both(t, corev1.SchemeGroupVersion)
	check := func(n int) {
		o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: fmt.Sprint("o-", n)}, Data: map[string]string{"n": fmt.Sprint(n)}}
		data, err := kruntime.Encode(plain, o)
		if err != nil {
			t.Error(err)
			return
		}
		want, wantErr := kruntime.Decode(plain, data)
		got, err := kruntime.Decode(shared, data)
		if err != nil || wantErr != nil || !equality.Semantic.DeepEqual(got, want) {
			t.Errorf("Decode = %v, %v, want %v, %v as from the plain codec", got, err, want, wantErr)
		}
		into := &corev1.ConfigMap{}
		if got, _, err := shared.Decode(data, nil, into); err != nil || got != kruntime.Object(into) || into.Name != o.Name {
			t.Errorf("Decode into an object = %v, %v, want the object with the name %q", got, err, o.Name)
		}
		if _, err := kruntime.Decode(shared, data[:len(data)/2]); err == nil {
			t.Error("Decode of half an object returned no error, want an error")
		}
	}
	check(0)
	stop := shared.decoders.start()
	var all sync.WaitGroup
	half := make(chan struct{})
	for i := range 8 {
		all.Go(func() {
			for n := range 200 {
				if i == 0 && n == 100 {
					close(half)
				}
				check(1000*i + n)
			}
		})
	}
	<-half
	stop()
	stop() // a second call has no effect
	all.Wait()
	check(1)
}

// gatedCodec decodes after its gate opens.
type gatedCodec struct {
	kruntime.Codec
	gate    chan struct{}
	running atomic.Int32
}

func (c *gatedCodec) Decode(_ []byte, _ *schema.GroupVersionKind, into kruntime.Object) (kruntime.Object, *schema.GroupVersionKind, error) {
	c.running.Add(1)
	<-c.gate
	return into, nil, nil
}

func TestDecodingUsesOneWorkerPerProcessor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, c := newDecoders(), &gatedCodec{gate: make(chan struct{})}
		stop := d.start()
		var all sync.WaitGroup
		for range runtime.NumCPU() + 3 {
			all.Go(func() {
				if _, _, err := d.decode(c, nil, nil, &corev1.Pod{}); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		if n := c.running.Load(); int(n) != runtime.NumCPU() {
			t.Errorf("%d objects are decoded at once, want %d", n, runtime.NumCPU())
		}
		close(c.gate)
		all.Wait()
		stop()
		if _, _, err := d.decode(c, nil, nil, &corev1.Pod{}); err != nil || int(c.running.Load()) != runtime.NumCPU()+4 {
			t.Errorf("decode after stop: %v, %d decoded, want no error and %d", err, c.running.Load(), runtime.NumCPU()+4)
		}
	})
}
