package incumbent

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"portico.dev/e2e/environment"
)

// many runs the measurements that need a pair of servers for each number of registrations and for each fault. It
// starts all servers one after the other before the measurements. The faults are injected while the servers with
// registrations are idle, because neither uses much of the machine.
func (r *Report) many(ctx context.Context, g *rig) (err error) {
	var registered []*registrations
	for _, count := range g.APIServices {
		p, err := g.registrations(ctx, count)
		if err != nil {
			return err
		}
		registered = append(registered, p...)
	}
	var patients []*brokenService
	defer func() {
		for _, p := range patients {
			err = errors.Join(err, p.leave())
		}
	}()
	for _, f := range faults[:g.Faults] {
		p, err := g.patients(ctx, f)
		patients = append(patients, p...)
		if err != nil {
			return err
		}
	}
	for _, p := range registered {
		g.say("making %d APIServices, %s", p.row.APIServices, p.row.Who)
		if err := p.fill(ctx); err != nil {
			return err
		}
	}
	working, ctx2 := errgroup.WithContext(ctx)
	for _, p := range patients {
		working.Go(func() error {
			if err := p.suffer(ctx2, g); err != nil {
				return fmt.Errorf("%s, %s: %w", p.row.Fault, p.row.Who, err)
			}
			return nil
		})
	}
	working.Go(func() error { return g.leaveAlone(ctx2, registered) })
	if err := working.Wait(); err != nil {
		return err
	}
	for _, p := range patients {
		r.Faults = append(r.Faults, p.row)
		if err := p.end(); err != nil {
			return err
		}
	}
	if err := g.askWhatThereIs(ctx, registered); err != nil {
		return err
	}
	for _, p := range registered {
		g.say("new APIServices beside %d, %s", p.row.APIServices, p.row.Who)
		if err := p.appear(ctx, g.New); err != nil {
			return err
		}
		r.Registrations = append(r.Registrations, p.row)
	}
	return nil
}

// process is one process of a side.
type process struct {
	name string
	*environment.Server
}

const (
	oursName       = "Portico"
	kubernetesName = "kube-apiserver"
)

// sides starts a pair with all its processes.
func (g *rig) sides(ctx context.Context, name string) (ours *environment.Front, theirs *environment.Incumbent, parts [2][]process, err error) {
	if ours, theirs, err = g.pair(ctx, name); err != nil {
		return nil, nil, parts, err
	}
	if err := theirs.Manage(); err != nil {
		return nil, nil, parts, err
	}
	parts[0] = []process{{"aggregator", ours.Server}}
	parts[1] = []process{{"kube-apiserver", theirs.Server}, {"kube-controller-manager", theirs.Manager}, {"etcd", theirs.Etcd}}
	for _, d := range []*environment.FrontDoor{ours.FrontDoor, theirs.FrontDoor} {
		if err := d.Grant(ctx); err != nil {
			return nil, nil, parts, err
		}
	}
	return ours, theirs, parts, nil
}
