package objects

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico.dev/e2e/environment"
	"portico.dev/e2e/measure"
)

const (
	in = "objects"
	// writers is the number of concurrent creations.
	writers = 32
	// size is the length of each object's value.
	size = 900
	// firsts is the number of requests measured after a start.
	firsts = 10
)

// Settings are the sizes and durations of the benchmark.
type Settings struct {
	// Objects contains the number of objects of each front door.
	Objects []int
	// Rest is the idle time before memory is measured.
	Rest time.Duration
}

// Full returns the settings of the published results. A run takes three minutes.
func Full() Settings { return Settings{Objects: []int{0, 50_000, 100_000}, Rest: 30 * time.Second} }

// Quick returns settings that show only that the benchmark works.
func Quick() Settings { return Settings{Objects: []int{0, 200}, Rest: time.Second} }

// Run measures all front doors. program is the aggregator to measure; if it is empty, the aggregator is built from
// the tree.
func Run(ctx context.Context, program string, s Settings, say func(string, ...any)) (*Report, error) {
	y, err := environment.New(program)
	if err != nil {
		return nil, err
	}
	r := &Report{Machine: measure.ThisMachine(), Settings: s}
	say("building")
	if _, err = y.Aggregator(); err == nil {
		for _, n := range s.Objects {
			if err = r.measure(ctx, y, n, say); err != nil {
				err = fmt.Errorf("%d objects: %w\nthe front door's log ends:\n%s", n, err, y.Log())
				break
			}
		}
	}
	if ended := y.Close(); err == nil {
		err = ended
	}
	r.Took = time.Since(r.Machine.Began)
	return r, err
}

func (r *Report) measure(ctx context.Context, y *environment.Environment, n int, say func(string, ...any)) error {
	name := "front-" + strconv.Itoa(n)
	row := Row{Objects: n}
	began := time.Now()
	f, err := y.Front(name)
	if err != nil {
		return err
	}
	row.New = ms(time.Since(began))
	say("making %d objects", n)
	if err := fill(ctx, f, n, &row); err != nil {
		return err
	}
	if row.Written, row.WrittenKept, err = r.rest(ctx, f); err != nil {
		return err
	}
	if err := f.Stop(); err != nil {
		return err
	}
	say("starting with %d objects", n)
	dir, err := y.Dir(name)
	if err != nil {
		return err
	}
	// The front door writes this file when it is ready.
	if err := os.Remove(filepath.Join(dir, "data", "admin.kubeconfig")); err != nil {
		return err
	}
	began = time.Now()
	if f, err = y.Front(name); err != nil {
		return err
	}
	row.Existing = ms(time.Since(began))
	for range firsts {
		took, err := once(ctx, f)
		if err != nil {
			return err
		}
		row.Requests = append(row.Requests, ms(took))
	}
	if row.Read, row.ReadKept, err = r.rest(ctx, f); err != nil {
		return err
	}
	if row.ReadPeak, err = peak(f); err != nil {
		return err
	}
	r.Rows = append(r.Rows, row)
	return f.Stop()
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// fill creates the namespace and its objects.
func fill(ctx context.Context, f *environment.Front, n int, row *Row) error {
	if _, err := f.Client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: in}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	filler := strings.Repeat("c", size)
	began := time.Now()
	err := environment.Concurrency(ctx, writers, 0, n, func(ctx context.Context, i int) error {
		// The values differ, because a server may store common content once.
		name := "object-" + strconv.Itoa(i)
		_, err := f.Client.CoreV1().ConfigMaps(in).Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"value": name + filler[len(name):]},
		}, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return err
	}
	if n > 0 {
		row.PerSecond = float64(n) / time.Since(began).Seconds()
	}
	row.WritingPeak, err = peak(f)
	return err
}

func peak(f *environment.Front) (float64, error) {
	bytes, err := measure.PeakRSS(f.PID)
	return float64(bytes), err
}

// rest measures memory after an idle time.
func (r *Report) rest(ctx context.Context, f *environment.Front) (rss, kept float64, err error) {
	if err := environment.Pause(ctx, r.Settings.Rest); err != nil {
		return 0, 0, err
	}
	bytes, err := measure.RSS(f.PID)
	if err != nil {
		return 0, 0, err
	}
	if err := f.Collect(ctx); err != nil {
		return 0, 0, err
	}
	memory, err := f.Memory(ctx)
	return float64(bytes), memory.Kept, err
}

// once sends one request over a new connection.
func once(ctx context.Context, f *environment.Front) (time.Duration, error) {
	client, err := environment.NewClient(f.Server, true)
	if err != nil {
		return 0, err
	}
	defer client.CloseIdleConnections()
	r, err := environment.NewRequest(ctx, f.Server, environment.Ask{Method: http.MethodGet, Path: "/api/v1/namespaces/" + in, Token: environment.AdminToken}, "")
	if err != nil {
		return 0, err
	}
	began := time.Now()
	resp, err := client.Do(r)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return 0, err
	}
	if resp.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("%s: %s", r.URL.Path, resp.Status)
	}
	return time.Since(began), nil
}
