// Command aggregator is a front door for Kubernetes-style APIs.
//
//	dev         run a front door and a demonstration extension server
//	serve       run the front door
//	config      print the configuration of the front door as a file
//	kubeconfig  write client credentials
//	pki         show and rotate the certificate authorities of a data directory
//	doctor      find the broken hop of an APIService, and its repair
//	console     serve a web page about the APIServices of a cluster
//	conformance check an extension server against the requirements of clients
//	drill       rehearse failures of extension servers
//	front       run a front for an existing cluster on this machine
//	gateway     run a gateway between an existing API server and its extension servers
//	adopt       put APIServices behind a gateway
//	release     release APIServices from a gateway
//	backup      write a backup of a front door to a file
//	restore     restore a data directory from a backup
//	member      manage the members of an etcd embedded in several front doors
//	token       manage the tokens with which front doors join
//	debts       list objects that finalized namespaces may have left at dead extension servers
//	why         show the rule that permits a request, or the closest ones
//	route       show the backend and the rule for a request
//	migrate     convert objects of an extension server to custom resources, or the reverse
//	version     print the version
//
// The commands that work with any API server through its kubeconfig are in internal/tools/cli. The other commands start
// code in internal/aggregator.
package main

import (
	"github.com/spf13/cobra"

	"portico.dev/internal/aggregator"
	"portico.dev/internal/tools/cli"
)

func main() { cli.Main(root()) }

func root() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "aggregator",
		Short: "A front door for Kubernetes-style APIs",
	}
	cmd.AddCommand(devCommand(), devExtserverCommand(), serveCommand(), configCommand(), kubeconfigCommand(), pkiCommand(), frontCommand(), gatewayCommand())
	clients := []*cobra.Command{backupCommand(), restoreCommand(), memberCommand(), tokenCommand()}
	for _, c := range clients {
		cli.AddVerbosity(c)
	}
	cmd.AddCommand(clients...)
	cmd.AddCommand(cli.Commands(cli.Options{Fronts: &ownFronts{config: aggregator.Default()}})...)
	cli.Prepare(cmd)
	return cmd
}
