// Command aggregator is a front door for Kubernetes-style APIs.
//
//	dev         everything in one process, with a demonstration extension server
//	serve       the front door alone
//	config      what the front door would be started with, as a file
//	kubeconfig  a client's credentials
//	pki         the certificate authorities of a data directory, and their replacement
//	doctor      which hop of an APIService is broken, and how to mend it
//	console     a page in the browser about the APIServices of a cluster
//	conformance how an extension server, anybody's, keeps to what clients rely on
//	drill       failures of extension servers, rehearsed
//	gateway     the front door of a cluster whose API server stays
//	adopt       APIServices go behind a gateway
//	release     and come out again
//	backup      all that a front door has stored, in a file
//	restore     a data directory from a backup
//	member      the members of an etcd that several front doors have inside
//	token       the tokens by which others join them
//	debts       what finalized namespaces may have left at dead extension servers
//	why         which rule lets a user do something, or comes nearest
//	route       where a request would go, and by which rule
//	migrate     objects of an extension server become custom resources, or the reverse
//	version     what this build is
//
// The commands that work with any API server by its kubeconfig are in internal/cli; what the others start is in internal/aggregator.
package main

import (
	"github.com/spf13/cobra"

	"portico.dev/internal/aggregator"
	"portico.dev/internal/cli"
)

func main() { cli.Main(root()) }

func root() *cobra.Command {
	cmd := &cobra.Command{
		Use:           "aggregator",
		Short:         "A front door for Kubernetes-style APIs",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	cmd.AddCommand(devCommand(), serveCommand(), configCommand(), kubeconfigCommand(), pkiCommand(), gatewayCommand(), backupCommand(), restoreCommand(), memberCommand(), tokenCommand())
	cmd.AddCommand(cli.Commands(cli.Options{Fronts: &ownFronts{config: aggregator.Default()}})...)
	return cmd
}
