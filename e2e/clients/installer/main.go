// Command installer installs charts with Helm's library. Like Helm, it stores releases in Secrets and uses discovery.
//
//	installer KUBECONFIG NAMESPACE install RELEASE CHART [KEY=VALUE...]
//	installer KUBECONFIG NAMESPACE upgrade RELEASE CHART [KEY=VALUE...]
//	installer KUBECONFIG NAMESPACE rollback RELEASE REVISION
//	installer KUBECONFIG NAMESPACE history RELEASE
//	installer KUBECONFIG NAMESPACE status RELEASE
//	installer KUBECONFIG NAMESPACE list
//	installer KUBECONFIG NAMESPACE uninstall RELEASE
//
// Each line of its output is the state of a release.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart"
	"helm.sh/helm/v4/pkg/chart/loader"
	"helm.sh/helm/v4/pkg/kube"
	"helm.sh/helm/v4/pkg/release"
	"helm.sh/helm/v4/pkg/strvals"
	"k8s.io/cli-runtime/pkg/genericclioptions"
)

const timeout = time.Minute

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "installer:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) < 3 {
		return errors.New("usage: installer KUBECONFIG NAMESPACE ACTION [ARGUMENTS]")
	}
	flags := genericclioptions.NewConfigFlags(false)
	flags.KubeConfig, flags.Namespace = &args[0], &args[1]
	config := action.NewConfiguration()
	if err := config.Init(flags, args[1], "secrets"); err != nil {
		return err
	}
	h := &helm{config, args[1]}
	name, rest := args[2], args[3:]
	for _, a := range []struct {
		name  string
		least int
		run   func(context.Context, []string) error
	}{
		{"install", 2, h.install}, {"upgrade", 2, h.upgrade}, {"rollback", 2, h.rollback},
		{"history", 1, h.history}, {"status", 1, h.status}, {"list", 0, h.list}, {"uninstall", 1, h.uninstall},
	} {
		if a.name != name {
			continue
		}
		if len(rest) < a.least {
			return fmt.Errorf("%s needs %d arguments at least", name, a.least)
		}
		return a.run(ctx, rest)
	}
	return fmt.Errorf("unknown action %q", name)
}

// helm contains the configuration for a release.
type helm struct {
	config    *action.Configuration
	namespace string
}

func (h *helm) install(ctx context.Context, args []string) error {
	i := action.NewInstall(h.config)
	i.ReleaseName, i.Namespace, i.CreateNamespace = args[0], h.namespace, true
	i.WaitStrategy, i.Timeout = kube.HookOnlyStrategy, timeout
	made, values, err := read(args[1:])
	if err != nil {
		return err
	}
	r, err := i.RunWithContext(ctx, made, values)
	return tell(r, err)
}

func (h *helm) upgrade(ctx context.Context, args []string) error {
	u := action.NewUpgrade(h.config)
	u.Namespace = h.namespace
	u.WaitStrategy, u.Timeout = kube.HookOnlyStrategy, timeout
	made, values, err := read(args[1:])
	if err != nil {
		return err
	}
	r, err := u.RunWithContext(ctx, args[0], made, values)
	return tell(r, err)
}

func (h *helm) rollback(ctx context.Context, args []string) error {
	to, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	r := action.NewRollback(h.config)
	r.Version, r.WaitStrategy, r.Timeout = to, kube.HookOnlyStrategy, timeout
	if err := r.Run(args[0]); err != nil {
		return err
	}
	return h.status(ctx, args)
}

func (h *helm) history(_ context.Context, args []string) error {
	all, err := action.NewHistory(h.config).Run(args[0])
	if err != nil {
		return err
	}
	return tellAll(all)
}

func (h *helm) status(_ context.Context, args []string) error {
	r, err := action.NewStatus(h.config).Run(args[0])
	return tell(r, err)
}

func (h *helm) list(context.Context, []string) error {
	all, err := action.NewList(h.config).Run()
	if err != nil {
		return err
	}
	return tellAll(all)
}

func (h *helm) uninstall(_ context.Context, args []string) error {
	u := action.NewUninstall(h.config)
	u.WaitStrategy, u.Timeout = kube.StatusWatcherStrategy, timeout
	if _, err := u.Run(args[0]); err != nil {
		return err
	}
	fmt.Printf("%s uninstalled\n", args[0])
	return nil
}

// read loads a chart and parses its values.
func read(args []string) (chart.Charter, map[string]any, error) {
	values := map[string]any{}
	for _, pair := range args[1:] {
		if err := strvals.ParseInto(pair, values); err != nil {
			return nil, nil, fmt.Errorf("%q is not KEY=VALUE: %w", pair, err)
		}
	}
	made, err := loader.Load(args[0])
	return made, values, err
}

func tell(r release.Releaser, err error) error {
	if err != nil {
		return err
	}
	return tellAll([]release.Releaser{r})
}

func tellAll(all []release.Releaser) error {
	for _, r := range all {
		a, err := release.NewAccessor(r)
		if err != nil {
			return err
		}
		fmt.Printf("%s revision %d is %s\n", a.Name(), a.Version(), a.Status())
	}
	return nil
}
