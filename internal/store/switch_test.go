package store

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestAMemberIsStoppedAfterTheCallsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		m := &memberAPI{failure: &failure{failed: make(chan struct{})}}
		for range 2 {
			if !m.begin() {
				t.Fatal("no call begins")
			}
		}
		m.end()
		time.AfterFunc(time.Second, m.end)
		m.finish(time.Minute)
		if took := time.Since(start); took != time.Second {
			t.Errorf("the call ended after a second, and the wait after %s", took)
		}
		if m.begin() {
			t.Error("a call begins at a member that is to be stopped")
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
