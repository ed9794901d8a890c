// Package overload sheds load before memory runs out.
//
// Limits of connections, streams, queues and bodies bound what one client can hold, but not what all clients hold together,
// and a process that reaches the memory limit of its container is killed. A Monitor compares the memory in use with the
// limit several times a second. The result is a Level, which says whose requests are served:
//
//	normal     everybody's.
//	shedding   those of nodes, of the control plane's controllers and of system:masters. Others get 503 with Retry-After.
//	critical   the same. Others are refused before anything is done for them, and the connections that hold most are closed.
//	exhausted  those of system:masters.
//
// Health checks and metrics are always answered. This package decides; internal/server refuses and closes.
//
// # What counts as in use
//
// The heap holds garbage until it is collected, so its size says little: with headroom, half of it is garbage most of the
// time. In use for certain is what the last collection found alive, the stacks, and the runtime's own memory
// (Reading.InUse). What was allocated since may be garbage or not (Reading.Allocated). The levels follow InUse; Allocated
// counts only beyond the whole limit, where the collector does not keep up. When Allocated crosses a threshold that InUse
// does not, and while load is shed, the Monitor asks for collections, at most two a second, so that it neither acts late
// nor sheds longer than needed.
//
// A busy machine may take readings late. So beyond half of the limit connections may read only so much between two readings
// (ReadLimiter); the rest waits in their sockets, as back pressure.
//
// Other memory of the kernel for this control group (socket buffers, other processes) counts as in use, the page cache does
// not.
package overload

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
)

// Level says how short memory is.
type Level int32

// The levels. Each includes the measures of the one before.
const (
	Normal Level = iota
	Shedding
	Critical
	Exhausted
)

// String is the name of the level in logs.
func (l Level) String() string { return [...]string{"normal", "shedding", "critical", "exhausted"}[l] }

// thresholds are percentages of the limit. A level begins at from and ends below to, so that it does not flap. allocated
// is for Reading.Allocated.
var thresholds = [...]struct{ from, to, allocated uint64 }{
	Shedding:  {75, 65, 105},
	Critical:  {87, 78, 115},
	Exhausted: {98, 90, 130},
}

// stepDownDelay is how long memory must be below the end of a level before the level ends.
const stepDownDelay = time.Second

// levelTracker derives the level from readings.
type levelTracker struct {
	limit      uint64
	level      Level
	belowSince time.Time // since when memory is below the end of the level; zero: it is not
}

// update returns the level after a reading. It rises at once, and falls by one level at a time.
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

// excess is how much memory must be freed for a level below Critical.
func (l *levelTracker) excess(r Reading) int64 {
	used := r.InUse
	if l.beyond(r.Allocated, thresholds[Critical].allocated) {
		used = max(used, r.Allocated)
	}
	return int64(used) - int64(l.limit/100*thresholds[Critical].to)
}

// UserClass says how long the requests of a user are served when memory runs out.
type UserClass int

const (
	// Ordinary users are refused first.
	Ordinary UserClass = iota
	// System users are nodes and the controllers of the control plane. Nodes that are refused count as dead.
	System
	// Admin is system:masters, who must be able to repair the cluster.
	Admin
)

// UserClassOf is the class of a user, before impersonation.
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

// Serves reports whether the requests of a class are served.
func (l Level) Serves(c UserClass) bool {
	switch c {
	case Admin:
		return true
	case System:
		return l < Exhausted
	}
	return l == Normal
}
