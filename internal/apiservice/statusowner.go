package apiservice

import (
	"time"

	"golang.org/x/time/rate"
)

// A front door and gateways of one cluster read the same APIServices and APIRoutes, and come to different conclusions about them. The status
// of each object has one owner, which is the program that gets the requests. Replicas of the owner elect the one that writes.

// ownerInterval is the time between two checks whether this program owns a status by now.
const ownerInterval = 10 * time.Second

func ownsStatus(owns func(name string) bool, name string) bool { return owns == nil || owns(name) }

// ownsAPIRouteStatus reports whether this program writes the status of an APIRoute. A gateway writes the status of an APIRoute whose
// APIService leads to it.
func (c *Controller) ownsAPIRouteStatus(name string) bool {
	if o, err := c.lister.Get(name); err == nil && leadsToGateway(o) {
		return false
	}
	return ownsStatus(c.cfg.APIRoutes.OwnsStatus, name)
}

// checkStatusOwner writes the status of an APIService and of its APIRoute soon if this program owns them by now.
func (c *Controller) checkStatusOwner(apiService string) {
	if c.cfg.OwnsStatus != nil {
		c.status.queue.AddAfter(apiService, repairDelay)
	}
	if c.cfg.APIRoutes != nil {
		c.routeStatus.queue.AddAfter(apiService, repairDelay)
	}
}

const (
	// statusBurst is the number of writes of the status of an APIRoute without a delay, and statusInterval the time between later ones.
	// They bound what two writers that disagree can write, for example one of an older release.
	statusBurst    = 10
	statusInterval = 5 * time.Second
)

// writeLimits bounds the writes of the status of each object. The zero value is ready. It is used by one goroutine.
type writeLimits struct {
	limits map[string]*rate.Limiter
	warned rate.Sometimes
}

// delay returns how long the next write has to wait. If it is 0, the write is counted.
func (w *writeLimits) delay(name string) time.Duration {
	limit := w.limits[name]
	if limit == nil {
		if w.limits == nil {
			w.limits, w.warned.Interval = make(map[string]*rate.Limiter), time.Minute
		}
		limit = rate.NewLimiter(rate.Every(statusInterval), statusBurst)
		w.limits[name] = limit
	}
	r := limit.Reserve()
	delay := r.Delay()
	if delay > 0 {
		r.Cancel()
	}
	return delay
}

func (w *writeLimits) forget(name string) { delete(w.limits, name) }
