package console

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"
)

func TestRecentRunReplacesAutomaticRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := &jobs{state: newState(), now: time.Now, begun: map[jobTarget]*job{}}
		run := func(target string, takes time.Duration) int {
			t.Helper()
			id, err := j.start(t.Context(), "doctor", target, time.Hour, func(context.Context, *job) error {
				<-time.After(takes)
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			return id
		}
		check := func(when, target string, want int) {
			t.Helper()
			if id, ok := j.recent("doctor", target); id != want || ok != (want > 0) {
				t.Errorf("recent run on %s, %s = %d, %v; want %d", target, when, id, ok, want)
			}
		}
		check("before any", "a", 0)
		id := run("a", time.Minute)
		check("at the beginning", "a", id)
		check("at the beginning", "b", 0)
		time.Sleep(59 * time.Second)
		check("while it runs for longer than the gap", "a", id)
		j.wg.Wait()
		check("after its end", "a", 0)
		id = run("a", time.Second)
		j.wg.Wait()
		for range maxJobs + 1 { // they displace it from the list
			run("b", time.Second)
			j.wg.Wait()
		}
		check("within the gap", "a", id)
		time.Sleep(automaticGap)
		check("after the gap", "a", 0)
		check("after the gap", "b", 0)
		run("c", 0)
		j.wg.Wait()
		if len(j.begun) != 1 {
			t.Errorf("%d remembered runs after the gap, want 1", len(j.begun))
		}
	})
}

// The page of an unavailable APIService runs the doctor. Its requests never fail because of another run.
func TestAutomaticDoctorRunsAreBounded(t *testing.T) {
	now := time.Now()
	c := startedWith(t, Config{Client: &rest.Config{Host: apiServer(t, 2).URL}, now: func() time.Time { return now }})
	stream(t, c)("apiservices")
	post := func(name string, automatic string) (answer struct {
		ID   int
		Busy bool
	}) {
		t.Helper()
		a := send(t, c, "POST", c.guard.prefix+"api/doctor", `{"apiService":"`+name+`","automatic":`+automatic+`}`, append(withCookie(c), "Origin", c.origin())...)
		if a.code != http.StatusOK {
			t.Fatalf("POST for a run on %s = %d %s, want 200", name, a.code, a.body)
		}
		if err := json.Unmarshal([]byte(a.body), &answer); err != nil {
			t.Fatal(err)
		}
		return answer
	}
	const first, second = "v1.g0000.example.com", "v1.g0001.example.com"
	begun := post(first, "true").ID
	c.jobs.wg.Wait()
	if a := post(first, "true"); a.ID != begun {
		t.Errorf("answer of an automatic run a moment later = %+v, want run %d again", a, begun)
	}
	byHand := post(first, "false").ID
	c.jobs.wg.Wait()
	if byHand == begun {
		t.Errorf("run by hand = %d, want a new one", byHand)
	}
	blocked := make(chan struct{})
	if _, err := c.jobs.start(t.Context(), "drills", "x", time.Minute, func(context.Context, *job) error { <-blocked; return nil }); err != nil {
		t.Fatal(err)
	}
	if a := post(second, "true"); !a.Busy {
		t.Errorf("answer of an automatic run during another run = %+v, want busy", a)
	}
	close(blocked)
	c.jobs.wg.Wait()
	if a := post(second, "true"); a.Busy || a.ID <= byHand {
		t.Errorf("answer of an automatic run after the other run = %+v, want a new run", a)
	}
	c.jobs.wg.Wait()
	var results []string
	for _, d := range c.audit.all {
		results = append(results, d.What+" "+d.Target)
	}
	want := "automatically run the doctor on " + second + "\nrun the doctor on " + first + "\nautomatically run the doctor on " + first
	if got := strings.Join(results, "\n"); got != want {
		t.Errorf("audit list:\n%s\nwant:\n%s", got, want)
	}
}
