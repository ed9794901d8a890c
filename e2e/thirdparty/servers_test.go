package thirdparty

import "testing"

// The test uses two front doors, because two of the servers have the same group. One front door has a short timeout.
func TestExtensionServers(t *testing.T) {
	t.Run("storing and measuring", func(t *testing.T) {
		t.Parallel()
		d := startFrontDoor(t, "front-1")
		sample, measured, custom := newSample(t, d), newMetricsServer(t, d), newTestAdapter(t, d)
		d.live(t, exercise{sample, exerciseSample}, exercise{measured, exerciseMetricsServer}, exercise{custom, exerciseTestAdapter})
	})
	t.Run("old and upgrading", func(t *testing.T) {
		t.Parallel()
		d := startFrontDoor(t, "front-2", "--request-timeout", patience.String(), "--audit-log-path", "audit.log")
		adapter, consoles := newPrometheusAdapter(t, d), newUpgrader(t, d)
		d.live(t, exercise{adapter, exercisePrometheusAdapter}, exercise{consoles, exerciseUpgrader})
	})
}

type exercise struct {
	server *third
	run    func(t *testing.T, s *third)
}

// live starts and registers servers, requests every resource of each, and runs the steps of their life cycle.
func (d *frontDoor) live(t *testing.T, all ...exercise) {
	for _, e := range all {
		e.server.start(t)
		e.server.register(t)
	}
	t.Run("at work", func(t *testing.T) {
		for _, e := range all {
			t.Run(e.server.name, func(t *testing.T) {
				t.Parallel()
				e.run(t, e.server)
			})
		}
	})
	if t.Failed() {
		t.FailNow()
	}
	d.survive(t)
}
