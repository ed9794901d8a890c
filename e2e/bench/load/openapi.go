package load

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"portico.dev/e2e/environment"
	"portico.dev/e2e/measure"
	"portico.dev/e2e/programs"
)

// OpenAPISettings are the settings for many large documents.
type OpenAPISettings struct {
	// Backends is the number of backends, Bytes the minimum size of each document, Registered the rate of
	// registrations per second.
	Backends, Bytes, Registered int
	// PerSecond is the rate of requests during the registrations.
	PerSecond int
}

// OpenAPIRow contains the results. Memory is in bytes, CPU in seconds.
type OpenAPIRow struct {
	// Served is the total size of the documents that the front door served afterwards, read one by one.
	Served     int64         `json:"served"`
	Registered time.Duration `json:"registeredNanoseconds"`
	// Merged is the time from the first registration until the index was complete. CPU is the CPU of the front door
	// during that time, without the requests.
	Merged time.Duration `json:"mergedNanoseconds"`
	CPU    float64       `json:"cpuSeconds"`
	Before float64       `json:"rssBefore"`
	Peak   float64       `json:"rssPeak"`
	Kept   float64       `json:"heapKept"`
	// Quiet contains the requests before the registrations. Meanwhile contains the requests during the registrations.
	Quiet     Asked `json:"quiet"`
	Meanwhile Asked `json:"meanwhile"`
}

// Asked contains the clients' view of the requests.
type Asked struct {
	PerSecond float64 `json:"requestsPerSecond"`
	P50       float64 `json:"p50ms"`
	P99       float64 `json:"p99ms"`
	CPU       float64 `json:"cpuUS"`
}

// mostOpenAPI bounds the size of one document that a client reads.
const mostOpenAPI = 256 << 20

// openAPI registers backends with large documents, while clients send other requests.
func (r *Report) openAPI(ctx context.Context, y *environment.Environment, say func(string, ...any)) error {
	s, row := r.Settings.OpenAPI, &OpenAPIRow{}
	r.OpenAPI = row
	backend, err := y.Backend()
	if err != nil {
		return err
	}
	front, err := y.Front("front")
	if err != nil {
		return err
	}
	const asked = 90_000 // beyond the other numbers
	if err := errors.Join(front.Grant(ctx), front.Register(ctx, asked, asked+1)); err != nil {
		return err
	}
	_, own, err := y.OwnBackendsOf(s.Backends, s.Bytes)
	if err != nil {
		return err
	}
	load, err := environment.NewPacedLoad(front.Server, small, []string{environment.Path(asked) + "/small"}, 8)
	if err != nil {
		return err
	}
	defer load.Leave()
	if err := environment.Pause(ctx, r.Settings.Rest); err != nil {
		return err
	}
	say("requests before anything is registered")
	quiet, err := load.Measure(ctx, backend, s.PerSecond, r.Settings.Warm, 4*r.Settings.Warm)
	if err != nil {
		return err
	}
	row.Quiet = askedOf(quiet.Answer, quiet.Server)
	if err := row.register(ctx, front, backend, load, own, s, say); err != nil {
		return err
	}
	say("all documents are read")
	if row.Served, err = readAll(ctx, front, s.Backends); err != nil {
		return err
	}
	if err := front.Collect(ctx); err != nil {
		return err
	}
	memory, err := front.Memory(ctx)
	if err != nil {
		return err
	}
	row.Kept = memory.Kept
	return nil
}

func askedOf(a environment.Answer, cpu time.Duration) Asked {
	return Asked{PerSecond: a.PerSecond, P50: ms(a.P50), P99: ms(a.P99), CPU: us(cpu)}
}

