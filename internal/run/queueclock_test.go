package run

import (
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/util/workqueue"
)

func TestQueueClockDelaysMetricsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		ticker := QueueClock.NewTicker(500 * time.Millisecond)
		defer ticker.Stop()
		<-ticker.C()
		if took := time.Since(began); took != queueTick {
			t.Errorf("first tick of a ticker of 500 ms after %s, want %s", took, queueTick)
		}

		queue := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[string]{Clock: QueueClock})
		defer queue.ShutDown()
		began = time.Now()
		queue.AddAfter("item", 20*time.Millisecond)
		item, _ := queue.Get()
		queue.Done(item)
		if took := time.Since(began); took != 20*time.Millisecond {
			t.Errorf("an item with a delay of 20 ms arrived after %s", took)
		}
	})
}
