package drill

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"portico.dev/internal/tools/drill/faulty"
)

// readyAgain is the measure of the restart.
const readyAgain = "front door ready again"

// restartDrills returns the drills about a restart of the front door.
func restartDrills() []Drill {
	return []Drill{{
		Name: "restart-everything-dead", Title: "the front door is restarted while every extension server is dead",
		About: 15 * time.Second, Limit: 3 * time.Minute, Stores: true, Needs: Restart, AllFail: true,
		script: restartAmongTheDead,
		Expect: []Expectation{
			within(20*time.Second, readyAgain, "it is ready again"),
			neverNotFound(),
			discoveryShows("discovery has not forgotten the dead: they are stale, or listed with their resources", stale, listed),
			namesTheFailed(), recoversWithin(10 * time.Second),
		},
	}}
}

func restartAmongTheDead(ctx context.Context, s *Stage) error {
	if err := s.breakWith(ctx, faulty.Refuse); err != nil {
		return err
	}
	if err := s.bystander.SetFault(faulty.Refuse); err != nil {
		return err
	}
	if err := s.detect(ctx, 20*time.Second); err != nil {
		return err
	}
	s.progress("restarting the front door")
	down := time.Now()
	s.record.change(func(h *History) { h.Outage = Span{down, down.Add(time.Hour)} })
	if err := s.target.Restart(ctx); err != nil {
		return fmt.Errorf("restart the front door: %w", err)
	}
	s.record.measured(Measure{Name: readyAgain, Seconds: Seconds(time.Since(down))})
	s.record.change(func(h *History) { h.Outage.To = time.Now() })
	if err := s.wait(ctx, hold); err != nil {
		return err
	}
	if err := s.bystander.SetFault(faulty.Healthy); err != nil {
		return err
	}
	return s.mend(ctx)
}

// neverNotFound checks that no request fails with 404, because controllers delete objects on a 404.
func neverNotFound() Expectation {
	return Expectation{Text: "what the dead serve is never answered with 404", check: func(h *History) error {
		asked := h.duringFault(append(h.requestsTo(Subject, "get", "list", "watch"), h.requestsTo(Bystander, "get", "list", "watch")...))
		if len(asked) == 0 {
			return errors.New("no request was made")
		}
		for _, r := range asked {
			if r.Code == http.StatusNotFound {
				return fmt.Errorf("a %s of the %s: %s", r.Verb, r.Who, r.describe())
			}
		}
		return nil
	}}
}
