// Command mappers asks a front door what it serves in the ways of the libraries that most controllers and installers
// are built on: controller-runtime's lazy mapper, kind by kind, and everything at once as Helm does before it renders a
// chart. It lives in a module of its own: the front door must not carry their dependencies.
//
//	mappers KUBECONFIG KIND.VERSION.GROUP...
package main

import (
	"errors"
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "mappers:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		return errors.New("usage: mappers KUBECONFIG KIND.VERSION.GROUP...")
	}
	config, err := clientcmd.BuildConfigFromFlags("", args[0])
	if err != nil {
		return err
	}
	if err := everything(config); err != nil {
		return err
	}
	return kinds(config, args[1:])
}

// everything is what Helm asks (action.GetVersionSet): groups that fail are left out when they are said to have failed.
func everything(config *rest.Config) error {
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return err
	}
	groups, resources, err := client.ServerGroupsAndResources()
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) {
		return fmt.Errorf("discover everything: %w", err)
	}
	fmt.Printf("everything: %d groups, %d lists of resources\n", len(groups), len(resources))
	return nil
}

func kinds(config *rest.Config, names []string) error {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	mapper, err := apiutil.NewDynamicRESTMapper(config, client)
	if err != nil {
		return err
	}
	for _, name := range names {
		kind, _ := schema.ParseKindArg(name)
		if kind == nil {
			return fmt.Errorf("%q is not KIND.VERSION.GROUP", name)
		}
		mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
		switch {
		case meta.IsNoMatchError(err):
			fmt.Printf("%s: no match\n", name)
		case err != nil:
			fmt.Printf("%s: %v\n", name, err)
		default:
			fmt.Printf("%s: %s\n", name, mapping.Resource.Resource)
		}
	}
	return nil
}
