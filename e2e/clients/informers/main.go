// Command informers runs shared informers as controllers do, and prints each event and each request in one
// line. An inconsistency, such as an object that is added twice, a version that is repeated or out of order, or the
// deletion of an unknown object, is printed in a line that begins with WRONG.
//
//	informers KUBECONFIG MODE:GROUP/VERSION/RESOURCE...
//
// MODE is typed, dynamic or metadata. With KUBE_FEATURE_WatchListClient=false in the environment, all informers list
// and then watch.
package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
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
	fmt.Fprintf(os.Stderr, format+"\n", args...)
}

func run(ctx context.Context, args []string) error {
	if len(args) < 2 {
		return errors.New("usage: informers KUBECONFIG MODE:GROUP/VERSION/RESOURCE [MORE]")
	}
	config, err := clientcmd.BuildConfigFromFlags("", args[0])
	if err != nil {
		return err
	}
	config.QPS = -1
	var running sync.WaitGroup
	defer running.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, what := range args[1:] {
		informer, err := open(config, what)
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		running.Go(func() { informer.RunWithContext(ctx) })
		running.Go(func() {
			if cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
				say("%s synced", what)
			}
		})
	}
	<-ctx.Done()
	return nil
}

// open creates the informer for one argument, with a record of its events.
func open(config *rest.Config, what string) (cache.SharedIndexInformer, error) {
	mode, resource, _ := strings.Cut(what, ":")
	parts := strings.Split(resource, "/")
	if len(parts) != 3 {
		return nil, errors.New("is not MODE:GROUP/VERSION/RESOURCE")
	}
	gvr := schema.GroupVersionResource{Group: parts[0], Version: parts[1], Resource: parts[2]}
	informer, err := newInformer(overheard(config, what), mode, gvr)
	if err != nil {
		return nil, err
	}
	book := &objectVersions{what: what, told: map[string]string{}}
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: book.add, UpdateFunc: book.update, DeleteFunc: book.remove})
	return informer, err
}

func newInformer(config *rest.Config, mode string, gvr schema.GroupVersionResource) (cache.SharedIndexInformer, error) {
	switch mode {
	case "typed":
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return nil, err
		}
		informer, err := informers.NewSharedInformerFactory(client, 0).ForResource(gvr)
		if err != nil {
			return nil, err
		}
		return informer.Informer(), nil
	case "dynamic":
		client, err := dynamic.NewForConfig(config)
		if err != nil {
			return nil, err
		}
		return dynamicinformer.NewDynamicSharedInformerFactory(client, 0).ForResource(gvr).Informer(), nil
	case "metadata":
		client, err := metadata.NewForConfig(config)
		if err != nil {
			return nil, err
		}
		return metadatainformer.NewSharedInformerFactory(client, 0).ForResource(gvr).Informer(), nil
	}
	return nil, fmt.Errorf("unknown mode %q", mode)
}

// overheard returns a configuration that prints the requests, with the media types of the responses.
func overheard(config *rest.Config, what string) *rest.Config {
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			response, err := next.RoundTrip(r)
			how, query := "lists", r.URL.Query()
			switch {
			case query.Get("sendInitialEvents") != "":
				how = "watch-lists"
			case query.Get("watch") != "":
				how = "watches"
			}
			if err != nil {
				say("%s %s: %v", what, how, err)
				return response, err
			}
			say("%s %s: %d %s", what, how, response.StatusCode, response.Header.Get("Content-Type"))
			return response, nil
		})
	})
	return config
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
