package doctor

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico.dev/internal/apiservice"
	"portico.dev/internal/fleet/v1alpha1"
)

const (
	clustersPath     = "/apis/clusters.portico.dev/v1alpha1/clusters"
	clustersResource = "clusters.clusters.portico.dev" // other APIs have clusters, too
)

// ClusterReport is the examination of one Cluster. Its Diagnosis has the name of a condition as Hop.
type ClusterReport struct {
	Cluster string `json:"cluster"`
	// Endpoints is the number of API servers that are ready, and of all: "2/3".
	Endpoints string     `json:"endpoints"`
	Broken    *Diagnosis `json:"broken,omitempty"`
}

// ExamineClusters examines every Cluster, sorted by name. It returns none if the API server does not serve Clusters, or the
// caller may not list them.
func (d *Doctor) ExamineClusters(ctx context.Context) ([]*ClusterReport, error) {
	var list v1alpha1.ClusterList
	switch err := d.api.get(ctx, clustersPath, &list); {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("list clusters from %s: %w", d.api.base.Host, err)
	}
	slices.SortFunc(list.Items, func(a, b v1alpha1.Cluster) int { return strings.Compare(a.Name, b.Name) })
	reports := make([]*ClusterReport, len(list.Items))
	for i := range list.Items {
		reports[i] = examineCluster(&list.Items[i])
	}
	return reports, nil
}

// examineCluster reports the first condition that is not True.
func examineCluster(c *v1alpha1.Cluster) *ClusterReport {
	ready := 0
	for _, e := range c.Status.Endpoints {
		if e.Ready {
			ready++
		}
	}
	r := &ClusterReport{Cluster: c.Name, Endpoints: fmt.Sprintf("%d/%d", ready, len(c.Spec.Server.Endpoints))}
	for _, name := range []string{v1alpha1.ConditionAvailable, v1alpha1.ConditionPermitted} {
		switch condition := meta.FindStatusCondition(c.Status.Conditions, name); {
		case condition == nil:
			r.Broken = &Diagnosis{Hop: name, Cause: "no front door has written the condition; the log of the leading replica has the reason",
				Mend: []string{Kubectl("describe", clustersResource, c.Name)}}
			return r
		case condition.Status != metav1.ConditionTrue:
			cause := apiservice.SingleLine(condition.Reason + ": " + condition.Message)
			r.Broken = &Diagnosis{Hop: name, Cause: cause, Mend: clusterFixes(c, condition)}
			return r
		}
	}
	return r
}

// clusterFixes returns the next steps for a condition that is not True.
func clusterFixes(c *v1alpha1.Cluster, condition *metav1.Condition) []string {
	describe, secret := Kubectl("describe", clustersResource, c.Name), c.Spec.Credentials.Secret
	switch {
	case condition.Reason == v1alpha1.ReasonNoReadyAPIServer:
		return []string{describe, "# KUBECONFIG is one of the cluster itself:", Kubectl("--kubeconfig=KUBECONFIG", "get", "--raw", "/readyz?verbose")}
	case secret == nil || c.Spec.Identity.Mode == v1alpha1.FrontProxy:
		return []string{describe}
	case condition.Reason == v1alpha1.ReasonMissingRights:
		return []string{"# KUBECONFIG is that of an administrator of the cluster itself:",
			"aggregator enroll " + quote(c.Name) + " --dry-run | " + Kubectl("--kubeconfig=KUBECONFIG", "apply", "-f", "-")}
	}
	return []string{Kubectl("-n", secret.Namespace, "describe", "secret", secret.Name),
		"# KUBECONFIG is that of an administrator of the cluster itself; apply the Secret of the output:",
		"aggregator enroll " + quote(c.Name) + " --kubeconfig=KUBECONFIG --namespace=" + quote(secret.Namespace)}
}

// BrokenClusters returns the number of reports with a Diagnosis.
func BrokenClusters(reports []*ClusterReport) int {
	n := 0
	for _, r := range reports {
		if r.Broken != nil {
			n++
		}
	}
	return n
}

// WriteClusters writes one line for each Cluster, and what to do for each that is broken. It writes nothing if there is none.
func WriteClusters(w io.Writer, reports []*ClusterReport) error {
	if len(reports) == 0 {
		return nil
	}
	var b strings.Builder
	tw := tabwriter.NewWriter(&b, 0, 8, 3, ' ', 0)
	fmt.Fprintln(tw, "\nCLUSTER\tENDPOINTS\tSTATE")
	for _, r := range reports {
		state := "ok"
		if r.Broken != nil {
			state = "not " + r.Broken.Hop
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\n", r.Cluster, r.Endpoints, state)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	for _, r := range reports {
		if d := r.Broken; d != nil {
			fmt.Fprintf(&b, "\ncluster %s is not %s\n  what to do:\n", r.Cluster, d.Hop)
			for _, line := range d.Mend {
				fmt.Fprintf(&b, "    %s\n", line)
			}
			fmt.Fprintf(&b, "  cause: %s\n", d.Cause)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
