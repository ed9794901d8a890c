package scale

import (
	"context"

	"portico.dev/e2e/bench/environment"
	"portico.dev/e2e/bench/measure"
)

// appear makes APIServices and asks each until it answers.
func (f *subject) appear(ctx context.Context, count int) error {
	client, err := environment.NewClient(f.Server, true)
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	var took []float64
	for n := range count {
		d, err := f.Appear(ctx, client, 90_000+n) // beyond those that are there
		if err != nil {
			return err
		}
		took = append(took, d.Seconds()*1000)
	}
	f.row.Appeared = measure.SpreadOf(took)
	return nil
}
