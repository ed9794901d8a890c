// Command kubectl is the real kubectl, built from its own library so that the stories in e2e need nothing on the
// machine but Go. It lives in a module of its own: the front door must not carry kubectl's dependencies.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	"k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
)

func main() {
	if err := cli.RunNoErrOutput(cmd.NewDefaultKubectlCommand()); err != nil {
		util.CheckErr(err)
	}
	os.Exit(0)
}
