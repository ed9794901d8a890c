package aggregator

import (
	"context"
	"fmt"

	"github.com/spf13/pflag"

	"portico.dev/internal/egress"
)

func (c *Config) addEgressFlags(fs *pflag.FlagSet) {
	fs.StringVar(&c.EgressSelectorConfigFile, "egress-selector-config-file", c.EgressSelectorConfigFile, "EgressSelectorConfiguration of apiserver.k8s.io/v1beta1: tunnels by which nodes, pods and Services (cluster), webhooks that are URLs and what flags name (controlplane), and etcd are reached; default none")
}

// wireEgress leaves h.egress nil, which has no tunnels, if no file is given.
func (h *parts) wireEgress() (err error) {
	file := h.cfg.EgressSelectorConfigFile
	if file == "" {
		return nil
	}
	if h.egress, err = egress.Load(file, h.metrics.Egress); err != nil {
		return fmt.Errorf("--egress-selector-config-file: %w", err)
	}
	return nil
}

// runEgress is started before everything that dials, and ended after it.
func (h *parts) runEgress(ctx context.Context) error { return h.egress.Run(ctx, h.log.Named("egress")) }
