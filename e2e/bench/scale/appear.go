package scale

import (
	"context"
	"errors"
	"net/http"
	"time"

	"portico.dev/e2e/bench/measure"
	"portico.dev/e2e/bench/yard"
)

// appear makes APIServices and asks each until it answers.
func (f *subject) appear(ctx context.Context, count int) error {
	client, err := yard.NewClient(f.Server, true)
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	var took []float64
	for n := range count {
		number := 90_000 + n // beyond those that are there
		began := time.Now()
		if err := f.RegisterOne(ctx, number); err != nil {
			return err
		}
		if err := f.untilAnswered(ctx, client, number); err != nil {
			return err
		}
		took = append(took, time.Since(began).Seconds()*1000)
	}
	f.row.Appeared = measure.SpreadOf(took)
	return nil
}

// askAgain is how long a client waits that was told that there is no such thing yet.
const askAgain = 2 * time.Millisecond

func (f *subject) untilAnswered(ctx context.Context, client *http.Client, number int) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 30*time.Second, errors.New("a new APIService did not answer in 30 s"))
	defer cancel()
	for {
		r, err := yard.NewRequest(ctx, f.Server, yard.Ask{Method: http.MethodGet, Path: yard.Path(number) + "/small", Token: yard.UserToken}, "")
		if err != nil {
			return err
		}
		resp, err := client.Do(r)
		if err == nil {
			err = resp.Body.Close()
		}
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return err
		case resp.StatusCode == http.StatusOK:
			return nil
		}
		if err := yard.Pause(ctx, askAgain); err != nil {
			return context.Cause(ctx)
		}
	}
}
