package admission

import (
	"context"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
)

// k8s.io/apiserver's policies become ready with their caches and do not wait for the next poll. The clock of a bubble stands
// still unless all goroutines sleep.
func TestPoliciesAreReadyWithoutPollDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		chain, err := New(Config{Plugins: []Plugin{
			{Name: "ValidatingAdmissionPolicy", Default: true, New: func(_ Deps, c io.Reader) (admission.Interface, error) { return validating.NewPlugin(c) }},
		}}, Deps{
			LibraryClient: client, Dynamic: dynamicfake.NewSimpleDynamicClient(scheme.Scheme), LibraryInformers: informers.NewSharedInformerFactory(client, 0),
			Authorizer: authorizerfactory.NewAlwaysAllowAuthorizer(), RESTMapper: meta.NewDefaultRESTMapper(nil),
			Webhooks: Webhooks{}, Logger: zap.NewNop(),
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		began := time.Now()
		go func() { ended <- chain.Run(ctx) }()
		<-chain.Ready()
		if took := time.Since(began); took > 0 {
			t.Errorf("the chain became ready after %s, want 0s: a goroutine slept", took)
		}
		if read := len(chain.policies.all); read != 2 {
			t.Errorf("informers of the policies = %d, want 2, one for policies and one for bindings", read)
		}
		for _, w := range chain.waiters {
			if !w.WaitForReady() {
				t.Errorf("WaitForReady of %T = false, want true", w)
			}
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
