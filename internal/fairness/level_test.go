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

// aLevel has so many seats and queues.
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

// get is what a request does: a seat at once, or a place in a queue until it has one or gives up.
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
		t.Error("a request waits for ever")
		return nil, false
	}
}

const modelPatience = 30 * time.Second

// What must hold while many take seats, queue for them, give up and give them back, and limits change meanwhile: no more
// seats are taken than there are, but by who needs more than there are and is alone; who waits is seated when there are
// seats; and at the end nothing is taken and nobody waits.
func TestSeatsAreNeitherLostNorGivenTwice(t *testing.T) {
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
							t.Errorf("%d seats are taken of %d", now, most)
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
				t.Errorf("at the end the state is %#x and %d wait", l.state.Load(), l.waiting)
			}
			for i := range l.queues {
				if q := &l.queues[i]; !q.idle() || q.work != 0 {
					t.Errorf("queue %d at the end: %+v", i, *q)
				}
			}
			if served.Load() == 0 {
				t.Error("nobody was served")
			}
			t.Logf("served %d, refused %d", served.Load(), refused.Load())
		})
	}
}

// With one seat that everybody needs equally long, flows get equal shares of it, however much more one asks; and one
// whose requests take three times as long gets a third of the others' requests.
func TestSharesOfASeat(t *testing.T) {
	l := aLevel(t, 1, fq.QueuingConfig{Name: "shares", DesiredNumQueues: 3, HandSize: 1, QueueLengthLimit: 1000})
	flows := map[int]uint64{} // one for each queue
	for i := uint64(0); len(flows) < 3; i++ {
		flow := flowOf("s", fmt.Sprint(i))
		flows[l.config.Load().dealer.DealIntoHand(flow, nil)[0]] = flow
	}
	if !l.tryTake(1) {
		t.Fatal("no seat")
	}
	var waiters []*waiter
	for at, n := range []int{600, 100, 100} {
		for range n {
			w := &waiter{seats: 1, initial: 1, work: estimatedService, dispatched: make(chan struct{}, 1)}
			if l.enqueue(w, flows[at]) == 0 || w.queueIndex != at {
				t.Fatalf("it is not in queue %d: %+v", at, w)
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
		t.Errorf("served %v of 140, want 60, 60 and 20", served)
	}
}

// Somebody waits for every seat. A later request that needs one takes none, although one is free, until the first gives
// up: then those behind it are seated at once.
func TestWaitingRequestsAreNotOvertaken(t *testing.T) {
	l := aLevel(t, 3, fq.QueuingConfig{Name: "order", DesiredNumQueues: 1, HandSize: 1, QueueLengthLimit: 10})
	if !l.tryTake(2) {
		t.Fatal("no seats")
	}
	wide := &waiter{seats: 3, initial: 3, work: 3 * estimatedService, dispatched: make(chan struct{}, 1)}
	narrow := &waiter{seats: 1, initial: 1, work: estimatedService, dispatched: make(chan struct{}, 1)}
	l.enqueue(wide, 0)
	if l.tryTake(1) {
		t.Error("it overtook")
	}
	if n := l.enqueue(narrow, 0); n != 2 {
		t.Errorf("%d are in the queue, want 2", n)
	}
	select {
	case <-narrow.dispatched:
		t.Error("it overtook in the queue")
	default:
	}
	if !l.cancel(wide) {
		t.Error("it was seated")
	}
	select {
	case <-narrow.dispatched:
	default:
		t.Error("a seat is free, and who is next has none")
	}
}

// costlyContext is a context whose end nobody may wait for.
type costlyContext struct{ context.Context }

func (costlyContext) Done() <-chan struct{} { panic("somebody waits for the deadline") }

func TestQueuedRequestWaitsForTheClientAndNotForTheDeadline(t *testing.T) {
	l := aLevel(t, 1, fq.QueuingConfig{Name: "client", DesiredNumQueues: 1, HandSize: 1, QueueLengthLimit: 10})
	if !l.tryTake(1) {
		t.Fatal("no seat")
	}
	client, leave := context.WithCancel(t.Context())
	w := l.getWaiter()
	w.seats = 1
	l.enqueue(w, 0)
	ctx := &request.Context{Context: client}
	ctx.SetDeadline(time.Now().Add(time.Hour))
	time.AfterFunc(time.Millisecond, leave)
	if w.wait(costlyContext{ctx}, l, time.Now()) || client.Err() == nil || l.waiting != 0 {
		t.Error("it went on waiting, or was seated")
	}
	l.putWaiter(w)
}
