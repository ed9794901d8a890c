package cli

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"portico.dev/internal/tools/drill"
	"portico.dev/internal/tools/toolclient"
)

// completionTimeout bounds the requests of a completion, because the shell waits for it.
const completionTimeout = 2 * time.Second

// completionLimit bounds the list of one completion.
const completionLimit = 500

const noFiles = cobra.ShellCompDirectiveNoFileComp

// completeFlags adds completion to flags of a command and its subcommands, by the names that flags have in all commands.
func completeFlags(c *cobra.Command) {
	complete := func(f *pflag.Flag) {
		values := flagValues(f)
		if _, exists := c.GetFlagCompletionFunc(f.Name); values == nil || exists {
			return
		}
		_ = c.RegisterFlagCompletionFunc(f.Name, values) // the flag exists, and has none
	}
	c.Flags().VisitAll(complete)
	c.PersistentFlags().VisitAll(complete)
	for _, below := range c.Commands() {
		completeFlags(below)
	}
}

// flagValues returns the completion of a flag, or nil for the shell's own.
func flagValues(f *pflag.Flag) cobra.CompletionFunc {
	if formats := f.Annotations[formatsAnnotation]; formats != nil {
		return cobra.FixedCompletions(formats, noFiles)
	}
	switch f.Name {
	case "context", "drills-on", "i-know-this-is":
		return completeContexts
	case "namespace":
		return completeNamespaces
	}
	return nil
}

// clientFlags returns the flags of a command that select an API server. Not all commands have all of them.
func clientFlags(c *cobra.Command) ClientFlags {
	flags := ClientFlags{Timeout: completionTimeout}
	if f := c.Flag("kubeconfig"); f != nil {
		flags.Kubeconfig = f.Value.String()
	}
	if f := c.Flag("context"); f != nil {
		flags.Context = f.Value.String()
	}
	return flags
}

func completeContexts(c *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = clientFlags(c).Kubeconfig
	config, err := rules.Load()
	if err != nil {
		return nil, failed(err)
	}
	var names []cobra.Completion
	for name := range config.Contexts {
		names = append(names, name)
	}
	slices.Sort(names)
	return names, noFiles
}

// failed reports an error in the debug log of completion. Other output of a completion would disturb the command line.
func failed(err error) cobra.ShellCompDirective {
	cobra.CompDebugln(err.Error(), false)
	return noFiles | cobra.ShellCompDirectiveError
}

// completeFromServer completes to names that the API server of the command lists.
func completeFromServer(c *cobra.Command, list func(context.Context, *toolclient.Client, metav1.ListOptions) ([]cobra.Completion, error)) ([]cobra.Completion, cobra.ShellCompDirective) {
	flags := clientFlags(c)
	config, err := flags.Config()
	if err != nil {
		return nil, failed(err)
	}
	client, err := toolclient.New(config)
	if err != nil {
		return nil, failed(err)
	}
	ctx, cancel := context.WithTimeout(c.Context(), completionTimeout)
	defer cancel()
	names, err := list(ctx, client, metav1.ListOptions{Limit: completionLimit})
	if err != nil {
		return nil, failed(err)
	}
	return names, noFiles
}

func completeNamespaces(c *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return completeFromServer(c, func(ctx context.Context, client *toolclient.Client, o metav1.ListOptions) (names []cobra.Completion, err error) {
		namespaces, err := client.Namespaces().List(ctx, o)
		if err != nil {
			return nil, err
		}
		for _, n := range namespaces.Items {
			names = append(names, n.Name)
		}
		return names, nil
	})
}

// completeAPIServices completes to APIServices that have an extension server, without the ones that were already named.
func completeAPIServices(c *cobra.Command, named []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return completeFromServer(c, func(ctx context.Context, client *toolclient.Client, o metav1.ListOptions) (names []cobra.Completion, err error) {
		services, err := client.APIServices().List(ctx, o)
		if err != nil {
			return nil, err
		}
		for _, s := range services.Items {
			if s.Spec.Service != nil && !slices.Contains(named, s.Name) {
				names = append(names, s.Name)
			}
		}
		return names, nil
	})
}

// completeAPIService completes the only argument of a command.
func completeAPIService(c *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, noFiles
	}
	return completeAPIServices(c, args, typed)
}

// completeDoctor completes `doctor apiservice NAME`.
func completeDoctor(c *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return []cobra.Completion{"apiservice"}, noFiles
	}
	return completeAPIService(c, args[1:], typed)
}

func completeDrills(_ *cobra.Command, named []string, _ string) (names []cobra.Completion, _ cobra.ShellCompDirective) {
	for _, d := range drill.All() {
		if !slices.Contains(named, d.Name) {
			names = append(names, cobra.CompletionWithDesc(d.Name, d.Title))
		}
	}
	return names, noFiles
}
