package drill

import (
	"slices"
	"testing"
	"time"
)

// The times of the history that all of these tests begin with.
var (
	began  = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	broke  = began.Add(2 * time.Second)
	turned = broke.Add(300 * time.Millisecond)
	mended = broke.Add(4 * time.Second)
	back   = mended.Add(500 * time.Millisecond)
	ended  = mended.Add(2 * time.Second)
)

const guilty = "v1.s-abc." + Domain

// survived returns the history of a drill in which the front door met every expectation.
func survived() *History {
	h := &History{
		Times: Times{Began: began, Broke: broke, Mended: mended, Ended: ended},
		Group: "s-abc." + Domain, Registration: guilty,
		Observations: []Observation{
			{At: began, Status: "True", Reason: "Passed"},
			{At: turned, Status: "False", Reason: "FailedDiscoveryCheck", Message: "dial tcp: connect: connection refused"},
			{At: back, Status: "True", Reason: "Passed"},
		},
	}
	for at := began; at.Before(ended); at = at.Add(200 * time.Millisecond) {
		for _, who := range []string{Bystander, Local, Discovery, OpenAPI} {
			h.Requests = append(h.Requests, Request{Who: who, Verb: "get", Start: at, Took: 5 * time.Millisecond, Code: 200, Saw: listed})
		}
		subject := Request{Who: Subject, Verb: "list", Start: at, Took: 5 * time.Millisecond, Code: 200}
		if !at.Before(broke) && at.Before(back) {
			subject.Code, subject.Reason = 503, "ServiceUnavailable"
			subject.Message = "the server is currently unable to handle the request: APIService " + guilty + " is unavailable"
		}
		h.Requests = append(h.Requests, subject)
	}
	return h
}

// change edits the first request of a component in the given phase.
func change(h *History, who, phase string, edit func(*Request)) {
	i := slices.IndexFunc(h.Requests, func(r Request) bool { return r.Who == who && h.phase(r.Start) == phase })
	edit(&h.Requests[i])
}

func TestSurvivedFaultPasses(t *testing.T) {
	refuse, err := Find("refuse")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range judge(survived(), Expected(refuse[0])) {
		if !f.Holds {
			t.Errorf("finding %s does not hold: %s; want it to hold", f.Expected, f.Seen)
		}
	}
}

func TestRequestBeforeTheFaultIsNotCounted(t *testing.T) {
	h := survived()
	h.Broken = broke.Add(100 * time.Millisecond)
	change(h, Subject, "during", func(r *Request) { r.Code = 200 })
	if err := failsWith("503").check(h); err != nil {
		t.Error(err)
	}
	h.Broken = broke
	if err := failsWith("503").check(h); err == nil {
		t.Error("failsWith for a 200 after the fault returned no error, want one")
	}
}

// served makes every request to the subject succeed.
func served(h *History) {
	h.Broken = broke
	for i := range h.Requests {
		if h.Requests[i].Who == Subject {
			h.Requests[i].Code, h.Requests[i].Reason, h.Requests[i].Message = 200, "", ""
		}
	}
}

func TestUnnoticedPartitionPasses(t *testing.T) {
	h := survived()
	served(h)
	h.Requests = append(h.Requests, Request{Who: Subject, Verb: "watch", Start: began, Took: 2500 * time.Millisecond, Code: 200})
	if err := servedAgainIn(time.Second, "list").check(h); err != nil {
		t.Error(err)
	}
}

