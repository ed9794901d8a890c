package fairness

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	fq "k8s.io/apiserver/pkg/util/flowcontrol/fairqueuing"

	"portico.dev/internal/request"
)

// aLevel returns a level with the given seats and queues.
func aLevel(t *testing.T, seats int64, c fq.QueuingConfig) *level {
	t.Helper()
	f, err := newQueueConfig(c)
	if err != nil {
		t.Fatal(err)
	}
	l := &level{name: c.Name}
	l.configure(f, seats)
	return l
}

// get requests a seat. The request waits in a queue until it has one or gives up.
func (l *level) get(t *testing.T, seats int64, flow uint64, patience time.Duration) (w *waiter, in bool) {
	if l.tryTake(seats) {
		return nil, true
	}
	w = &waiter{schema: "s", seats: seats, initial: float64(seats), work: float64(seats) * estimatedService, dispatched: make(chan struct{}, 1)}
	if l.enqueue(w, flow) == 0 {
		return nil, false
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-w.dispatched:
		return w, true
	case <-timer.C:
		return w, !l.cancel(w)
	case <-time.After(modelPatience):
		t.Error("request waits without end, want a seat or a refusal")
		return nil, false
	}
}

const modelPatience = 30 * time.Second

// Invariants during concurrent requests, cancellations, releases and changes of limits: the taken seats never exceed the limit, except
// for a single request that needs more. Waiting requests get free seats. At the end no seat is taken and no request waits.
func TestSeatsAreNeitherLostNorAssignedTwice(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	const most = 12
	for situation, test := range map[string]struct {
		widest   int
		patience time.Duration
		changes  bool
	}{
		"one seat each":                        {1, modelPatience, false},
		"several seats each":                   {5, modelPatience, false},
		"some need more than there are":        {most + 4, modelPatience, false},
		"some give up":                         {3, 50 * time.Microsecond, false},
		"the limit and the queues change":      {3, modelPatience, true},
		"they change, and some give up":        {most + 4, 50 * time.Microsecond, true},
		"hardly anybody waits, and all may do": {1, time.Nanosecond, false},
	} {
		t.Run(situation, func(t *testing.T) {
			config := fq.QueuingConfig{Name: "model", DesiredNumQueues: 8, HandSize: 3, QueueLengthLimit: 4}
			l := aLevel(t, most, config)
			var taken, served, refused atomic.Int64
			var all sync.WaitGroup
			for n := range 16 {
				all.Go(func() {
					random := rand.New(rand.NewPCG(uint64(n), 1))
					for range 400 {
						seats := int64(1 + random.IntN(test.widest))
						w, in := l.get(t, seats, flowOf("s", fmt.Sprint(random.IntN(20))), test.patience)
						if !in {
							refused.Add(1)
							continue
						}
						if now := taken.Add(seats); now > most && now != seats {
							t.Errorf("%d seats are taken, want at most %d", now, most)
						}
						served.Add(1)
						if random.IntN(4) == 0 {
							<-time.After(time.Duration(random.IntN(100)) * time.Microsecond)
						}
						taken.Add(-seats)
						if w != nil {
							l.adjustService(w, random.Float64()/100)
						}
						l.release(seats)
					}
				})
			}
			stop, stopped := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(stopped)
				for i := int64(0); test.changes; i++ {
					select {
					case <-stop:
						return
					case <-time.After(50 * time.Microsecond):
					}
					config.DesiredNumQueues = 3 + int(i%9)
					f, err := newQueueConfig(config)
					if err != nil {
						t.Error(err)
					}
					l.configure(f, i%(most+1))
				}
			}()
			all.Wait()
			close(stop)
			<-stopped
			if l.state.Load() != 0 || l.waiting != 0 {
				t.Errorf("state at the end = %#x with %d waiting requests, want 0", l.state.Load(), l.waiting)
			}
			for i := range l.queues {
				if q := &l.queues[i]; !q.idle() || q.work != 0 {
					t.Errorf("queue %d at the end = %+v, want it idle", i, *q)
				}
			}
			if served.Load() == 0 {
				t.Errorf("%d requests were served, want more than 0", served.Load())
			}
			t.Logf("served %d, refused %d", served.Load(), refused.Load())
		})
	}
}

