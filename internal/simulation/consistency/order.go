package consistency

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"sort"
	"time"

	"github.com/anishathalye/porcupine"
)

// orderTimeout limits the search for an order of one object's requests.
const orderTimeout = 30 * time.Second

// judgeOrder checks with Porcupine that the requests for each object are linearizable: within their times, they have an order in
// which every response is correct. It ignores versions, so that it is independent of the other rules. If a request has an
// unknown outcome and its value was never stored, it did not change anything.
func (j *judge) judgeOrder() {
	byKey := map[string][]porcupine.Operation{}
	for i, op := range j.Ops {
		end := op.End
		switch op.Outcome {
		case Refused:
			continue
		case Unknown:
			if op.Verb == Delete && j.deletionOf(op) == 0 || op.Verb != Delete && j.byValue[op.Value].Version == 0 {
				continue
			}
			end = math.MaxInt64
		}
		if op.Verb == Get && op.Asked != Latest {
			continue
		}
		byKey[op.Key] = append(byKey[op.Key], porcupine.Operation{ClientId: i, Input: op, Call: op.Start, Return: end})
	}
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		if ops := byKey[key]; !ordered(ops) {
			slices.SortFunc(ops, func(a, b porcupine.Operation) int { return cmp.Compare(a.Input.(Op).End, b.Input.(Op).End) })
			fit := sort.Search(len(ops), func(n int) bool { return !ordered(ops[:n+1]) })
			j.find(NoOrder, "%s, from %+v on", key, ops[min(fit, len(ops)-1)].Input)
		}
	}
}

func ordered(ops []porcupine.Operation) bool {
	return porcupine.CheckOperationsTimeout(object, ops, orderTimeout) != porcupine.Illegal
}

// object models one object. Its state is its value, empty if the object does not exist.
var object = porcupine.Model{
	Init: func() any { return "" },
	Step: func(state, input, _ any) (bool, any) {
		now, op := state.(string), input.(Op)
		if op.Verb == Get {
			return now == op.Value, now
		}
		fits := now == op.Replaces
		if op.Unconditional {
			fits = now != ""
		}
		if !fits { // an unacknowledged write may have arrived too late
			return op.Outcome == Unknown, now
		}
		return true, op.Value
	},
}