// Each mutant is a history with one defect. The expectation about that defect must fail, and no unrelated one.
func TestMutatedHistoriesFail(t *testing.T) {
	tests := []struct {
		name   string
		mutate func(*History)
		fails  Expectation
	}{
		{"no traffic after the mending", func(h *History) {
			h.Requests = slices.DeleteFunc(h.Requests, func(r Request) bool { return h.phase(r.Start) == "after" })
		}, ranTraffic()},
		{"one request to the bystander fails", func(h *History) {
			change(h, Bystander, "during", func(r *Request) { r.Code = 503 })
		}, othersUnaffected(Bystander)},
		{"the bystander is never asked", func(h *History) {
			h.Requests = slices.DeleteFunc(h.Requests, func(r Request) bool { return r.Who == Bystander })
		}, othersUnaffected(Bystander)},
		{"one local request breaks off", func(h *History) {
			change(h, Local, "during", func(r *Request) { r.Failure = "broken off: unexpected EOF" })
		}, othersUnaffected(Local)},
		{"discovery takes five seconds once", func(h *History) {
			change(h, Discovery, "during", func(r *Request) { r.Took = 5 * time.Second })
		}, discoveryNeverWaits()},
		{"discovery fails once", func(h *History) {
			change(h, Discovery, "after", func(r *Request) { r.Code = 503 })
		}, discoveryNeverWaits()},
		{"half a document ends without an error", func(h *History) {
			change(h, Subject, "during", func(r *Request) { r.Code, r.Failure = 200, cutShort })
		}, nothingCutShort()},
		{"a namespace is left behind", func(h *History) { h.Left = []string{"namespace drill-abc"} }, nothingLeft()},
		{"the condition turns late", func(h *History) { h.Observations[1].At = broke.Add(6 * time.Second / 2) }, detectedWithin(time.Second)},
		{"the condition never turns", func(h *History) { h.Observations = h.Observations[:1] }, detectedWithin(time.Second)},
		{"the condition gives no cause", func(h *History) { h.Observations[1].Message = "it failed" }, conditionSays("connection refused")},
		{"a fault that must be borne is not", func(*History) {}, staysAvailable()},
		{"it is never available again", func(h *History) { h.Observations = h.Observations[:2] }, recoversWithin(time.Second)},
		{"it is available and does not serve", func(h *History) {
			h.Requests = slices.DeleteFunc(h.Requests, func(r Request) bool { return r.Who == Subject && h.phase(r.Start) == "after" })
		}, recoversWithin(time.Second)},
		{"it recovers late", func(h *History) { h.Observations[2].At = mended.Add(1500 * time.Millisecond) }, recoversWithin(time.Second)},
		{"the condition flaps", func(h *History) {
			for i := range 10 {
				h.Observations = append(h.Observations, Observation{At: back.Add(time.Duration(i)), Status: []string{"False", "True"}[i%2]})
			}
		}, transitionsAtMost(2)},
		{"a 404 for what is dead", func(h *History) {
			change(h, Subject, "during", func(r *Request) { r.Code, r.Reason = 404, "NotFound" })
		}, failsWith("503")},
		{"a 404 for what is dead, where namespaces and owners depend on it", func(h *History) {
			h.Requests[0] = Request{Who: Subject, Verb: "list", Start: broke.Add(time.Second), Code: 404}
		}, neverNotFound()},
		{"a 503 that names nobody", func(h *History) {
			change(h, Subject, "during", func(r *Request) { r.Message = "service unavailable" })
		}, namesTheFailed()},
		{"a client waits although all is known", func(h *History) {
			i := slices.IndexFunc(h.Requests, func(r Request) bool { return r.Who == Subject && r.Start.After(turned) })
			h.Requests[i].Took = 3 * time.Second
		}, failsFast(2 * time.Second)},
		{"a write is lost in a GOAWAY", func(*History) {}, subjectUnaffected("list")},
		{"discovery forgets what the dead serve", func(h *History) {
			change(h, Discovery, "during", func(r *Request) { r.Saw = emptied })
		}, discoveryShows("discovery never forgets", listed, stale)},
		{"OpenAPI hangs behind the endless document", func(h *History) {
			change(h, OpenAPI, "during", func(r *Request) { r.Failure = "no answer within 6s" })
		}, openAPIAnswers()},
		{"a measure is too long", func(h *History) { h.Measures = []Measure{{Name: "m", Seconds: Seconds(2 * time.Second)}} }, within(time.Second, "m", "m")},
		{"what was measured never came", func(h *History) { h.Measures = []Measure{{Name: "m", Never: true}} }, within(time.Second, "m", "m")},
		{"nothing was measured", func(*History) {}, within(time.Second, "m", "m")},
		{"what must not come about did", func(h *History) { h.Measures = []Measure{{Name: "m"}} }, stays("m", "m")},
		{"nobody watched whether it came about", func(*History) {}, stays("m", "m")},
		{"a namespace takes longer beside a dead server", func(h *History) {
			h.Measures = []Measure{{Name: "dead", Seconds: Seconds(9 * time.Second)}, {Name: "alive", Seconds: Seconds(time.Second)}}
		}, noLonger("dead", "alive", time.Second)},
		{"leftovers of a namespace are served before they are deleted", func(h *History) {
			h.Measures = []Measure{{Name: paidAfterMending, Seconds: Seconds(time.Second)}}
		}, paidBeforeAvailable()},
		{"a request fails although another server reaches the subject", func(h *History) {
			h.Broken = broke
		}, servedAgainIn(time.Second, "list")},
		{"nobody asked after the partition was known", func(h *History) {
			h.Requests = slices.DeleteFunc(h.Requests, func(r Request) bool { return r.Who == Subject && h.phase(r.Start) == "during" })
		}, servedAgainIn(time.Second, "list")},
		{"a watch stands still through a partition", func(h *History) {
			served(h)
			h.Requests = append(h.Requests, Request{Who: Subject, Verb: "watch", Start: began, Took: 6 * time.Second, Code: 200})
		}, servedAgainIn(time.Second, "list")},
		{"leftovers of a namespace are never deleted", func(*History) {}, paidBeforeAvailable()},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := survived()
			tt.mutate(h)
			if f := judge(h, []Expectation{tt.fails})[0]; f.Holds {
				t.Errorf("finding %q holds for the mutant, want a failure", f.Expected)
			} else if f.Seen == "" {
				t.Error("finding has an empty Seen, want the observation")
			}
		})
	}
}

