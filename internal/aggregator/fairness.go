package aggregator

import (
	"github.com/spf13/pflag"

	"portico.dev/internal/fairness"
)

func (c *Config) addFairnessFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&c.EnablePriorityAndFairness, "enable-priority-and-fairness", c.EnablePriorityAndFairness, "let requests take turns by the flowcontrol.apiserver.k8s.io objects; without it the two bounds in flight hold")
	fs.IntVar(&c.MaxRequestsInFlight, "max-requests-inflight", c.MaxRequestsInFlight, "seats that priority levels share, together with --max-mutating-requests-inflight; without fairness, reads served at once, negative: no bound")
	fs.IntVar(&c.MaxMutatingRequestsInFlight, "max-mutating-requests-inflight", c.MaxMutatingRequestsInFlight, "seats that priority levels share, together with --max-requests-inflight; without fairness, writes served at once, negative: no bound")
}

func (c *Config) validateFairness(bad func(flag, format string, args ...any)) {
	if !c.EnablePriorityAndFairness {
		return
	}
	if c.MaxRequestsInFlight < 0 || c.MaxMutatingRequestsInFlight < 0 || c.seats() == 0 {
		bad("max-requests-inflight", "priority levels share %d and %d seats; give them at least one together, or say --enable-priority-and-fairness=false",
			c.MaxRequestsInFlight, c.MaxMutatingRequestsInFlight)
	}
}

// seats is what the priority levels share, as upstream.
func (c *Config) seats() int { return c.MaxRequestsInFlight + c.MaxMutatingRequestsInFlight }

// wireFairness leaves fairness nil when it is switched off.
func (h *parts) wireFairness() (err error) {
	if !h.cfg.EnablePriorityAndFairness {
		return nil
	}
	h.fairness, err = fairness.New(fairness.Config{
		Client: h.startClients, Seats: h.cfg.seats(), Metrics: h.metrics.Fairness, Logger: h.log.Named("fairness"),
	})
	return err
}
