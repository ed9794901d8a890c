package aggregation

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"portico.dev/internal/logging"
	"portico.dev/internal/metrics"
	"portico.dev/internal/nodes/egress"
	"portico.dev/internal/overload"
	"portico.dev/internal/server"
)

// Base contains the parts on which all other parts depend. They are built first.
type Base struct {
	Registry *prometheus.Registry
	Metrics  *metrics.Metrics
	Memory   overload.Limit
	Overload *overload.Monitor // nil without a limit
	Egress   *egress.Selector  // nil without tunnels
	Drainer  *server.Drainer
	// Bodies limits the memory of request bodies, and of lists that are held as a whole.
	Bodies *server.BodyMemory

	// AccessLog is nil unless the access log has a separate destination.
	AccessLog *logging.AccessLog

	serving Serving
	log     *zap.Logger
}

// NewBase builds the base for valid settings.
func NewBase(s Serving, log *zap.Logger) (b *Base, err error) {
	b = &Base{Registry: prometheus.NewRegistry(), Drainer: server.NewDrainer(), serving: s, log: log}
	metrics.NewProcess(b.Registry)
	b.Metrics = metrics.New(b.Registry)
	b.Metrics.Engines.Use(string(s.HTTPEngine), string(s.BackendEngine))
	if s.Dial != nil {
		b.Egress = egress.Use(s.Dial)
	} else if file := s.EgressSelectorConfigFile; file != "" {
		if b.Egress, err = egress.Load(file, b.Metrics.Egress); err != nil {
			return nil, fmt.Errorf("--egress-selector-config-file: %w", err)
		}
	}
	if b.Memory, err = overload.Find(s.MemoryLimit); err != nil {
		return nil, err
	}
	if b.Memory.Bytes > 0 {
		b.Overload = overload.New(overload.Config{Limit: b.Memory, Metrics: b.Metrics.Overload, Logger: log.Named("overload")})
	}
	b.Bodies = server.NewBodyMemory(b.Memory, b.Metrics.Overload)
	b.Metrics.Buffered.Add(metrics.BufferedBodies, b.Bodies.Charged)
	if s.AccessLog && s.AccessLogFile.Path != "" {
		if b.AccessLog, err = logging.OpenAccessLog(s.AccessLogFile, log); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// Chain completes the configuration of a chain.
func (b *Base) Chain(c server.ChainConfig) server.ChainConfig {
	c.RequestTimeout, c.GoawayChance = b.serving.RequestTimeout, b.serving.GoawayChance
	c.MaxInFlight, c.MaxMutatingInFlight = b.serving.MaxRequestsInFlight, b.serving.MaxMutatingRequestsInFlight
	c.Overload, c.OverloadMetrics, c.Memory, c.Buffered = b.Overload, b.Metrics.Overload, b.Memory, b.Metrics.Buffered
	if c.LargeHeaders != nil {
		c.Buffered.Add(metrics.BufferedHeaders, c.LargeHeaders.Charged)
	}
	c.Metrics, c.Logger, c.Drainer = b.Metrics.Requests, b.log.Named("server"), b.Drainer
	switch {
	case b.AccessLog != nil:
		c.AccessLog = b.AccessLog.Logger()
	case b.serving.AccessLog:
		c.AccessLog = b.log.Named("access")
	}
	return c
}

// Server completes the configuration of a server, except its Proxy, and returns it.
func (b *Base) Server(c server.Config) *server.Server {
	c.Engine, c.ShutdownDelay, c.ShutdownGrace = b.serving.HTTPEngine, b.serving.ShutdownDelay, b.serving.ShutdownGrace
	c.Overload, c.OverloadMetrics, c.Memory = b.Overload, b.Metrics.Overload, b.Memory
	c.Logger, c.Drainer = b.log.Named("server"), b.Drainer
	return server.New(c)
}

// RunEgress runs the tunnels. They start before every part that dials, and stop after it.
func (b *Base) RunEgress(ctx context.Context) error { return b.Egress.Run(ctx, b.log.Named("egress")) }
