package store

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestMemberStopsAfterActiveCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		m := &memberAPI{failure: &failure{failed: make(chan struct{})}}
		for range 2 {
			if !m.begin() {
				t.Fatal("begin() = false for a running member, want true")
			}
		}
		m.end()
		time.AfterFunc(time.Second, m.end)
		m.finish(time.Minute)
		if took := time.Since(start); took != time.Second {
			t.Errorf("finish() returned after %s, want 1s", took)
		}
		if m.begin() {
			t.Error("begin() = true for a member that is stopping, want false")
		}
	})
	for what, prepare := range map[string]func(*memberAPI){
		"the limit":               func(*memberAPI) {},
		"a failure of the member": func(m *memberAPI) { m.failure.err = errors.New("failed"); close(m.failure.failed) },
	} {
		synctest.Test(t, func(t *testing.T) {
			m := &memberAPI{failure: &failure{failed: make(chan struct{})}}
			m.begin()
			prepare(m)
			m.finish(time.Second)
			t.Log(what, "ends the wait") // otherwise every goroutine is blocked, and the test fails
		})
	}
}
