package extserver

import (
	"context"

	"portico.dev/internal/extserver/registration"
	"portico.dev/internal/run"
	"portico.dev/pkg/extension"
)

// part is a set of resources and the members that run for it.
type part struct {
	// resources returns the current resources, which may change at run time.
	resources func() []extension.Resource
	members   []run.Member
	// sources returns the data sources, which may fail independently.
	sources func() []extension.Source
	live    []extension.Check
	ready   []extension.Check
	// needs lists the permissions that the part requires.
	needs []registration.Rule
}

// fixed returns resources that never change.
func fixed(resources ...extension.Resource) func() []extension.Resource {
	return func() []extension.Resource { return resources }
}

func member(name string, f func(context.Context) error) run.Member {
	return run.Member{Name: name, Run: f}
}

// parts are all parts of a server.
type parts []part

func (p parts) resources() []extension.Resource {
	var all []extension.Resource
	for _, one := range p {
		all = append(all, one.resources()...)
	}
	return all
}

func (p parts) sources() []extension.Source {
	var all []extension.Source
	for _, one := range p {
		if one.sources != nil {
			all = append(all, one.sources()...)
		}
	}
	return all
}

func (p parts) needs() []registration.Rule {
	var all []registration.Rule
	for _, one := range p {
		all = append(all, one.needs...)
	}
	return all
}

// parts creates the parts that the options enable. It reads the files that they name.
func (o Options) parts(apply func([]extension.Resource) error) (parts, error) {
	var all parts
	for _, make := range []func() (*part, error){
		o.metricsPart, o.customMetricsPart, o.projectsPart,
		func() (*part, error) { return o.declaredPart(apply) },
	} {
		one, err := make()
		if err != nil {
			return nil, err
		}
		if one != nil {
			all = append(all, *one)
		}
	}
	return all, nil
}
