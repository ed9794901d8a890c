// Command manager is a typical operator with controller-runtime: leader election, a cache of typed, unstructured and
// metadata objects, finalizers, status, events, and a client that uses every verb once. It reconciles Gadgets, whose
// CRD it creates, and watches service accounts and the queues of an extension server.
//
//	manager KUBECONFIG NAMESPACE
//
// Its leases and the objects for the verbs are in NAMESPACE. Each line of its output is a completed action.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		say("ended: %v", err)
		os.Exit(1)
	}
}

var printing sync.Mutex // serializes writes to standard error

// say prints one line.
func say(format string, args ...any) {
	printing.Lock()
	defer printing.Unlock()
	fmt.Fprintf(os.Stderr, "manager: "+format+"\n", args...)
}

func run(ctx context.Context, args []string) error {
	if len(args) != 2 {
		return errors.New("usage: manager KUBECONFIG NAMESPACE")
	}
	log.SetLogger(klog.Background())
	config, err := clientcmd.BuildConfigFromFlags("", args[0])
	if err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, addGadgets} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	direct, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return err
	}
	if err := installGadgets(ctx, direct); err != nil {
		return fmt.Errorf("install the CRD: %w", err)
	}
	m, err := newManager(config, scheme, args[1])
	if err != nil {
		return err
	}
	for _, add := range []func(manager.Manager) error{addGadgetController, addAccountController, addQueueController} {
		if err := add(m); err != nil {
			return err
		}
	}
	if err := m.Add(&verbs{manager: m, namespace: args[1]}); err != nil {
		return err
	}
	return m.Start(ctx)
}

// newManager returns a manager that survives a restart of its API server, because its lease lasts for a minute.
func newManager(config *rest.Config, scheme *runtime.Scheme, namespace string) (manager.Manager, error) {
	lease, renew, retry := 60*time.Second, 50*time.Second, time.Second
	return manager.New(config, manager.Options{
		Scheme:                        scheme,
		Metrics:                       server.Options{BindAddress: "0"},
		LeaderElection:                true,
		LeaderElectionID:              "gadgets.portico.dev",
		LeaderElectionNamespace:       namespace,
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 &lease,
		RenewDeadline:                 &renew,
		RetryPeriod:                   &retry,
	})
}
