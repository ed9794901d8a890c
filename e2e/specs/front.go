package main

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"k8s.io/client-go/tools/clientcmd"

	"portico.dev/e2e/environment"
)

// clusterName is the name of the Cluster at the front door.
const clusterName = "specs"

// front starts a front door for an existing cluster, and returns a kubeconfig of an administrator that reaches the cluster through it.
// The administrator is an administrator of the front door, and has the groups in spec.identity.systemGroups in the cluster.
func (r *runner) front(ctx context.Context, y *environment.Environment, direct string) (string, error) {
	front, _, err := y.FrontBeside(ctx, "front", nil, environment.ClustersFlag)
	if err != nil {
		return "", err
	}
	admin, err := front.Kubeconfig()
	if err != nil {
		return "", err
	}
	objects, err := r.output(ctx, "", "aggregator", "enroll", clusterName, "--kubeconfig="+direct)
	if err != nil {
		return "", err
	}
	for _, step := range []struct {
		in   string
		args []string
	}{
		{objects, []string{"apply", "-f", "-"}},
		// Specs impersonate users who have rights in the cluster only.
		{"", []string{"create", "clusterrole", "specs", "--verb=*", "--resource=clusters.clusters.portico.dev/proxy"}},
		{"", []string{"create", "clusterrolebinding", "specs", "--clusterrole=specs", "--group=system:authenticated"}},
		{"", []string{"patch", "cluster", clusterName, "--type=merge", `--patch={"spec":{"identity":{"systemGroups":["system:masters"]}}}`}},
		{"", []string{"wait", "--for=condition=Available", "--for=condition=Permitted", "--timeout=2m", "cluster/" + clusterName}},
	} {
		if _, err := r.output(ctx, step.in, "kubectl", append(step.args, "--kubeconfig="+admin)...); err != nil {
			return "", err
		}
	}
	config, err := clientcmd.LoadFromFile(admin)
	if err != nil {
		return "", err
	}
	for _, cluster := range config.Clusters {
		cluster.Server += environment.ClusterPath(clusterName)
	}
	through := filepath.Join(r.scratch, "through.kubeconfig")
	return through, clientcmd.WriteToFile(*config, through)
}

// output runs one of the programs and returns its standard output.
func (r *runner) output(ctx context.Context, in, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, r.file(program), args...)
	var failure bytes.Buffer
	cmd.Dir, cmd.Stdin, cmd.Stderr = r.scratch, strings.NewReader(in), &failure
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", program, args[0], err, failure.String())
	}
	return string(out), nil
}
