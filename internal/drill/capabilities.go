package drill

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/client-go/discovery"
)

// refuses is why a drill cannot be held there; empty when it can.
func (t Target) refuses(ctx context.Context, d Drill) string {
	switch d.Needs {
	case Restart:
		if t.Restart == nil {
			return "it restarts the front door, which this command can do only to one of its own: run it without --kubeconfig"
		}
	case OurAnnotations:
		ours, version, err := t.ours(ctx)
		switch {
		case err != nil:
			return fmt.Sprintf("ask for the version: %v", err)
		case !ours:
			return fmt.Sprintf("it is about an annotation of Portico's, and the server is %s", version)
		}
	}
	return ""
}

// ours: the server is a front door of this project.
func (t Target) ours(context.Context) (ours bool, version string, err error) {
	client, err := discovery.NewDiscoveryClientForConfig(t.Config)
	if err != nil {
		return false, "", err
	}
	info, err := client.ServerVersion()
	if err != nil {
		return false, "", err
	}
	return strings.Contains(info.GitVersion, "portico"), info.GitVersion, nil
}
