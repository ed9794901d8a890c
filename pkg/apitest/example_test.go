package apitest_test

import (
	"context"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"portico.dev/pkg/apitest"
)

// A test with a server and a separate namespace.
func ExampleStart() {
	_ = func(t *testing.T) {
		env := apitest.Start(t)
		namespace := env.Namespace()
		client, err := kubernetes.NewForConfig(env.Config)
		if err != nil {
			t.Fatal(err)
		}
		pods, err := client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil || len(pods.Items) > 0 {
			t.Errorf("List of Pods in a new namespace = %v, %v, want an empty list and no error", pods, err)
		}
	}
}

// A test of a program while an extension server hangs.
func ExampleBackend() {
	_ = func(t *testing.T) {
		env := apitest.Start(t)
		backend := env.ReadOnlyBackend("metrics.example.com")
		backend.Hang()
		backend.WaitUnavailable()
		// ... the program continues.
		backend.Heal()
		backend.WaitAvailable()
	}
}

// An environment without testing.T, with the interface of controller-runtime's envtest.
func ExampleEnvironment() {
	environment := &apitest.Environment{CRDDirectoryPaths: []string{"config/crd/bases"}}
	config, err := environment.Start()
	if err != nil {
		fmt.Println(err)
		return
	}
	version, err := kubernetes.NewForConfigOrDie(config).Discovery().ServerVersion()
	if err == nil {
		fmt.Println(version.Major, version.Minor)
	}
	_, err = kubernetes.NewForConfigOrDie(config).CoreV1().Namespaces().Get(context.Background(), "default", metav1.GetOptions{})
	fmt.Println(err)
	fmt.Println(environment.Stop())
	// Output:
	// 1 37
	// <nil>
	// <nil>
}
