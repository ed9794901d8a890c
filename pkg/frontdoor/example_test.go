package frontdoor_test

import (
	"context"
	"fmt"
	"io"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"portico.dev/pkg/frontdoor"
)

// An in-memory front door, a client without a socket, and the shutdown.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	front, err := frontdoor.New(frontdoor.Config{Storage: frontdoor.Storage{InMemory: true}})
	if err != nil {
		fmt.Println(err)
		return
	}
	ended := make(chan error, 1)
	go func() { ended <- front.Run(ctx) }()
	select {
	case <-front.Ready():
	case err := <-ended:
		fmt.Println(err)
		return
	}
	config, err := front.InProcessConfig("admin", []string{"system:masters"})
	if err != nil {
		fmt.Println(err)
		return
	}
	namespaces, err := kubernetes.NewForConfigOrDie(config).CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, n := range namespaces.Items {
		fmt.Println(n.Name)
	}
	stop()
	fmt.Println(<-ended)
	// Output:
	// default
	// kube-node-lease
	// kube-public
	// kube-system
	// <nil>
}

// Custom paths in an aggregator whose only local group is apiregistration.k8s.io.
func ExampleConfig() {
	_, err := frontdoor.New(frontdoor.Config{
		DataDir:      "/var/lib/front",
		ServedGroups: []string{},
		Handlers: map[string]http.Handler{"/hello": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "hello\n")
		})},
		Flags: []string{"--audit-log-path=-"},
	})
	fmt.Println(err)
	// Output: <nil>
}
