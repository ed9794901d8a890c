package clients

import (
	"errors"
	"fmt"
	"net/http"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
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

// Client is a kubernetes.Interface of the groups below. It has no others: a call of one ends in a nil pointer, and a test
// reads every package that is linked to see that there is none.
type Client struct {
	kubernetes.Interface // nil

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

// New returns a client that shares one transport among its groups, as kubernetes.NewForConfig does.
func New(config *rest.Config) (*Client, error) {
	c := *config
	if c.UserAgent == "" {
		c.UserAgent = rest.DefaultKubernetesUserAgent()
	}
	shared, err := rest.HTTPClientFor(&c)
	if err != nil {
		return nil, fmt.Errorf("transport: %w", err)
	}
	return NewOver(&c, shared)
}

// NewOver returns a client over a transport that is there already. The limit of QPS is one for all groups.
func NewOver(config *rest.Config, over *http.Client) (*Client, error) {
	c := *config
	if c.RateLimiter == nil && c.QPS > 0 {
		if c.Burst <= 0 {
			return nil, errors.New("a limit of requests per second needs a burst of at least one")
		}
		c.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(c.QPS, c.Burst)
	}
	made := &Client{}
	if err := errors.Join(
		group(&made.discovery, discovery.NewDiscoveryClientForConfigAndClient, &c, over),
		group(&made.admissionregistration, admissionregistrationv1.NewForConfigAndClient, &c, over),
		group(&made.authorization, authorizationv1.NewForConfigAndClient, &c, over),
		group(&made.core, corev1.NewForConfigAndClient, &c, over),
		group(&made.endpoints, discoveryv1.NewForConfigAndClient, &c, over),
		group(&made.flowcontrol, flowcontrolv1.NewForConfigAndClient, &c, over),
		group(&made.networking, networkingv1.NewForConfigAndClient, &c, over),
		group(&made.node, nodev1.NewForConfigAndClient, &c, over),
		group(&made.rbac, rbacv1.NewForConfigAndClient, &c, over),
		group(&made.scheduling, schedulingv1.NewForConfigAndClient, &c, over),
	); err != nil {
		return nil, err
	}
	return made, nil
}

func group[T any](client **T, newFor func(*rest.Config, *http.Client) (*T, error), config *rest.Config, over *http.Client) (err error) {
	*client, err = newFor(config, over)
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
