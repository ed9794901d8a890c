package attacks

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	bench "portico.dev/e2e/environment"
	"portico.dev/e2e/measure"
)

const (
	// each is the interval of the bystander's requests over each version of HTTP, independent of earlier responses.
	each = 20 * time.Millisecond
	// unanswered is the maximum number of pending requests; further requests count as failures.
	unanswered = 100
	// tooLate is the timeout of a request.
	tooLate = 10 * time.Second
)

// Latencies are the bystander's measurements of one period.
type Latencies struct {
	Requests int           `json:"requests"`
	Failures int           `json:"failures"`
	Reasons  []string      `json:"reasons,omitempty"`
	P50      time.Duration `json:"p50"`
	P99      time.Duration `json:"p99"`
	WatchP99 time.Duration `json:"watchP99"`
	Events   int           `json:"events"`
}

// Bystander is the bystander's result during an attack.
type Bystander struct {
	During Latencies `json:"bystander"`
}

// bystander is a client with normal requests: a GET of a proxied object over HTTP/2 and one over HTTP/1.1 at a fixed rate, each on a
// connection that it keeps, and a watch.
type bystander struct {
	server *bench.Server
	stop   context.CancelFunc
	done   sync.WaitGroup

	mu      sync.Mutex // guards the following fields
	took    []time.Duration
	lag     []time.Duration
	reasons []string
	failed  int
	waiting map[*http.Client]map[time.Time]bool // requests that are under way, by when they were due
	event   time.Time                           // of the watch, the last one
}

func newBystander(ctx context.Context, s *bench.Server) (*bystander, error) {
	ctx, stop := context.WithCancel(ctx)
	b := &bystander{server: s, stop: stop, waiting: map[*http.Client]map[time.Time]bool{}}
	for _, http2 := range []bool{true, false} {
		asking, err := bench.NewClient(s, http2)
		if err != nil {
			stop()
			return nil, err
		}
		b.waiting[asking] = map[time.Time]bool{}
		b.done.Go(func() {
			b.ask(ctx, asking)
			asking.CloseIdleConnections()
		})
	}
	watching, err := bench.NewClient(s, true)
	if err != nil {
		stop()
		return nil, err
	}
	b.done.Go(func() {
		for ctx.Err() == nil {
			err := b.watch(ctx, watching)
			if ctx.Err() == nil {
				b.failure(fmt.Errorf("watch: %w", err))
				_ = bench.Pause(ctx, each)
			}
		}
		watching.CloseIdleConnections()
	})
	return b, nil
}

// end stops it and waits.
func (b *bystander) end() {
	b.stop()
	b.done.Wait()
}

func (b *bystander) ask(ctx context.Context, client *http.Client) {
	free := make(chan struct{}, unanswered)
	tick := time.NewTicker(each)
	defer tick.Stop()
	var all sync.WaitGroup
	defer all.Wait()
	for {
		var at time.Time
		select {
		case at = <-tick.C:
		case <-ctx.Done():
			return
		}
		select {
		case free <- struct{}{}:
		default:
			b.failure(fmt.Errorf("%d requests are unanswered", unanswered))
			continue
		}
		all.Go(func() {
			defer func() { <-free }()
			b.mu.Lock()
			b.waiting[client][at] = true
			b.mu.Unlock()
			err := b.once(ctx, client)
			b.mu.Lock()
			delete(b.waiting[client], at)
			b.mu.Unlock()
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				b.failure(err)
				return
			}
			b.mu.Lock()
			defer b.mu.Unlock()
			b.took = append(b.took, time.Since(at))
		})
	}
}

func (b *bystander) once(ctx context.Context, client *http.Client) error {
	ctx, cancel := context.WithTimeout(ctx, tooLate)
	defer cancel()
	r, err := bench.NewRequest(ctx, b.server, bench.Ask{Method: http.MethodGet, Path: things() + "/small", Token: bench.UserToken}, "")
	if err != nil {
		return err
	}
	resp, err := client.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err == nil && (resp.StatusCode != http.StatusOK || !bytes.Contains(body, []byte(`"name":"small"`))) {
		err = fmt.Errorf("%s: %.200s", resp.Status, body)
	}
	return err
}

// watch reads events, which contain their send time, until the stream ends.
func (b *bystander) watch(ctx context.Context, client *http.Client) error {
	r, err := bench.NewRequest(ctx, b.server, bench.Ask{Method: http.MethodGet, Path: things() + "?watch=1&every=" + each.String(), Token: bench.UserToken}, "")
	if err != nil {
		return err
	}
	resp, err := client.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s", resp.Status)
	}
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		_, rest, ok := bytes.Cut(lines.Bytes(), []byte(`"sent":"`))
		text, _, closed := bytes.Cut(rest, []byte{'"'})
		sent, err := strconv.ParseInt(string(text), 10, 64)
		if !ok || !closed || err != nil {
			return fmt.Errorf("an event of %.100q", lines.Text())
		}
		b.mu.Lock()
		b.lag = append(b.lag, time.Since(time.Unix(0, sent)))
		b.event = time.Now()
		b.mu.Unlock()
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return io.EOF
}

func (b *bystander) failure(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failed++
	if len(b.reasons) < 3 {
		b.reasons = append(b.reasons, err.Error())
	}
}

// take returns the measurements since the last call. Pending requests and events count with their duration so far.
func (b *bystander) take() Latencies {
	b.mu.Lock()
	defer b.mu.Unlock()
	events := len(b.lag)
	for _, due := range b.waiting {
		for at := range due {
			b.took = append(b.took, time.Since(at))
		}
	}
	if !b.event.IsZero() {
		b.lag = append(b.lag, max(0, time.Since(b.event)-each))
	}
	slices.Sort(b.took)
	slices.Sort(b.lag)
	l := Latencies{
		Requests: len(b.took) + b.failed, Failures: b.failed, Reasons: b.reasons, P50: measure.Quantile(b.took, 0.5), P99: measure.Quantile(b.took, 0.99),
		WatchP99: measure.Quantile(b.lag, 0.99), Events: events,
	}
	b.took, b.lag, b.reasons, b.failed = nil, nil, nil, 0
	return l
}
