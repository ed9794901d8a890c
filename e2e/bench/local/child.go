package local

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	"portico.dev/e2e/environment"
	"portico.dev/e2e/measure"
)

// Role is the role in which this program is started to run the chain without a listener.
const Role = "local"

// question requests one operation for a duration.
type question struct {
	Layer   string
	Kind    kind
	Clients int
	Accept  string
	For     time.Duration
}

// result is the cost of the operation. N is the number of requests, or of delivered events.
type result struct {
	N   int
	CPU time.Duration
	Err string
}

// told is the configuration of the child, sent on the first line.
type told struct {
	Dir  string
	Many int
}

// Serve runs the child. It answers questions until standard input ends.
func Serve() error {
	lines := bufio.NewScanner(os.Stdin)
	if !lines.Scan() {
		return errors.New("no orders")
	}
	var t told
	if err := json.Unmarshal(lines.Bytes(), &t); err != nil {
		return fmt.Errorf("read orders: %w", err)
	}
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard) // the terminal shows the progress
	h, err := openChainServer(t.Dir)
	if err != nil {
		return err
	}
	if err := h.fill(t.Many); err != nil {
		return errors.Join(err, h.end())
	}
	fmt.Println("ready")
	for lines.Scan() {
		var q question
		if err := json.Unmarshal(lines.Bytes(), &q); err != nil {
			return errors.Join(err, h.end())
		}
		r, err := h.answer(&q)
		if err != nil {
			r.Err = err.Error()
		}
		line, err := json.Marshal(r)
		if err != nil {
			return errors.Join(err, h.end())
		}
		fmt.Println(string(line))
	}
	h.layers[libraryLayer].(*library).close()
	return h.end()
}

// fill creates the objects to read, below the prefixes of the library layer and of the other layers.
func (h *chainServer) fill(many int) error {
	for _, l := range []string{libraryLayer, handlerLayer} {
		for ns, count := range map[string]int{fewIn: few, manyIn: many} {
			if err := environment.Concurrency(context.Background(), 32, 0, count, func(ctx context.Context, n int) error {
				return h.layers[l].create(ctx, ns, nameOf(n))
			}); err != nil {
				return fmt.Errorf("%s: %w", l, err)
			}
		}
	}
	return nil
}

func (h *chainServer) answer(q *question) (result, error) {
	l, ok := h.layers[q.Layer]
	if !ok {
		return result{}, fmt.Errorf("no layer %q", q.Layer)
	}
	ctx, cancel := context.WithTimeout(context.Background(), q.For+time.Minute)
	defer cancel()
	if q.Kind == watching {
		return watchFor(ctx, l, q)
	}
	do := h.operation(l, q)
	if err := do(ctx); err != nil { // the first request is more expensive
		return result{}, err
	}
	before, err := measure.CPU(os.Getpid())
	if err != nil {
		return result{}, err
	}
	n, err := repeat(ctx, q, do)
	if err != nil {
		return result{}, err
	}
	after, err := measure.CPU(os.Getpid())
	return result{N: n, CPU: after - before}, err
}

func repeat(ctx context.Context, q *question, do func(context.Context) error) (int, error) {
	until := time.Now().Add(q.For)
	var asking sync.WaitGroup
	counts, errs := make([]int, q.Clients), make([]error, q.Clients)
	for i := range q.Clients {
		asking.Go(func() {
			for counts[i] == 0 || time.Now().Before(until) {
				if errs[i] = do(ctx); errs[i] != nil {
					return
				}
				counts[i]++
			}
		})
	}
	asking.Wait()
	total := 0
	for _, n := range counts {
		total += n
	}
	return total, errors.Join(errs...)
}

func (h *chainServer) operation(l layer, q *question) func(context.Context) error {
	switch q.Kind {
	case creating:
		return func(ctx context.Context) error { return l.create(ctx, madeIn, nameOf(int(h.made.Add(1)))) }
	case getting:
		return func(ctx context.Context) error { return l.get(ctx, fewIn, first, "") }
	case gettingCached:
		return func(ctx context.Context) error { return l.get(ctx, fewIn, first, "0") }
	case listing:
		return func(ctx context.Context) error { return l.list(ctx, fewIn, jsonType) }
	case listingAll:
		return func(ctx context.Context) error { return l.list(ctx, manyIn, q.Accept) }
	}
	return l.empty
}

// touchEvery is the interval of changes while watches are open.
const touchEvery = 20 * time.Millisecond

// watchFor opens watches, changes one object repeatedly, and counts the delivered events.
func watchFor(ctx context.Context, l layer, q *question) (result, error) {
	watching, end := context.WithCancel(ctx)
	defer end()
	var heard atomic.Int64
	var open, ended sync.WaitGroup
	errs := make([]error, q.Clients)
	for i := range q.Clients {
		open.Add(1)
		ended.Go(func() {
			once := sync.OnceFunc(open.Done)
			defer once()
			errs[i] = l.watch(watching, fewIn, once, func() { heard.Add(1) })
		})
	}
	open.Wait()
	before, err := measure.CPU(os.Getpid())
	if err != nil {
		return result{}, err
	}
	err = touchFor(ctx, q.For, func(ctx context.Context, sent string) error { return l.touch(ctx, fewIn, first, sent) })
	after, failed := measure.CPU(os.Getpid())
	n := int(heard.Load())
	end()
	ended.Wait()
	if n == 0 && err == nil {
		err = errors.New("no event was delivered")
	}
	return result{N: n, CPU: after - before}, errors.Join(append(errs, err, failed)...)
}

// touchFor changes an object repeatedly. It writes the current time to the object.
func touchFor(ctx context.Context, d time.Duration, touch func(ctx context.Context, sent string) error) error {
	ticker := time.NewTicker(touchEvery)
	defer ticker.Stop()
	for until := time.Now().Add(d); time.Now().Before(until); {
		if err := touch(ctx, strconv.FormatInt(time.Now().UnixNano(), 10)); err != nil {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
