// Package overload sheds load before memory runs out.
//
// Limits of connections, streams, queues and bodies apply per client and do not limit the memory used for all clients
// together. A process that reaches the memory limit of its container is killed. A Monitor compares the memory in use
// with the limit several times per second. The result is a Level, which determines the users to serve:
//
//	normal     all users
//	shedding   nodes, controllers of the control plane, and system:masters; other users get 503 with Retry-After
//	critical   the same users; other requests are refused before any processing, and the connections that hold most memory are closed
//	exhausted  system:masters
//
// Health checks and metrics are always served. This package makes the decisions; internal/server refuses requests and
// closes connections.
//
// # Memory in use
//
// The heap contains garbage until it is collected, so its size is not a good measure: with headroom, half of it is
// usually garbage. The memory that is certainly in use is the live heap after the last collection, the stacks, and
// the runtime's own memory (Reading.InUse). Memory allocated since then may be garbage (Reading.Allocated). The
// levels follow InUse. Allocated matters only above the whole limit, when the collector does not keep up. If
// Allocated exceeds a threshold that InUse does not, and while load is shed, the Monitor triggers collections, at
// most two per second, so that it neither acts too late nor sheds load too long.
//
// On a busy machine readings may be late. Therefore, above half of the limit, connections may read only a limited
// amount between two readings (ReadLimiter). The remaining data stays in the sockets, as back pressure.
//
// Other kernel memory of the control group (socket buffers, other processes) counts as in use; the page cache does
// not.
package overload

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
)

// Level is the degree of memory pressure.
type Level int32

// Levels. Each includes the measures of the previous one.
const (
	Normal Level = iota
	Shedding
	Critical
	Exhausted
)

// String returns the name of the level.
func (l Level) String() string { return [...]string{"normal", "shedding", "critical", "exhausted"}[l] }

// thresholds are percentages of the limit. A level begins at from and ends below to, which avoids flapping. allocated
// is the threshold for Reading.Allocated.
var thresholds = [...]struct{ from, to, allocated uint64 }{
	Shedding:  {75, 65, 105},
	Critical:  {87, 78, 115},
	Exhausted: {98, 90, 130},
}

// stepDownDelay is how long memory must stay below the end of a level before the level ends.
const stepDownDelay = time.Second

// levelTracker derives the level from readings.
type levelTracker struct {
	limit      uint64
	level      Level
	belowSince time.Time // start of the time below the end of the level; zero if not below
}

// update returns the level after a reading. The level rises immediately and falls one level at a time.
func (l *levelTracker) update(r Reading, now time.Time) Level {
	highest := Normal
	for level := Shedding; level <= Exhausted; level++ {
		if t := thresholds[level]; l.beyond(r.InUse, t.from) || l.beyond(r.Allocated, t.allocated) {
			highest = level
		}
	}
	switch {
	case highest > l.level:
		l.level, l.belowSince = highest, time.Time{}
	case l.level == Normal || l.beyond(r.InUse, thresholds[l.level].to) || highest == l.level:
		l.belowSince = time.Time{}
	case l.belowSince.IsZero():
		l.belowSince = now
	case now.Sub(l.belowSince) >= stepDownDelay:
		l.level, l.belowSince = l.level-1, time.Time{}
	}
	return l.level
}

func (l *levelTracker) beyond(used, percent uint64) bool { return used >= l.limit/100*percent }

// excess returns the amount of memory to free to get below Critical.
func (l *levelTracker) excess(r Reading) int64 {
	used := r.InUse
	if l.beyond(r.Allocated, thresholds[Critical].allocated) {
		used = max(used, r.Allocated)
	}
	return int64(used) - int64(l.limit/100*thresholds[Critical].to)
}

// UserClass determines up to which level the requests of a user are served.
type UserClass int

const (
	// Ordinary users are refused first.
	Ordinary UserClass = iota
	// System users are nodes and controllers of the control plane. If nodes were refused, they would be considered
	// dead.
	System
	// Admin users are members of system:masters, who must be able to repair the cluster.
	Admin
)

// UserClassOf returns the class of a user, before impersonation.
func UserClassOf(u user.Info) UserClass {
	if u == nil {
		return Ordinary
	}
	groups := u.GetGroups()
	if slices.Contains(groups, user.SystemPrivilegedGroup) {
		return Admin
	}
	switch name := u.GetName(); {
	case name == user.KubeControllerManager, name == user.KubeScheduler:
		return System
	case strings.HasPrefix(name, "system:node:") && slices.Contains(groups, user.NodesGroup):
		return System
	case strings.HasPrefix(name, serviceaccount.ServiceAccountUsernamePrefix) && slices.Contains(groups, controllers):
		return System
	}
	return Ordinary
}

// controllers is the group of the service accounts in kube-system.
var controllers = serviceaccount.ServiceAccountGroupPrefix + "kube-system"

// Serves reports whether requests of a class are served.
func (l Level) Serves(c UserClass) bool {
	switch c {
	case Admin:
		return true
	case System:
		return l < Exhausted
	}
	return l == Normal
}
