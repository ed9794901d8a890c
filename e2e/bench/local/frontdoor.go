package local

import (
	"context"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"portico.dev/e2e/environment"
)

// FrontDoor sends the operations to an API server, with clients over HTTP/2, as an administrator.
type FrontDoor struct {
	*environment.FrontDoor
	// Many is the number of objects in the long lists.
	Many int
	// Cell is the duration of one operation. Listen is the duration for watches, if longer.
	Cell, Listen time.Duration

	made int64
}

// Cost is the cost of an operation in one round. CPU is in microseconds per request, or per event delivered to one
// watch.
type Cost struct {
	CPU, Beside, PerSecond, P50, P99 float64
	// Peak is the peak resident memory of the server, in bytes.
	Peak int64
}

// Fill creates the namespaces and the objects to read.
func (d *FrontDoor) Fill(ctx context.Context) error {
	for _, ns := range []string{fewIn, manyIn, madeIn} {
		if _, err := d.Client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	for ns, count := range map[string]int{fewIn: few, manyIn: d.Many} {
		if err := environment.Concurrency(ctx, 32, 0, count, func(ctx context.Context, n int) error {
			_, err := d.Client.CoreV1().ConfigMaps(ns).Create(ctx, newConfigMap(ns, nameOf(n)), metav1.CreateOptions{})
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

// Measure measures one operation. It also measures the CPU of beside, such as the etcd of the server.
func (d *FrontDoor) Measure(ctx context.Context, o Operation, beside *environment.Server) (Cost, error) {
	if o.kind == watching {
		return d.watch(ctx, o, beside)
	}
	generator, err := environment.NewLoadGenerator(d.Server, d.request(o))
	if err != nil {
		return Cost{}, err
	}
	defer generator.Leave()
	got, err := generator.Measure(ctx, beside, d.Cell/5, d.Cell)
	return Cost{CPU: us(got.Server), Beside: us(got.Backend), PerSecond: got.PerSecond, P50: ms(got.P50), P99: ms(got.P99), Peak: got.Peak}, err
}

func us(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func (d *FrontDoor) request(o Operation) environment.Ask {
	ask := environment.Ask{Method: http.MethodGet, Token: environment.AdminToken, HTTP2: true, Clients: o.Clients, Accept: o.accept}
	switch o.kind {
	case creating:
		d.made += 1_000_000 // each generator counts from one
		base := d.made
		ask.Method, ask.Path = http.MethodPost, collection(madeIn)
		ask.EachBody = func(n int64) string { return body(madeIn, nameOf(int(base+n))) }
	case getting:
		ask.Path = collection(fewIn) + "/" + first
	case gettingCached:
		ask.Path = collection(fewIn) + "/" + first + "?resourceVersion=0"
	case listing:
		ask.Path = collection(fewIn)
	case listingAll:
		ask.Path = collection(manyIn)
	}
	return ask
}

// watch opens one watch of the same object for each client, and changes the object.
func (d *FrontDoor) watch(ctx context.Context, o Operation, beside *environment.Server) (Cost, error) {
	streams, err := environment.Open(ctx, d.Server, environment.Ask{
		Method: http.MethodGet, Path: collection(fewIn) + watchFirst, Token: environment.AdminToken, HTTP2: true,
	}, o.Clients)
	if err != nil {
		return Cost{}, err
	}
	defer streams.Close()
	listened := max(d.Cell, d.Listen, 4*touchEvery)
	touching, end := context.WithCancel(ctx)
	defer end()
	failed := make(chan error, 1)
	go func() {
		failed <- touchFor(touching, 2*listened+time.Second, func(ctx context.Context, sent string) error {
			_, err := d.Client.CoreV1().ConfigMaps(fewIn).Patch(ctx, first, types.MergePatchType, []byte(annotation(sent)), metav1.PatchOptions{})
			return err
		})
	}()
	got, err := streams.Measure(ctx, beside, d.Cell/5, listened)
	end()
	if touched := <-failed; err == nil && touched != nil && touching.Err() == nil {
		err = touched
	}
	return Cost{
		CPU: us(got.Server), Beside: us(got.Backend), PerSecond: float64(got.Events) / listened.Seconds(), P50: ms(got.P50), P99: ms(got.P99), Peak: got.Peak,
	}, err
}
