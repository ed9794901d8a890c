package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"k8s.io/klog/v2"

	"portico.dev/internal/aggregator"
	"portico.dev/internal/logging"
	"portico.dev/internal/pki"
	"portico.dev/internal/run"
	"portico.dev/internal/tools/cli"
)

func serveCommand() *cobra.Command {
	config, logs := aggregator.Default(), logging.Default()
	sets := settings(&config, &logs)
	var file string
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the front door",
		Long: `Run the front door. It serves the local groups from an embedded or external etcd, and
proxies every other group-version to the extension server that its APIService names.

The first start creates keys, etcd and admin.kubeconfig (for an administrator's kubectl) in the
data directory, except those that flags name. With a --client-ca-file that does not have the
data directory's client CA, admin.kubeconfig is not created.

Every flag can also be a field of a configuration file (--config); aggregator config print
prints one. SIGHUP reloads the file, and the log lists the settings that were applied and the
settings that require a restart.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r := &reloader{file: file, running: sets, given: changedFlags(sets)}
			if file != "" {
				if err := aggregator.ReadConfigFile(file, sets); err != nil {
					return err
				}
			}
			log, level, err := logs.NewAdjustable()
			if err != nil {
				return err
			}
			defer func() { _ = log.Sync() }() // flush buffered lines
			if err := useInheritedSocket(&config); err != nil {
				return err
			}
			front, err := aggregator.New(config, log)
			if err != nil {
				return err
			}
			r.log, r.level, r.front = log.Named("reload"), level, front
			return settling(cmd.Context(), log, config.MemoryLimit, func(ctx context.Context) error { return r.serveAndReload(ctx, front.Run) })
		},
	}
	addGroups(cmd, sets)
	addConfigFlag(cmd, &file)
	return cmd
}

func devCommand() *cobra.Command {
	config, logs := aggregator.Default(), logging.Default()
	config.AccessLog = false
	logs.Level = "warn"
	var ephemeral bool
	nodes := aggregator.SimulatedNodes{Kwok: "kwok"}
	cmd := &cobra.Command{
		Use:   "dev [--ephemeral [-- COMMAND [ARGUMENT]...]]",
		Short: "Run a front door and an extension server, to try them",
		Long: `Run everything without preparation: an embedded etcd, keys that are created at the first start,
the front door, and an extension server that serves metrics.k8s.io from the procfs of this machine.
The extension server is registered through the public API like any other. It is a child process:
extserver.pid in the data directory has its process ID, and extserver.log its log. Stop it with kill
to see how clients notice; it starts again after a minute. kill -STOP and kill -CONT make it hang.

With --ephemeral only the front door runs, on a free port unless --secure-port is given. It keeps
its data in memory and in a temporary directory, which is removed at exit. COMMAND runs with
KUBECONFIG set to an administrator's kubeconfig, and the program exits with its exit status.

With --nodes, kwok (https://kwok.sigs.k8s.io) simulates that many Nodes, named node-1 and so on. Pods that are
assigned to one of them run, and have logs. kwok must be installed.`,
		Example: "  aggregator dev\n  aggregator dev --nodes 3\n  aggregator dev --ephemeral -- kubectl apply --server-side -f manifests/",
		Args: func(cmd *cobra.Command, args []string) error {
			if ephemeral && nodes.Count != 0 {
				return errors.New("--ephemeral starts the front door alone, without --nodes")
			}
			if len(args) > 0 && !ephemeral {
				return fmt.Errorf("a command (%s) is only of use together with --ephemeral", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			log, err := logs.New()
			if err != nil {
				return err
			}
			defer func() { _ = log.Sync() }() // flush buffered lines
			if !cmd.Flags().Changed("log-level") {
				// Libraries log retries of a slow start, and requests that the shutdown interrupts, as errors.
				klog.SetLogger(logr.Discard())
			}
			// At any time, also during the start. A command of --ephemeral receives the signal of a terminal itself.
			if len(args) == 0 {
				defer context.AfterFunc(cmd.Context(), func() { fmt.Fprintln(cmd.OutOrStdout(), "Stopping. A second Ctrl-C ends it at once.") })()
			}
			if ephemeral {
				if !cmd.Flags().Changed("secure-port") {
					config.SecurePort = 0
				}
				return runEphemeral(cmd, config, args, log)
			}
			return settling(cmd.Context(), log, config.MemoryLimit, func(ctx context.Context) error {
				return aggregator.Dev(ctx, config, nodes, cmd.OutOrStdout(), log)
			})
		},
	}
	addGroups(cmd, settings(&config, &logs))
	cmd.Flags().BoolVar(&ephemeral, "ephemeral", false, "run only the front door, with in-memory storage, until COMMAND exits or the program is interrupted")
	cmd.Flags().IntVar(&nodes.Count, "nodes", 0, "number of Nodes that kwok simulates, at most 1000")
	cmd.Flags().StringVar(&nodes.Kwok, "kwok-binary", nodes.Kwok, "path of the kwok executable for --nodes, or its name in PATH")
	return cmd
}

// devExtserverCommand is the child process of the command dev.
func devExtserverCommand() *cobra.Command {
	logs := logging.Default()
	var kubeconfig, node string
	cmd := &cobra.Command{
		Use: aggregator.DevExtserverCommand, Short: "Run the extension server of the command dev", Args: cobra.NoArgs, Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := logs.New()
			if err != nil {
				return err
			}
			defer func() { _ = log.Sync() }() // flush buffered lines
			return aggregator.DevExtserver(cmd.Context(), kubeconfig, node, cmd.InOrStdin(), cmd.OutOrStdout(), log)
		},
	}
	cmd.Flags().StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig of the extension server")
	cmd.Flags().StringVar(&node, "node-name", "", "name of this machine's Node")
	return cmd
}

func runEphemeral(cmd *cobra.Command, config aggregator.Config, command []string, log *zap.Logger) error {
	ready := func(url, kubeconfig string) {
		if len(command) > 0 {
			return
		}
		fmt.Fprintf(cmd.OutOrStdout(), "Portico listens on %s. Ctrl-C stops it and removes everything.\n", url)
		if kubeconfig != "" {
			fmt.Fprintf(cmd.OutOrStdout(), "\n  export KUBECONFIG=%s\n", kubeconfig)
		}
	}
	stdio := run.Stdio{Stdin: cmd.InOrStdin(), Stdout: cmd.OutOrStdout(), Stderr: cmd.ErrOrStderr()}
	status, err := aggregator.Ephemeral(cmd.Context(), config, command, stdio, ready, log)
	if err == nil && status != 0 {
		return &cli.ExitError{Code: status, Err: fmt.Errorf("%s ended with status %d", command[0], status)}
	}
	return err
}

func kubeconfigCommand() *cobra.Command {
	var dataDir, server, cluster, user, file string
	var groups []string
	var ttl time.Duration
	cmd := &cobra.Command{
		Use:   "kubeconfig --user NAME [--group GROUP]...",
		Short: "Issue a client certificate of the CA in the data directory, as a kubeconfig",
		Example: `  aggregator kubeconfig --user alice --group dev > alice.kubeconfig
  aggregator kubeconfig --user alice --cluster prod > prod.kubeconfig`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			data, err := aggregator.Kubeconfig(dataDir, server, cluster, user, groups, ttl)
			if err != nil {
				return err
			}
			if file != "" {
				return pki.WriteFile(file, data, 0o600)
			}
			_, err = fmt.Fprint(cmd.OutOrStdout(), string(data))
			return err
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&dataDir, "data-dir", aggregator.Default().DataDir, "data directory of the front door")
	fs.StringVar(&server, "server", "", "URL of the front door; default the one in the data directory's admin.kubeconfig")
	fs.StringVar(&cluster, "cluster", "", "name of a Cluster behind the front door; default the front door itself")
	fs.StringVar(&user, "user", "", "name of the user")
	fs.StringSliceVar(&groups, "group", nil, "group of the user; may be repeated")
	fs.DurationVar(&ttl, "ttl", pki.LeafTTL, "lifetime of the credentials")
	fs.StringVar(&file, "file", "", "file to write, with mode 0600; default standard output")
	fs.StringVarP(&file, "output", "o", "", "")
	_ = fs.MarkDeprecated("output", "use --file: -o is an output format everywhere else") // the flag exists
	return cmd
}
