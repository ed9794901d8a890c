// Package overload sheds load before memory runs out.
//
// Limits of connections, streams, queues and bodies bound what one client can hold. They do not bound what all clients hold
// together, and a process that reaches the limit of its container is killed, with everybody's requests. A Monitor compares the
// memory in use with the limit, several times a second, and from that follows a Level, which says whose requests are served:
//
//	normal     everybody's.
//	shedding   those of nodes, of the control plane's controllers and of system:masters. Others get 503 with Retry-After.
//	critical   the same. Others are refused before anything is done for them, and the connections that hold most are closed.
//	exhausted  those of system:masters.
//
// Health checks and metrics are always answered. The package decides; the server (internal/server) refuses and closes.
//
// # What is in use
//
// The heap holds garbage until it is collected, so that its size says little: with a collector that has room, half of it is garbage
// most of the time. In use for certain is what the last collection found alive, the stacks, and what the runtime itself needs. What
// was allocated since may be garbage or not. The levels follow the first number; the second one counts only when it is beyond the
// whole limit, where the collector does not keep up. When the second crosses a threshold that the first does not, and while load is
// shed, the Monitor asks for collections, at most two a second, so that it neither acts late nor goes on for longer than it must.
//
// A machine that is too busy to take readings in time must not be outrun between two of them: beyond half of the limit, connections
// may bring only so much from one reading to the next (Intake), and what else they bring waits, which their clients notice as TCP's
// back pressure.
//
// What the kernel keeps for this process's control group beside that (buffers of sockets, other processes) counts as in use, the
// pages of files do not.
package overload

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
)

// Level is how short memory is.
type Level int32

// The levels. Each does what the one before does, and more.
const (
	Normal Level = iota
	Shedding
	Critical
	Exhausted
)

// String names the level, for logs.
func (l Level) String() string { return [...]string{"normal", "shedding", "critical", "exhausted"}[l] }

// thresholds are in percent of the limit. A level begins at from and ends below to, so that it does not come and go.
var thresholds = [...]struct{ from, to, possible uint64 }{
	Shedding:  {75, 65, 105},
	Critical:  {87, 78, 115},
	Exhausted: {98, 90, 130},
}

// stepDownDelay is for how long memory must be below a level's end before the level does.
const stepDownDelay = time.Second

// levelTracker is where the level comes from.
type levelTracker struct {
	limit      uint64
	level      Level
	belowSince time.Time // since when memory is below the end of the level; zero: it is not
}

// update says which level follows from a reading. It goes up at once, and down one level after the other.
func (l *levelTracker) update(r Reading, now time.Time) Level {
	highest := Normal
	for level := Shedding; level <= Exhausted; level++ {
		if t := thresholds[level]; l.beyond(r.InUse, t.from) || l.beyond(r.Allocated, t.possible) {
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

// excess is how much must be let go so that a level below Critical follows, as far as a reading says.
func (l *levelTracker) excess(r Reading) int64 {
	used := r.InUse
	if l.beyond(r.Allocated, thresholds[Critical].possible) {
		used = max(used, r.Allocated)
	}
	return int64(used) - int64(l.limit/100*thresholds[Critical].to)
}

// UserClass says how long a user's requests are served while memory runs out.
type UserClass int

const (
	// Ordinary clients are refused first.
	Ordinary UserClass = iota
	// System clients are nodes, and the controllers of the control plane: while they are refused, nodes count as dead.
	System
	// Admin is system:masters: whoever mends things.
	Admin
)

// UserClassOf is what a user is. Who acts as somebody else counts by their own name.
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

// controllers is the group of the service accounts of kube-system.
var controllers = serviceaccount.ServiceAccountGroupPrefix + "kube-system"

// Serves reports whether a client's requests are served.
func (l Level) Serves(c UserClass) bool {
	switch c {
	case Admin:
		return true
	case System:
		return l < Exhausted
	}
	return l == Normal
}
