// Package clientstest provides the client for tests that run informers.
package clientstest

import (
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/testing"
)

// NewClientset returns client-go's fake with these objects. It copies each object for each watch, as a real server does.
// client-go's fake passes the stored object to every watch, and informers modify the objects they receive: their transforms
// drop fields.
func NewClientset(objects ...runtime.Object) *fake.Clientset {
	client := fake.NewClientset(objects...)
	client.PrependWatchReactor("*", func(action testing.Action) (bool, watch.Interface, error) {
		var options metav1.ListOptions
		if watched, ok := action.(testing.WatchActionImpl); ok {
			options = watched.ListOptions
		}
		events, err := client.Tracker().Watch(action.GetResource(), action.GetNamespace(), options)
		if err != nil {
			return true, nil, err
		}
		return true, newCopies(events), nil
	})
	return client
}

// copies is a watch that copies objects. The goroutine of k8s.io/apimachinery's watch.Filter would leak if the watch is stopped
// while an event waits to be received.
type copies struct {
	source  watch.Interface
	events  chan watch.Event
	stop    sync.Once
	stopped chan struct{}
}

func newCopies(of watch.Interface) *copies {
	c := &copies{source: of, events: make(chan watch.Event), stopped: make(chan struct{})}
	go c.run() // until Stop
	return c
}

func (c *copies) run() {
	defer close(c.events)
	for e := range c.source.ResultChan() {
		e.Object = e.Object.DeepCopyObject()
		select {
		case c.events <- e:
		case <-c.stopped:
			return
		}
	}
}

// ResultChan implements watch.Interface.
func (c *copies) ResultChan() <-chan watch.Event { return c.events }

// Stop implements watch.Interface.
func (c *copies) Stop() {
	c.stop.Do(func() { close(c.stopped) })
	c.source.Stop()
}
