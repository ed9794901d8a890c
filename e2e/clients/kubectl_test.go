package clients

import (
	"testing"

	"portico.dev/e2e/compat"
)

// kubectl is an interactive use of kubectl. The stories in e2e cover it completely; here it runs among all other clients.
type kubectl struct{ tool }

func (*kubectl) party() *compat.Party { return commandLine }

func (k *kubectl) begin(t *testing.T, w *testEnv) {
	k.tool = tool{program: "kubectl", log: w.path("kubectl.log")}
	commandLine.LogsIn(k.log)
	book.Step(t, commandLine, typed, func(t *testing.T) { k.works(t, w, "begun", "typed") })
}

func (k *kubectl) works(t *testing.T, w *testEnv, namespace, name string) {
	w.namespace(t, namespace)
	file := name + ".yaml"
	w.write(t, file, []byte(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: `+name+`}
spec:
  selector: {matchLabels: {app: `+name+`}}
  template: {metadata: {labels: {app: `+name+`}}, spec: {containers: [{name: web, image: web}]}}
`))
	enter := func(want string, args ...string) {
		t.Helper()
		k.says(t, w, want, append([]string{"--kubeconfig", w.path("admin.kubeconfig"), "-n", namespace}, args...)...)
	}
	enter("deployment.apps/"+name+" serverside-applied\n", "apply", "--server-side", "-f", file)
	enter("", "diff", "--server-side", "-f", file)
	enter("deployment.apps/"+name+" labeled\n", "label", "deployment", name, "seen=yes")
	enter("deployment.apps/"+name+" scaled\n", "scale", "deployment", name, "--replicas=3")
	enter("3 yes", "get", "deployment", name, "-o", "jsonpath={.spec.replicas} {.metadata.labels.seen}")
	enter("deployment.apps/"+name+" condition met\n", "wait", "deployment/"+name, "--for=jsonpath={.spec.replicas}=3", "--timeout=2m")
	enter("queue.stats.example.com/first\n", "get", "queues", "-n", "default", "-o", "name", "--field-selector", "metadata.name=first")
	enter("apiservices.apiregistration.k8s.io\n", "api-resources", "--api-group=apiregistration.k8s.io", "-o", "name")
	enter("yes\n", "auth", "can-i", "delete", "deployments")
	enter(`deployment.apps "`+name+`" deleted from `+namespace+" namespace\n", "delete", "-f", file, "--timeout=2m")
}

func (*kubectl) emptied(t *testing.T, w *testEnv, namespace, _ string) { w.namespace(t, namespace) }
