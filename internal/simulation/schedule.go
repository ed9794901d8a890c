package simulation

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// step is one fault or one operation of a history.
type step struct {
	// at is when it begins, since the beginning of the history.
	at time.Duration
	// action is the name of an entry of actions.
	action string
	// lasts is how long a fault lasts. 0 for operations.
	lasts time.Duration
	// target and other select the servers of the step; choice is for the decisions of an operation.
	target, other int
	choice        uint64
}

// String describes the step. The description and a seed reproduce it.
func (s step) String() string {
	text := fmt.Sprintf("%7.3fs %s %d %d", s.at.Seconds(), s.action, s.target, s.other)
	if s.lasts > 0 {
		text += fmt.Sprintf(" for %.1fs", s.lasts.Seconds())
	}
	return text
}

// schedule is the steps of a history, by time.
type schedule []step

// String returns one step per line.
func (s schedule) String() string {
	lines := make([]string, len(s))
	for i, step := range s {
		lines[i] = step.String()
	}
	return strings.Join(lines, "\n")
}

const (
	// defaultSteps is the number of steps of a history.
	defaultSteps = 8
	// stepInterval is the mean time between the beginnings of two steps.
	stepInterval = time.Second
	// shortest and longest bound the duration of a fault.
	shortest, longest = 200 * time.Millisecond, 10 * time.Second
)

// newSchedule returns the schedule of a seed. Consecutive seeds visit the pairs of a fault and an operation in turn: each schedule
// contains one fault that begins while the operation is in progress.
func newSchedule(seed uint64, steps int) schedule {
	r := rand.New(rand.NewPCG(seed, 1))
	span := time.Duration(steps) * stepInterval
	s := append(make(schedule, 0, steps), steeredPair(r, seed, span)...)
	total := 0
	for _, a := range actions {
		total += a.weight
	}
	for len(s) < steps {
		s = append(s, newStep(r, actionAt(r.IntN(total)), span))
	}
	slices.SortStableFunc(s, func(a, b step) int { return cmp.Compare(a.at, b.at) })
	return s
}

// inProgress is how long an operation lasts at least.
const inProgress = time.Millisecond

// steeredPair returns an operation and a fault that begins while the operation is in progress, at the same servers.
func steeredPair(r *rand.Rand, seed uint64, span time.Duration) []step {
	faults, operations := faultNames(), operationNames()
	n := int(seed % uint64(len(faults)*len(operations)))
	operation := newStep(r, actionNamed(operations[n/len(faults)]), span)
	fault := newStep(r, actionNamed(faults[n%len(faults)]), span)
	fault.at, fault.target, fault.other = operation.at+inProgress, operation.target, operation.other
	return []step{operation, fault}
}

// newStep returns a step that begins within span.
func newStep(r *rand.Rand, a *action, span time.Duration) step {
	s := step{
		at: time.Duration(r.Int64N(int64(span))).Round(time.Millisecond), action: a.name,
		target: r.IntN(64), other: r.IntN(64), choice: r.Uint64(),
	}
	if a.end != nil {
		s.lasts = shortest + time.Duration(r.Int64N(int64(longest-shortest))).Round(time.Millisecond)
	}
	return s
}

// actionAt returns the action to which a number below the sum of the weights belongs.
func actionAt(n int) *action {
	for i := range actions {
		if n -= actions[i].weight; n < 0 {
			return &actions[i]
		}
	}
	return nil
}

// action is a kind of step.
type action struct {
	name   string
	weight int
	// begin starts a fault, or executes an operation. Each operation runs in a new goroutine; faults begin and end in the
	// goroutine of the history.
	begin func(*history, step)
	// end ends a fault. It is nil for operations.
	end func(*history, step)
}

// actions are all kinds of steps.
var actions []action

func init() {
	actions = slices.Concat(
		backendFaults(), networkFaults(), crashes(), fullEtcds(), requests(), upgrades(), watches(), lifecycle(), registerActions(), holds(),
	)
}

func actionNamed(name string) *action {
	for i := range actions {
		if actions[i].name == name {
			return &actions[i]
		}
	}
	return nil
}
