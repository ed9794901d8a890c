package apiservice

import (
	"time"

	"portico.dev/internal/transport"
)

const (
	// hungAfter is how long a backend may say nothing at all, to requests and to probes, while its connections are alive.
	// It must be longer than a slow answer: one that comes after three seconds is late, and an outage would be worse.
	hungAfter = 3500 * time.Millisecond
	// deadAfter is the same where pings are not answered either, or new connections not served: no load of an application
	// explains that.
	deadAfter = 2500 * time.Millisecond
	// leastWait is how long a probe must have waited, so that it had its chance.
	leastWait = 1500 * time.Millisecond
	// lookEvery is how often a probe that waits looks at the silence.
	lookEvery = 250 * time.Millisecond
	// slowness is how many times its usual time a backend may be silent.
	slowness = 2
)

// suspicion watches the silence of a backend that was well, while a probe waits for it. Two probes that time out would
// say the same after twelve seconds. Nobody else's requests are waiting for that verdict, but all of the backend's are.
type suspicion struct {
	silence func() transport.Silence
	// usual is how long the backend took for probes lately.
	usual time.Duration
	began time.Time
	last  time.Time
	// ran is how much of the time since began this process is known to have run: what was not looked at does not count,
	// or an overloaded machine would find every backend silent.
	ran time.Duration
}

func newSuspicion(silence func() transport.Silence, usual time.Duration) *suspicion {
	now := time.Now()
	return &suspicion{silence: silence, usual: usual, began: now, last: now}
}

// look returns a failure when the silence has been too long, else nil.
func (s *suspicion) look(now time.Time) *failure {
	s.ran += min(now.Sub(s.last), 2*lookEvery)
	s.last = now
	heard := s.silence()
	if heard.Since.IsZero() || s.ran < leastWait {
		return nil
	}
	limit, cause := hungAfter, "requests are taken and none is answered"
	if heard.Broken {
		limit, cause = deadAfter, "connections are taken and nothing comes from them"
	}
	lost := now.Sub(s.began) - s.ran
	if now.Sub(heard.Since)-lost < max(limit, slowness*s.usual) {
		return nil
	}
	return &failure{cause: cause, silent: true, unreachable: true}
}