// A front door that is stopped on purpose answers no requests. That counts for no expectation, unlike failures before and
// after.
func TestIntentionalOutageExcusesItsRequests(t *testing.T) {
	h := survived()
	h.Outage = Span{broke.Add(time.Second), broke.Add(2 * time.Second)}
	lost := func(at time.Time) {
		h.Requests = append(h.Requests, Request{Who: Local, Verb: "get", Start: at, Took: time.Millisecond, Failure: "connection refused"})
	}
	lost(broke.Add(1500 * time.Millisecond))
	if f := judge(h, []Expectation{othersUnaffected(Local)})[0]; !f.Holds {
		t.Errorf("finding %s during an outage on purpose does not hold: %s; want it to hold", f.Expected, f.Seen)
	}
	refused := Request{Who: Subject, Verb: "list", Start: broke.Add(time.Second), Took: time.Millisecond, Code: 503, Message: "the front door is shutting down"}
	h.Requests = append(h.Requests, refused)
	if f := judge(h, []Expectation{namesTheFailed()})[0]; !f.Holds {
		t.Errorf("finding %s during an outage on purpose does not hold: %s; want it to hold", f.Expected, f.Seen)
	}
	refused.Start = broke.Add(2500 * time.Millisecond)
	h.Requests = append(h.Requests, refused)
	if f := judge(h, []Expectation{namesTheFailed()})[0]; f.Holds {
		t.Error("namesTheFailed holds for a refusal after the outage, want a failure")
	}
	lost(broke.Add(2500 * time.Millisecond))
	if f := judge(h, []Expectation{othersUnaffected(Local)})[0]; f.Holds {
		t.Error("othersUnaffected holds for a failed request after the outage, want a failure")
	}
}

// A machine that stalls fails every request at once. The stall excuses the requests that it touched, is reported, and excuses
// no others.
func TestMachineStallExcusesItsRequests(t *testing.T) {
	h := survived()
	h.Stalls = []Span{{broke, broke.Add(time.Second)}}
	h.Requests = append(h.Requests, Request{Who: Bystander, Verb: "get", Start: broke.Add(-time.Millisecond), Took: 2 * time.Second, Code: 503})
	if f := judge(h, []Expectation{othersUnaffected(Bystander)})[0]; !f.Holds {
		t.Errorf("finding %s during a stall does not hold: %s; want it to hold", f.Expected, f.Seen)
	}
	told := slices.ContainsFunc(measures(h), func(m Measure) bool { return m.Name == machineStood && time.Duration(m.Seconds) == time.Second })
	if !told {
		t.Errorf("measures = %v, want one of the stall with 1 s", measures(h))
	}
	h.Requests = append(h.Requests, Request{Who: Bystander, Verb: "get", Start: broke.Add(time.Second + aftermath), Code: 503})
	if f := judge(h, []Expectation{othersUnaffected(Bystander)})[0]; f.Holds {
		t.Error("othersUnaffected holds for a failed request after the stall, want a failure")
	}
}

