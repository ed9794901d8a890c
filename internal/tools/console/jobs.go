package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"portico.dev/internal/tools/doctor"
	"portico.dev/internal/tools/drill"
)

const (
	// maxJobs bounds the number of runs with stored reports.
	maxJobs = 10
	// maxReports bounds the number of reports sent for one run. Broken APIServices come first.
	maxReports = 300
	// doctorLimit and drillLimit bound the duration of a run.
	doctorLimit, drillLimit = 15 * time.Minute, time.Hour
	// automaticGap is the minimum time from a run on a target to an automatic run on it.
	automaticGap = 30 * time.Second
)

// allAPIServices is the target of a run of the doctor on all APIServices.
const allAPIServices = "all APIServices"

// Drills runs failure drills.
type Drills struct {
	// Where is a description of the environment of the drills.
	Where string
	// Run runs drills and returns when the cleanup is complete.
	Run func(ctx context.Context, drills []drill.Drill, o drill.Observer) ([]*drill.Result, error)
}

var errBusy = errors.New("another run is under way: wait for it, or cancel it")

// jobs holds the runs that the page started. One runs at a time.
type jobs struct {
	state *state
	now   func() time.Time

	mu     sync.Mutex // guards the fields below, except wg
	all    []*job     // latest first
	last   int
	begun  map[jobTarget]*job // the latest run on each target, at least of the last automaticGap
	cancel context.CancelFunc // cancels the current run
	wg     sync.WaitGroup
}

type jobTarget struct{ kind, target string }

// recent returns the number of the latest run on a target if it is running or began within automaticGap.
func (j *jobs) recent(kind, target string) (id int, ok bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	one := j.begun[jobTarget{kind, target}]
	if one == nil || !one.Ended.IsZero() && j.now().Sub(one.Began) >= automaticGap {
		return 0, false
	}
	return one.ID, true
}

// start runs f in the background. Its context ends with the server, on cancellation or at the limit.
func (j *jobs) start(ctx context.Context, kind, target string, limit time.Duration, f func(context.Context, *job) error) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.cancel != nil {
		return 0, errBusy
	}
	ctx, j.cancel = context.WithTimeout(ctx, limit)
	cancel := j.cancel
	j.last++
	one := &job{ID: j.last, Kind: kind, Target: target, Began: j.now(), State: "running"}
	maps.DeleteFunc(j.begun, func(_ jobTarget, old *job) bool { return one.Began.Sub(old.Began) >= automaticGap })
	j.begun[jobTarget{kind, target}] = one
	j.all = append([]*job{one}, j.all...)
	j.all = j.all[:min(len(j.all), maxJobs)]
	j.publish()
	j.wg.Go(func() {
		defer cancel()
		err := f(ctx, one)
		j.mu.Lock()
		defer j.mu.Unlock()
		one.Ended, one.State, one.Phase, j.cancel = j.now(), "done", "", nil
		switch {
		case errors.Is(err, context.Canceled) || err == nil && ctx.Err() != nil:
			one.State = "cancelled"
		case err != nil:
			one.State, one.Error = "failed", err.Error()
		}
		j.publish()
	})
	return one.ID, nil
}

// stop cancels the run with the given number, if it is running.
func (j *jobs) stop(id int) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.all) == 0 || j.all[0].ID != id || j.cancel == nil {
		return fmt.Errorf("run %d is not under way", id)
	}
	j.cancel()
	return nil
}

// publish requires mu.
func (j *jobs) publish() {
	j.state.update(func() { j.state.publish(sectionJobs, j.all) })
}

func (j *jobs) change(f func()) {
	j.mu.Lock()
	defer j.mu.Unlock()
	f()
	j.publish()
}

// result is a run with its reports.
type result struct {
	job
	Reports []*doctor.Report `json:"reports,omitempty"`
	Drills  []*drill.Result  `json:"drills,omitempty"`
	// LeftOut is the number of reports that were not sent.
	LeftOut int `json:"leftOut,omitempty"`
}

func (j *jobs) result(id int) (result, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	i := slices.IndexFunc(j.all, func(one *job) bool { return one.ID == id })
	if i < 0 {
		return result{}, false
	}
	r := result{job: *j.all[i], Reports: slices.Clone(j.all[i].reports), Drills: j.all[i].drills}
	slices.SortStableFunc(r.Reports, func(a, b *doctor.Report) int {
		return cmp.Compare(btoi(a.Broken == nil), btoi(b.Broken == nil))
	})
	if over := len(r.Reports) - maxReports; over > 0 {
		r.Reports, r.LeftOut = r.Reports[:maxReports], over
	}
	return r, true
}

// runDoctor examines one APIService, or all of them if name is empty.
func (c *Console) runDoctor(ctx context.Context, name string) (int, error) {
	target := cmp.Or(name, allAPIServices)
	return c.jobs.start(ctx, "doctor", target, doctorLimit, func(ctx context.Context, one *job) error {
		d, err := doctor.New(doctor.Config{Client: c.cfg.Client, Timeout: c.cfg.Timeout})
		if err != nil {
			return err
		}
		defer d.Close()
		var reports []*doctor.Report
		if name == "" {
			reports, err = d.ExamineAll(ctx)
		} else if report, failed := d.Examine(ctx, name); failed == nil {
			reports = append(reports, report)
		} else {
			err = failed
		}
		if err == nil {
			c.jobs.change(func() { one.reports, one.Checked, one.Broken = reports, len(reports), doctor.Broken(reports) })
		}
		return err
	})
}

// runDrills runs drills one after the other.
func (c *Console) runDrills(ctx context.Context, names []string) (int, error) {
	if c.cfg.Drills == nil {
		return 0, errors.New(c.cfg.NoDrills)
	}
	drills, err := drill.Find(names...)
	if err != nil {
		return 0, err
	}
	target := names[0]
	if len(names) > 1 {
		target = fmt.Sprintf("%d drills", len(names))
	}
	return c.jobs.start(ctx, "drills", target, drillLimit, func(ctx context.Context, one *job) error {
		results, err := c.cfg.Drills.Run(ctx, drills, &progress{c.jobs, one})
		c.jobs.change(func() { one.drills, one.Checked = results, len(results) })
		return err
	})
}

// progress shows the progress of drills.
type progress struct {
	jobs *jobs
	one  *job
}

// Phase implements drill.Observer.
func (p *progress) Phase(name, phase string) {
	p.jobs.change(func() { p.one.Phase = name + ": " + phase })
}

// Done implements drill.Observer.
func (p *progress) Done(r *drill.Result) {
	p.jobs.change(func() {
		p.one.Checked++
		if r.Verdict == drill.Failed || r.Verdict == drill.Broken {
			p.one.Broken++
		}
	})
}

func listDrills(with *Drills, why string) drillList {
	list := drillList{Why: why, Drills: []drillInfo{}}
	if with != nil {
		list.Where, list.Why = with.Where, ""
	}
	for _, d := range drill.All() {
		info := drillInfo{Name: d.Name, Title: d.Title, About: d.About.String()}
		for _, e := range drill.Expected(d) {
			info.Expect = append(info.Expect, e.Text)
		}
		list.Drills = append(list.Drills, info)
	}
	return list
}
