// Package clients contains the typed clients and informers of Kubernetes' own groups that this program uses. A call to another
// group or kind does not compile. Some libraries look up methods by name, so that the linker cannot remove unused methods:
// client-go's clientset and informer factory would add 12 MB to the binary (docs/decisions/0005-binary-size.md).
//
// Library functions that require a kubernetes.Interface or an informers.SharedInformerFactory receive one from [ForLibrary] and
// [Informers.ForLibrary].
package clients

import (
	"errors"
	"fmt"
	"net/http"

	"k8s.io/client-go/discovery"
	admissionregistrationv1 "k8s.io/client-go/kubernetes/typed/admissionregistration/v1"
	authorizationv1 "k8s.io/client-go/kubernetes/typed/authorization/v1"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	discoveryv1 "k8s.io/client-go/kubernetes/typed/discovery/v1"
	flowcontrolv1 "k8s.io/client-go/kubernetes/typed/flowcontrol/v1"
	networkingv1 "k8s.io/client-go/kubernetes/typed/networking/v1"
	nodev1 "k8s.io/client-go/kubernetes/typed/node/v1"
	rbacv1 "k8s.io/client-go/kubernetes/typed/rbac/v1"
	schedulingv1 "k8s.io/client-go/kubernetes/typed/scheduling/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
)

// Interface is the part of kubernetes.Interface that this program uses. [Client] implements it, and so do client-go's clientset
// and its fake.
type Interface interface {
	Discovery() discovery.DiscoveryInterfaces
	AdmissionregistrationV1() admissionregistrationv1.AdmissionregistrationV1Interface
	AuthorizationV1() authorizationv1.AuthorizationV1Interface
	CoreV1() corev1.CoreV1Interface
	DiscoveryV1() discoveryv1.DiscoveryV1Interface
	FlowcontrolV1() flowcontrolv1.FlowcontrolV1Interface
	NetworkingV1() networkingv1.NetworkingV1Interface
	NodeV1() nodev1.NodeV1Interface
	RbacV1() rbacv1.RbacV1Interface
	SchedulingV1() schedulingv1.SchedulingV1Interface
}

// Client is a typed client of the groups of [Interface].
type Client struct {
	discovery             *discovery.DiscoveryClient
	admissionregistration *admissionregistrationv1.AdmissionregistrationV1Client
	authorization         *authorizationv1.AuthorizationV1Client
	core                  *corev1.CoreV1Client
	endpoints             *discoveryv1.DiscoveryV1Client
	flowcontrol           *flowcontrolv1.FlowcontrolV1Client
	networking            *networkingv1.NetworkingV1Client
	node                  *nodev1.NodeV1Client
	rbac                  *rbacv1.RbacV1Client
	scheduling            *schedulingv1.SchedulingV1Client
}

var _ Interface = (*Client)(nil)

// New returns a client whose groups share one transport, as kubernetes.NewForConfig does.
func New(config *rest.Config) (*Client, error) {
	c := *config
	if c.UserAgent == "" {
		c.UserAgent = rest.DefaultKubernetesUserAgent()
	}
	shared, err := rest.HTTPClientFor(&c)
	if err != nil {
		return nil, fmt.Errorf("transport: %w", err)
	}
	return NewForHTTPClient(&c, shared)
}

// NewForHTTPClient returns a client that uses an existing HTTP client. All groups share one QPS limit.
func NewForHTTPClient(config *rest.Config, httpClient *http.Client) (*Client, error) {
	c := *config
	if c.RateLimiter == nil && c.QPS > 0 {
		if c.Burst <= 0 {
			return nil, errors.New("a QPS limit needs a burst of at least one")
		}
		c.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(c.QPS, c.Burst)
	}
	made := &Client{}
	if err := errors.Join(
		group(&made.discovery, discovery.NewDiscoveryClientForConfigAndClient, &c, httpClient),
		group(&made.admissionregistration, admissionregistrationv1.NewForConfigAndClient, &c, httpClient),
		group(&made.authorization, authorizationv1.NewForConfigAndClient, &c, httpClient),
		group(&made.core, corev1.NewForConfigAndClient, &c, httpClient),
		group(&made.endpoints, discoveryv1.NewForConfigAndClient, &c, httpClient),
		group(&made.flowcontrol, flowcontrolv1.NewForConfigAndClient, &c, httpClient),
		group(&made.networking, networkingv1.NewForConfigAndClient, &c, httpClient),
		group(&made.node, nodev1.NewForConfigAndClient, &c, httpClient),
		group(&made.rbac, rbacv1.NewForConfigAndClient, &c, httpClient),
		group(&made.scheduling, schedulingv1.NewForConfigAndClient, &c, httpClient),
	); err != nil {
		return nil, err
	}
	return made, nil
}

func group[T any](client **T, newFor func(*rest.Config, *http.Client) (*T, error), config *rest.Config, httpClient *http.Client) (err error) {
	*client, err = newFor(config, httpClient)
	return err
}

func (c *Client) Discovery() discovery.DiscoveryInterfaces { return c.discovery }
func (c *Client) AdmissionregistrationV1() admissionregistrationv1.AdmissionregistrationV1Interface {
	return c.admissionregistration
}
func (c *Client) AuthorizationV1() authorizationv1.AuthorizationV1Interface { return c.authorization }
func (c *Client) CoreV1() corev1.CoreV1Interface                            { return c.core }
func (c *Client) DiscoveryV1() discoveryv1.DiscoveryV1Interface             { return c.endpoints }
func (c *Client) FlowcontrolV1() flowcontrolv1.FlowcontrolV1Interface       { return c.flowcontrol }
func (c *Client) NetworkingV1() networkingv1.NetworkingV1Interface          { return c.networking }
func (c *Client) NodeV1() nodev1.NodeV1Interface                            { return c.node }
func (c *Client) RbacV1() rbacv1.RbacV1Interface                            { return c.rbac }
func (c *Client) SchedulingV1() schedulingv1.SchedulingV1Interface          { return c.scheduling }