func TestSurvivedFaultHasExpectedMeasures(t *testing.T) {
	got := map[string]Measure{}
	for _, m := range measures(survived()) {
		got[m.Name] = m
	}
	for name, want := range map[string]time.Duration{
		TimeToDetect: 300 * time.Millisecond, TimeToRecover: 500 * time.Millisecond, FirstSuccess: 605 * time.Millisecond,
	} {
		if m := got[name]; time.Duration(m.Seconds) != want || m.Never {
			t.Errorf("measure %s = %s, want %s", name, m.Seconds, want)
		}
	}
	never := survived()
	never.Observations = never.Observations[:1]
	if m := measures(never)[0]; !m.Never {
		t.Errorf("undetected fault has the detection time %s, want never", m.Seconds)
	}
}

func TestRowsCountEachVerbInEachPhase(t *testing.T) {
	h := survived()
	h.Requests = append(h.Requests, Request{Who: Subject, Verb: "list", Start: broke.Add(time.Second), Took: time.Second, Failure: "reset"})
	for _, r := range Rows(h) {
		if r.Who != Subject || r.Phase != "during" {
			continue
		}
		if r.Outcomes["503"] != 20 || r.Outcomes["no answer"] != 1 || r.Count != 21 {
			t.Errorf("row of the subject = %d requests with %v, want 21 with 20 503s and 1 without an answer", r.Count, r.Outcomes)
		}
		if time.Duration(r.Max) != time.Second || time.Duration(r.Median) != 5*time.Millisecond {
			t.Errorf("row of the subject: median %s, maximum %s; want 5 ms and 1 s", r.Median, r.Max)
		}
		return
	}
	t.Error("no row for the subject during the fault, want one")
}

// A result states why it passed in spite of failed requests, and which limit a failed drill exceeded.
func TestResultCountsExcusesAndNamesViolations(t *testing.T) {
	stall := Span{began.Add(time.Second), began.Add(2 * time.Second)}
	fail := func(r *Request) { r.Code, r.Failure = 0, "context deadline exceeded" }
	for name, c := range map[string]struct {
		edit              func(*History)
		expected          []Expectation
		verdict, violated string
	}{
		"all well": {func(*History) {}, []Expectation{othersUnaffected(Bystander)}, "passed", ""},
		"a stall that explains failures": {func(h *History) {
			h.Stalls = []Span{stall}
			change(h, Bystander, "during", fail)
			change(h, Discovery, "during", func(r *Request) { r.Took, r.Code = 4*time.Second, 503 })
		}, []Expectation{othersUnaffected(Bystander), discoveryNeverWaits()}, "passed, 2 excused", ""},
		"a stall without an effect": {func(h *History) { h.Stalls = []Span{stall} }, []Expectation{othersUnaffected(Bystander)}, "passed", ""},
		"a failure that the planned downtime explains": {func(h *History) {
			h.Outage = Span{broke, mended}
			change(h, Bystander, "during", fail)
		}, []Expectation{othersUnaffected(Bystander)}, "passed", ""},
		"a failure without an excuse": {
			func(h *History) { change(h, Bystander, "after", fail) }, []Expectation{othersUnaffected(Bystander)},
			"failed", "no request to the other extension server fails: 1 of 40 failed",
		},
		"a measure over its limit": {func(h *History) {
			h.Measures = []Measure{{Name: namespaceGone, Seconds: Seconds(50800 * time.Millisecond)}}
		}, []Expectation{within(10*time.Second, namespaceGone, "the namespace goes")}, "failed", "namespace gone after the return: 50.8 s, limit 10 s"},
		"an event that did not come": {func(h *History) {
			h.Measures = []Measure{{Name: namespaceGone, Seconds: Seconds(time.Minute), Never: true}}
		}, []Expectation{within(10*time.Second, namespaceGone, "the namespace goes")}, "failed", "namespace gone after the return: not in 60 s, limit 10 s"},
		"a late detection and a late return": {
			func(*History) {}, []Expectation{detectedWithin(100 * time.Millisecond), recoversWithin(100 * time.Millisecond)},
			"failed", "time to detect: 0.3 s, limit 0.1 s (and 1 more)",
		},
	} {
		h := survived()
		c.edit(h)
		r := &Result{}
		r.assess(h, c.expected)
		r.Verdict = verdict(r.Findings, nil)
		if r.VerdictText() != c.verdict || r.Violation() != c.violated {
			t.Errorf("%s: verdict %q, violated %q; want %q and %q", name, r.VerdictText(), r.Violation(), c.verdict, c.violated)
		}
	}
}
