// Command operator grants service accounts the permissions in an annotation: a Role and a RoleBinding for each
// account, which are deleted with the account or the annotation. It runs as a service account without further
// permissions. Therefore it can grant only its own permissions, and reports requests for more.
//
//	operator KUBECONFIG
//
// Each line of its output is a completed action.
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

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/workqueue"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		say("ended: %v", err)
		os.Exit(1)
	}
}

func say(format string, args ...any) { fmt.Fprintf(os.Stderr, "operator: "+format+"\n", args...) }

func run(ctx context.Context, args []string) error {
	if len(args) != 1 {
		return errors.New("usage: operator KUBECONFIG")
	}
	config, err := clientcmd.BuildConfigFromFlags("", args[0])
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	accounts := factory.Core().V1().ServiceAccounts()
	o := &operator{client: client, accounts: accounts.Lister(), queue: workqueue.NewTypedRateLimitingQueue(
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](50*time.Millisecond, 5*time.Second))}
	if _, err := accounts.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: o.enqueue, UpdateFunc: func(_, now any) { o.enqueue(now) },
	}); err != nil {
		return err
	}
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	if !cache.WaitForCacheSync(ctx.Done(), accounts.Informer().HasSynced) {
		return ctx.Err()
	}
	say("watches")
	var workers sync.WaitGroup
	for range 2 {
		workers.Go(func() { o.work(ctx) })
	}
	<-ctx.Done()
	o.queue.ShutDown()
	workers.Wait()
	return nil
}

func (o *operator) enqueue(account any) {
	if a, ok := account.(*corev1.ServiceAccount); ok {
		o.queue.Add(cache.MetaObjectToName(a).String())
	}
}

func (o *operator) work(ctx context.Context) {
	for {
		key, ended := o.queue.Get()
		if ended {
			return
		}
		err := o.reconcile(ctx, key)
		o.queue.Done(key)
		if err != nil {
			say("%s again: %v", key, err)
			o.queue.AddRateLimited(key)
			continue
		}
		o.queue.Forget(key)
	}
}