// register registers all backends and waits until their documents are merged. At the same time it sends
// requests, in intervals of one second.
func (row *OpenAPIRow) register(ctx context.Context, front *environment.Front, backend *environment.Server, load *environment.PacedLoad, own []environment.OwnBackend, s OpenAPISettings, say func(string, ...any)) error {
	before, err := measure.RSS(front.PID)
	if err != nil {
		return err
	}
	row.Before = float64(before)
	if err := measure.ResetPeakRSS(front.PID); err != nil {
		return err
	}
	say("%d backends are registered, %d KB of OpenAPI each", len(own), s.Bytes/1000)
	both, within := errgroup.WithContext(ctx)
	registering, merged := context.WithCancel(within)
	var seconds []environment.Answer
	began := time.Now()
	cpu, err := used(front.Server, func() error {
		both.Go(func() error {
			defer merged()
			if err := front.RegisterOwn(within, own, s.Registered); err != nil {
				return err
			}
			row.Registered = time.Since(began)
			err := untilMerged(within, front, len(own))
			row.Merged = time.Since(began)
			return err
		})
		both.Go(func() error {
			for registering.Err() == nil {
				a, err := load.Run(within, s.PerSecond, time.Second)
				if err != nil {
					return err
				}
				seconds = append(seconds, a)
			}
			return nil
		})
		return both.Wait()
	})
	if err != nil {
		return err
	}
	total := 0
	for _, a := range seconds {
		total += a.Requests
		// The quantiles of the intervals cannot be combined, so the row contains the worst interval.
		row.Meanwhile.P50, row.Meanwhile.P99 = max(row.Meanwhile.P50, ms(a.P50)), max(row.Meanwhile.P99, ms(a.P99))
	}
	row.Meanwhile.PerSecond = float64(total) / time.Since(began).Seconds()
	row.CPU = cpu.Seconds() - row.Quiet.CPU*float64(total)/1e6
	peak, err := measure.PeakRSS(front.PID)
	row.Peak = float64(peak)
	return err
}

// between is the polling interval of the index.
const between = 200 * time.Millisecond

// untilMerged waits until the index contains count documents of backends.
func untilMerged(ctx context.Context, front *environment.Front, count int) error {
	ctx, cancel := context.WithTimeoutCause(ctx, programs.Patience, fmt.Errorf("the documents are not merged within %s", programs.Patience))
	defer cancel()
	for {
		found, err := inIndex(ctx, front)
		switch {
		case err != nil && ctx.Err() == nil:
			return err
		case err == nil && found >= count:
			return nil
		}
		if environment.Pause(ctx, between) != nil {
			return fmt.Errorf("%d of %d documents are in the index: %w", found, count, context.Cause(ctx))
		}
	}
}

// inIndex returns the number of documents of numbered groups in the index.
func inIndex(ctx context.Context, front *environment.Front) (int, error) {
	body, err := front.Client.Discovery().RESTClient().Get().AbsPath("/openapi/v3").DoRaw(ctx)
	if err != nil {
		return 0, fmt.Errorf("read the index: %w", err)
	}
	var index struct{ Paths map[string]json.RawMessage }
	if err := json.Unmarshal(body, &index); err != nil {
		return 0, fmt.Errorf("decode the index: %w", err)
	}
	found := 0
	for path := range index.Paths {
		if strings.HasPrefix(path, "apis/bench-") {
			found++
		}
	}
	return found, nil
}

// readAll reads the documents one after the other and returns their total size.
func readAll(ctx context.Context, front *environment.Front, count int) (total int64, err error) {
	client, err := environment.NewClient(front.Server, true)
	if err != nil {
		return 0, err
	}
	defer client.CloseIdleConnections()
	for n := range count {
		code, bytes, err := read(ctx, front, client, "/openapi/v3/apis/"+environment.GroupName(n)+"/v1")
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("the document of %s: %d", environment.GroupName(n), code)
		}
		if err != nil {
			return 0, err
		}
		total += bytes
	}
	return total, nil
}

func read(ctx context.Context, front *environment.Front, client *http.Client, path string) (code int, bytes int64, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, programs.Patience, fmt.Errorf("%s was not read within %s", path, programs.Patience))
	defer cancel()
	r, err := environment.NewRequest(ctx, front.Server, environment.Ask{Method: http.MethodGet, Path: path, Token: environment.AdminToken}, "")
	if err != nil {
		return 0, 0, err
	}
	resp, err := client.Do(r)
	if err != nil {
		return 0, 0, err
	}
	defer resp.Body.Close()
	bytes, err = io.Copy(io.Discard, io.LimitReader(resp.Body, mostOpenAPI))
	return resp.StatusCode, bytes, err
}
