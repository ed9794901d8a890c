package admission

import (
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/mutating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/validating"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
)

// The kinds that configure admission webhooks.
const (
	kindValidating = "ValidatingWebhookConfiguration"
	kindMutating   = "MutatingWebhookConfiguration"
)

// webhookAccess connects k8s.io/apiserver's webhook plugins to hooks, and provides hooks with the configured webhooks.
type webhookAccess struct {
	hooks     Webhooks
	informers informers.SharedInformerFactory
}

// Initialize implements k8s.io/apiserver's admission.PluginInitializer.
func (a webhookAccess) Initialize(plugin admission.Interface) {
	configured := a.informers.Admissionregistration().V1()
	switch p := plugin.(type) {
	case *mutating.Plugin:
		p.SetServiceResolver(a.hooks.Resolver())
		p.SetAuthenticationInfoResolverWrapper(a.hooks.Wrapper(kindMutating))
		of := configured.MutatingWebhookConfigurations()
		a.follow(kindMutating, of.Informer(), func() (references []Reference) {
			all, _ := of.Lister().List(labels.Everything()) // a cache does not fail
			for _, c := range all {
				for i := range c.Webhooks {
					references = appendReference(references, c.Name, &c.Webhooks[i].ClientConfig)
				}
			}
			return references
		})
	case *validating.Plugin:
		p.SetServiceResolver(a.hooks.Resolver())
		p.SetAuthenticationInfoResolverWrapper(a.hooks.Wrapper(kindValidating))
		of := configured.ValidatingWebhookConfigurations()
		a.follow(kindValidating, of.Informer(), func() (references []Reference) {
			all, _ := of.Lister().List(labels.Everything())
			for _, c := range all {
				for i := range c.Webhooks {
					references = appendReference(references, c.Name, &c.Webhooks[i].ClientConfig)
				}
			}
			return references
		})
	}
}

// follow adds a source of references, and calls Sweep when a reference may be gone. The handler ends with the informer.
func (a webhookAccess) follow(kind string, informer cache.SharedIndexInformer, list func() []Reference) {
	a.hooks.Services.AddSource(kind, list)
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(any, any) { a.hooks.Services.Sweep() },
		DeleteFunc: func(any) { a.hooks.Services.Sweep() },
	})
	if err != nil { // impossible, because the informer is not stopped
		panic(fmt.Sprintf("follow %s: %v", kind, err))
	}
}

func appendReference(references []Reference, object string, config *admissionregistrationv1.WebhookClientConfig) []Reference {
	s := config.Service
	if s == nil {
		return references
	}
	r := Reference{Object: object, Namespace: s.Namespace, Name: s.Name, CABundle: config.CABundle}
	if s.Port != nil {
		r.Port = *s.Port
	}
	if s.Path != nil {
		r.Path = *s.Path
	}
	return append(references, r)
}
