package aggregator

import (
	"context"

	"github.com/spf13/pflag"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"portico.dev/internal/auth/rbac"
	"portico.dev/internal/coreapi/admission"
	"portico.dev/internal/coreapi/admission/plugins"
	"portico.dev/internal/lifecycle"
)

func defaultAdmission() admission.Config { return admission.Config{Plugins: plugins.All()} }

func (c *Config) addAdmissionFlags(fs *pflag.FlagSet) {
	a := &c.Admission
	fs.StringSliceVar(&a.Enable, "enable-admission-plugins", a.Enable, "admission plugins to have beside those that are on by default; their order is fixed")
	fs.StringSliceVar(&a.Disable, "disable-admission-plugins", a.Disable, "admission plugins to do without although they are on by default")
	fs.BoolVar(&c.AllowPrivileged, "allow-privileged", c.AllowPrivileged, "let pods have privileged containers")
	fs.StringVar(&a.File, "admission-control-config-file", a.File, "AdmissionConfiguration of apiserver.config.k8s.io: what single admission plugins are configured with")
}

// knownKinds are those that were last known, of dead backends too. Nil while nothing is known yet.
func (h *parts) knownKinds() meta.RESTMapper {
	if h.discovery == nil {
		return nil
	}
	snapshot := h.discovery.Current()
	if snapshot == nil {
		return nil
	}
	return snapshot.RESTMapper()
}

// writeStartObjects brings what every cluster starts with: namespaces, roles and bindings, and the priority classes of the system.
// Webhooks and policies are not asked about it. They may be behind an extension server, which nobody can reach before this
// is done.
func (h *parts) writeStartObjects(ctx context.Context) error {
	if err := lifecycle.EnsureNamespaces(ctx, h.startClients); err != nil {
		return err
	}
	if err := rbac.EnsureBootstrap(ctx, h.startClients); err != nil {
		return err
	}
	if !h.core.GroupVersions().Has(schedulingv1.SchemeGroupVersion) {
		return nil
	}
	return plugins.EnsureSystemPriorityClasses(ctx, h.startClients)
}