// Flows share a single seat equally if their requests take equally long, independent of their number of requests. A flow whose
// requests take three times as long gets a third of the number.
func TestFlowsShareSeatEqually(t *testing.T) {
	l := aLevel(t, 1, fq.QueuingConfig{Name: "shares", DesiredNumQueues: 3, HandSize: 1, QueueLengthLimit: 1000})
	flows := map[int]uint64{} // one for each queue
	for i := uint64(0); len(flows) < 3; i++ {
		flow := flowOf("s", fmt.Sprint(i))
		flows[l.config.Load().dealer.DealIntoHand(flow, nil)[0]] = flow
	}
	if !l.tryTake(1) {
		t.Fatal("tryTake(1) on an idle level = false, want true")
	}
	var waiters []*waiter
	for at, n := range []int{600, 100, 100} {
		for range n {
			w := &waiter{seats: 1, initial: 1, work: estimatedService, dispatched: make(chan struct{}, 1)}
			if l.enqueue(w, flows[at]) == 0 || w.queueIndex != at {
				t.Fatalf("waiter = %+v, want it in queue %d", w, at)
			}
			waiters = append(waiters, w)
		}
	}
	seconds := []float64{0.010, 0.010, 0.030}
	l.release(1)
	served := [3]int{}
	for range 140 {
		for i, w := range waiters {
			select {
			case <-w.dispatched:
				waiters = append(waiters[:i], waiters[i+1:]...)
				served[w.queueIndex]++
				l.adjustService(w, seconds[w.queueIndex])
				l.release(1)
			default:
				continue
			}
			break
		}
	}
	if served[0] < 58 || served[0] > 62 || served[1] < 58 || served[1] > 62 || served[2] < 18 || served[2] > 22 {
		t.Errorf("requests served = %v of 140, want 60, 60 and 20", served)
	}
}

// A waiting request needs all seats. A later request for one seat waits although a seat is free, until the first one gives up. The
// requests behind it then get their seats at once.
func TestWaitingRequestsAreNotOvertaken(t *testing.T) {
	l := aLevel(t, 3, fq.QueuingConfig{Name: "order", DesiredNumQueues: 1, HandSize: 1, QueueLengthLimit: 10})
	if !l.tryTake(2) {
		t.Fatal("tryTake(2) on an idle level = false, want true")
	}
	wide := &waiter{seats: 3, initial: 3, work: 3 * estimatedService, dispatched: make(chan struct{}, 1)}
	narrow := &waiter{seats: 1, initial: 1, work: estimatedService, dispatched: make(chan struct{}, 1)}
	l.enqueue(wide, 0)
	if l.tryTake(1) {
		t.Error("tryTake(1) while a wide request waits = true, want false")
	}
	if n := l.enqueue(narrow, 0); n != 2 {
		t.Errorf("%d requests in the queue, want 2", n)
	}
	select {
	case <-narrow.dispatched:
		t.Error("narrow request was seated before the wide one, want it to wait")
	default:
	}
	if !l.cancel(wide) {
		t.Error("cancel of the wide request = false, want true")
	}
	select {
	case <-narrow.dispatched:
	default:
		t.Error("narrow request waits with a free seat, want it seated")
	}
}

// costlyContext is a context whose Done must not be called.
type costlyContext struct{ context.Context }

func (costlyContext) Done() <-chan struct{} { panic("somebody waits for the deadline") }

func TestQueuedRequestEndsWithItsClient(t *testing.T) {
	l := aLevel(t, 1, fq.QueuingConfig{Name: "client", DesiredNumQueues: 1, HandSize: 1, QueueLengthLimit: 10})
	if !l.tryTake(1) {
		t.Fatal("tryTake(1) on an idle level = false, want true")
	}
	client, leave := context.WithCancel(t.Context())
	w := l.getWaiter()
	w.seats = 1
	l.enqueue(w, 0)
	ctx := &request.Context{Context: client}
	ctx.SetDeadline(time.Now().Add(time.Hour))
	time.AfterFunc(time.Millisecond, leave)
	if w.wait(costlyContext{ctx}, l, time.Now()) || client.Err() == nil || l.waiting != 0 {
		t.Errorf("wait after the client disconnected: %d requests wait, want a refusal and none waiting", l.waiting)
	}
	l.putWaiter(w)
}
