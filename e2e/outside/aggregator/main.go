// Command aggregator is a front door without local groups but that of APIServices: everything that clients see is served by extension
// servers, or by the program itself. Users are who their tokens in the environment variable TOKENS ("token=name,...") say, and may do
// what the program decides.
//
//	aggregator --data-dir=DIR --backend=GROUP/VERSION=HOST:PORT=CA-FILE ...
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/kubernetes"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	"portico.dev/pkg/frontdoor"
)

func main() {
	config := frontdoor.Config{Port: 6443}
	pflag.StringVar(&config.DataDir, "data-dir", "./data", "directory for keys and the embedded etcd")
	pflag.IntVar(&config.Port, "secure-port", config.Port, "port to listen on")
	backends := pflag.StringArray("backend", nil, "extension server, as GROUP/VERSION=HOST:PORT=CA-FILE; may be repeated")
	pflag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, config, *backends, tokens(os.Getenv("TOKENS"))); err != nil {
		log.Fatal(err)
	}
}

// run serves until ctx ends.
func run(ctx context.Context, config frontdoor.Config, backends []string, users tokens) error {
	config.ServedGroups = []string{}
	config.TokenAuthenticators = []authenticator.Token{users}
	config.Authorizers = []authorizer.Authorizer{authorizer.AuthorizerFunc(decide)}
	config.Handlers = map[string]http.Handler{"/hello": http.HandlerFunc(hello)}
	front, err := frontdoor.New(config)
	if err != nil {
		return err
	}
	failed := make(chan error, 1)
	go func() { failed <- front.Run(ctx) }()
	select {
	case err := <-failed:
		return err
	case <-front.Ready():
	}
	log.Printf("serving on %s", front.URL())
	for _, b := range backends {
		if err := register(ctx, front, b); err != nil {
			return errors.Join(err, <-failed)
		}
	}
	return <-failed
}

// tokens are users by token.
type tokens string

func (t tokens) AuthenticateToken(_ context.Context, token string) (*authenticator.Response, bool, error) {
	for pair := range strings.SplitSeq(string(t), ",") {
		if known, name, ok := strings.Cut(pair, "="); ok && known == token {
			return &authenticator.Response{User: &user.DefaultInfo{Name: name}}, true, nil
		}
	}
	return nil, false, nil
}

// decide lets every known user read.
func decide(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if a.IsReadOnly() && a.GetUser().GetName() != user.Anonymous {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "only reading is allowed", nil
}

func hello(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello\n") }

// register makes a backend known: its Service is an object of core v1, which clients do not see.
func register(ctx context.Context, front *frontdoor.FrontDoor, backend string) error {
	parts := strings.Split(backend, "=")
	if len(parts) != 3 {
		return fmt.Errorf("--backend=%s: write it as GROUP/VERSION=HOST:PORT=CA-FILE", backend)
	}
	group, version, _ := strings.Cut(parts[0], "/")
	host, portText, err := net.SplitHostPort(parts[1])
	if err != nil {
		return fmt.Errorf("--backend=%s: %w", backend, err)
	}
	number, err := strconv.ParseInt(portText, 10, 32)
	if err != nil {
		return fmt.Errorf("--backend=%s: %w", backend, err)
	}
	bundle, err := os.ReadFile(parts[2])
	if err != nil {
		return fmt.Errorf("--backend=%s: %w", backend, err)
	}
	local, err := front.LocalConfig()
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(local)
	if err != nil {
		return err
	}
	apiServices, err := aggregatorclient.NewForConfig(local)
	if err != nil {
		return err
	}
	name, port := strings.ReplaceAll(group, ".", "-"), int32(number)
	_, err = client.CoreV1().Services("default").Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: host},
	}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	_, err = apiServices.ApiregistrationV1().APIServices().Create(ctx, &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: version + "." + group},
		Spec: apiregistrationv1.APIServiceSpec{
			Group: group, Version: version, GroupPriorityMinimum: 1000, VersionPriority: 15, CABundle: bundle,
			Service: &apiregistrationv1.ServiceReference{Namespace: "default", Name: name, Port: &port},
		},
	}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}
