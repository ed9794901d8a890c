package e2e

import (
	"os"
	"regexp"
	"testing"

	"portico.dev/e2e/programs"
)

// banner is all that `aggregator dev` prints until it has stopped.
var banner = regexp.MustCompile(`^Portico listens on https://127\.0\.0\.1:\d+ \(ready in [\d.]+ s\)\. Ctrl-C stops it\.

  export KUBECONFIG=\S+

Try:
  kubectl get apiservices
  kubectl top nodes
  kubectl create configmap a --from-literal=k=v

Stop the extension server behind kubectl top, which starts again after a minute:
  kill \$\(cat \S+extserver\.pid\)
  kubectl top nodes
  aggregator doctor
Stopping\. A second Ctrl-C ends it at once\.
$`)

func TestDevPrintsItsBannerOnly(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, start := range []string{"first", "second"} {
		dev, kubeconfig := programs.Dev(t, binaries, dir)
		kubectl := programs.Kubectl(binaries, dir, kubeconfig)
		if err := programs.Poll(dev.Exited(), func() error {
			_, err := kubectl("get", "nodes.metrics.k8s.io")
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if code, err := dev.Stop(os.Interrupt); err != nil || code != 0 {
			t.Fatalf("exit status of aggregator dev = %d, %v; want 0", code, err)
		}
		dev.Ended = true
		if out := dev.Output(); !banner.MatchString(out) {
			t.Errorf("output of the %s start =\n%s\nwant the banner", start, out)
		}
	}
}
