// Command kubectl is the real kubectl, built from k8s.io/kubectl, so that the tests below e2e need nothing on the machine but Go. It is a
// module of its own, because the product must not require kubectl's dependencies.
//
// Build it with `go run ./e2e/programs/build -to DIR kubectl` in the root of the repository, which sets its version: `kubectl version` fails
// in a program that was built without one.
package main

import (
	"os"

	_ "k8s.io/client-go/plugin/pkg/client/auth" // authentication plugins of kubeconfig files
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	"k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
)

func main() {
	// The verbosity applies before the command is built: lookups of plugins and of the kuberc file log as well. An invalid value is
	// reported when the flags are parsed.
	_, _ = logs.GlogSetter(cmd.GetLogVerbosity(os.Args))
	if err := cli.RunNoErrOutput(cmd.NewDefaultKubectlCommand()); err != nil {
		util.CheckErr(err)
	}
	os.Exit(0)
}
