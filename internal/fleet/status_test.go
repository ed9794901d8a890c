package fleet

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico.dev/internal/fleet/v1alpha1"
)

func TestStatus(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		a := e.start("a")
		for _, kind := range []string{v1alpha1.ConditionAvailable, v1alpha1.ConditionPermitted} {
			if got := e.condition("a", kind); got.Status != metav1.ConditionTrue || got.ObservedGeneration != 1 {
				t.Errorf("condition = %+v, want True of generation 1", got)
			}
		}
		if got := e.object("a").Status.Endpoints; len(got) != 1 || !got[0].Ready || got[0].Address != a.address {
			t.Errorf("endpoints = %+v, want the ready one at %s", got, a.address)
		}
		e.writes.Store(0)
		time.Sleep(20 * time.Minute)
		synctest.Wait()
		if n := e.writes.Load(); n != 0 {
			t.Errorf("%d writes for an idle cluster in 20 minutes, want 0", n)
		}
		e.change("a", func(s *v1alpha1.ClusterSpec) { s.Identity.UserPrefix = "x:" })
		if got := e.condition("a", v1alpha1.ConditionPermitted); got.ObservedGeneration != 2 {
			t.Errorf("condition = %+v, want generation 2", got)
		}
		// The informer may be behind the first write. A real API refuses the second as a conflict.
		if n := e.writes.Load(); n < 1 || n > 2 {
			t.Errorf("%d writes for a change of the object, want 1 or 2", n)
		}
	})
}

func TestOnlyTheLeaderWritesStatus(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		e.leads.Store(false)
		e.start("a")
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := e.writes.Load(); n != 0 {
			t.Errorf("%d writes of a follower, want 0", n)
		}
		e.expect(own, "/clusters/a/api/v1/pods", 200, "a")
		e.leads.Store(true)
		settleDown()
		if got := e.condition("a", v1alpha1.ConditionAvailable); got.Status != metav1.ConditionTrue {
			t.Errorf("condition = %+v after the election, want True", got)
		}
	})
}

func TestRightsAreCheckedAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		e.start("a")
		checked := func() time.Time {
			found, _ := e.fleet.statuses.records.Load("a")
			return found.(*record).rights.at
		}
		last := checked()
		settleDown()
		if !checked().Equal(last) {
			t.Error("the rights were checked again without a reason")
		}
		for name, change := range map[string]func(){
			"secret": func() { e.secrets.Modify(secret("a", map[string]string{"token": "another"})); settleDown() },
			"object": func() { e.change("a", func(s *v1alpha1.ClusterSpec) { s.Identity.Tokens = v1alpha1.NoTokens }) },
		} {
			last = checked()
			change()
			if !checked().After(last) {
				t.Errorf("the rights were not checked after a change of the %s", name)
			}
		}
	})
}

// TestA67StatusWritesAreLimited lets an API server report another reason at each probe.
func TestA67StatusWritesAreLimited(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		a := e.start("a")
		e.writes.Store(0)
		for i := range 300 {
			text := fmt.Sprintf("[-]check-%d failed\n", i)
			a.notReady.Store(&text)
			time.Sleep(time.Second)
		}
		synctest.Wait()
		if n := e.writes.Load(); n < 20 || n > 75 {
			t.Errorf("%d writes in 5 minutes, want about 60", n)
		}
		a.notReady.Store(nil)
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if got := e.condition("a", v1alpha1.ConditionAvailable); got.Status != metav1.ConditionTrue {
			t.Errorf("condition = %+v, want True", got)
		}
	})
}
