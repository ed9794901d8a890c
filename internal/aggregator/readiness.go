package aggregator

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"portico.dev/internal/apiservice"
	"portico.dev/internal/server"
)

// ReadinessConfig makes the readiness of this replica depend on backends.
type ReadinessConfig struct {
	// APIServices are the names of the APIServices with backends that a ready replica should reach. Each gets a check
	// at /readyz/backends. Default none: readiness does not depend on extension servers.
	APIServices []string
	// InReadyz adds the checks to /readyz too. Default false.
	InReadyz bool
	// MaxNotReady is the fraction of the replicas that may be not ready for this reason at the same time. Default
	// 0.5.
	MaxNotReady float64
}

func (c *ReadinessConfig) addFlags(fs *pflag.FlagSet) {
	fs.StringSliceVar(&c.APIServices, "readyz-apiservices", c.APIServices, "APIServices, such as v1beta1.metrics.k8s.io, whose backends a ready replica should reach if any replica does; each gets a check at /readyz/backends; default none")
	fs.BoolVar(&c.InReadyz, "readyz-includes-apiservices", c.InReadyz, "include the checks of --readyz-apiservices in /readyz, in addition to /readyz/backends")
	fs.Float64Var(&c.MaxNotReady, "readyz-apiservices-max-not-ready", c.MaxNotReady, "maximum fraction of live replicas, from 0 to 1, that may be not ready because of --readyz-apiservices at the same time; further replicas stay ready")
}

func (c *ReadinessConfig) validate(bad func(flag, format string, args ...any)) {
	for _, name := range c.APIServices {
		if version, group, ok := strings.Cut(name, "."); !ok || version == "" || strings.ContainsAny(group, "/ ") {
			bad("readyz-apiservices", "%q is not the name of an APIService, such as v1beta1.metrics.k8s.io", name)
		}
	}
	if len(c.APIServices) == 0 && c.InReadyz {
		bad("readyz-includes-apiservices", "is only of use together with --readyz-apiservices")
	}
	if !(c.MaxNotReady >= 0 && c.MaxNotReady <= 1) { // NaN is neither
		bad("readyz-apiservices-max-not-ready", "%v is not from 0 to 1", c.MaxNotReady)
	}
}

// backendChecks returns a check for each APIService of --readyz-apiservices. The check of a missing APIService fails.
func (h *parts) backendChecks() []server.Check {
	names := slices.Clone(h.cfg.Readiness.APIServices)
	slices.Sort(names)
	names = slices.Compact(names)
	readiness := apiservice.Readiness{APIServices: names, MaxNotReady: h.cfg.Readiness.MaxNotReady}
	checks := make([]server.Check, len(names))
	for i, name := range names {
		checks[i] = server.Check{Name: "apiservice-" + name, Backend: true, InReadyz: h.cfg.Readiness.InReadyz, Ask: func(context.Context) error {
			err := h.APIServices.CheckReadiness(readiness, name)
			if tolerated, ok := errors.AsType[*apiservice.ToleratedError](err); ok {
				return server.Tolerated(tolerated)
			}
			return err
		}}
	}
	return checks
}
