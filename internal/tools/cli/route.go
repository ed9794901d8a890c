package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/yaml"

	"portico.dev/internal/gateway/adoption"
	"portico.dev/internal/request"
	routingclient "portico.dev/internal/routes/client"
	"portico.dev/internal/routes/routing"
	"portico.dev/internal/routes/v1alpha1"
	"portico.dev/internal/tools/toolclient"
)

type routeOptions struct {
	ClientFlags
	user    string
	headers []string
	file    string
	output  Output
}

// routeAnswer is the output of -o json.
type routeAnswer struct {
	// APIRoute is the name of the APIRoute in effect, if any.
	APIRoute   string `json:"apiRoute,omitempty"`
	APIService string `json:"apiService"`
	// Gateway is the Service of the gateway on the path of the request.
	Gateway string `json:"gateway,omitempty"`
	// Destinations lists the backends of the request: one, or several with merged responses.
	Destinations []routeDestination `json:"destinations"`
	// Refused is the reason if the request is not sent to any backend.
	Refused string `json:"refused,omitempty"`
}

// routeDestination is one backend of a request.
type routeDestination struct {
	// Rule is the name of the rule that matches, if any.
	Rule string `json:"rule,omitempty"`
	// Backend is the name of the backend that the rule selects. Service and Version are its fields.
	Backend string `json:"backend,omitempty"`
	Service string `json:"service"`
	Version string `json:"version"`
	// Available is the Available condition of the backend. Reason is the reason of that condition.
	Available string `json:"available"`
	Reason    string `json:"reason,omitempty"`
	Message   string `json:"message,omitempty"`
	// SharedReads describes how the request may share the response to an equal request. Reads only.
	SharedReads *v1alpha1.SharedReads `json:"sharedReads,omitempty"`
	// Mirror is the destination of copies of the request. Gets and lists only.
	Mirror *routeMirror `json:"mirror,omitempty"`
	// Rollback describes when the requests of a backend are sent to the first backend of the rule.
	Rollback *routeRollback `json:"rollback,omitempty"`
	watch    bool
	// Fallback receives the request if this backend is unavailable.
	Fallback *routeDestination `json:"fallback,omitempty"`
}

// routeMirror is the backend that receives copies.
type routeMirror struct {
	routeDestination `json:",inline"`
	// Percent is the percentage of the reads that are copied.
	Percent int `json:"percent"`
}

// routeRollback describes when the requests of a backend are sent to the first backend of the rule.
type routeRollback struct {
	v1alpha1.Rollback `json:",inline"`
	// Backend is the name of the first backend.
	Backend string `json:"backend"`
	// RolledBack lists the backends that are currently rolled back. Message is the reason.
	RolledBack []string `json:"rolledBack,omitempty"`
	Message    string   `json:"message,omitempty"`
}

func (d *routeDestination) served() bool {
	return d.Available == string(metav1.ConditionTrue) || d.Fallback != nil && d.Fallback.served()
}

func routeCommand() *cobra.Command {
	o := routeOptions{}
	cmd := &cobra.Command{
		Use:   "route [METHOD] PATH",
		Short: "Show to which extension server a request would go, and by which rule of which APIRoute",
		Long: `Show to which extension server a request would go: which rule of the APIRoute of its group-version matches, which
backend it selects, and whether that is available. No request is sent to an extension server. With -f the rules of a
manifest are used, which need not be applied.

The command needs the rights to get the APIRoute and the APIService, and the namespace if a rule selects namespaces by labels.

Exit status: 0 the request would be served, 1 it would not, 2 the API server could not be queried.`,
		Example: `  aggregator route /apis/custom.metrics.k8s.io/v1beta1/namespaces/shop/pods/*/queue_length
  aggregator route PATCH /apis/example.com/v1/namespaces/dev/widgets/a --as alice -H 'X-Canary: always'
  aggregator route /apis/metrics.k8s.io/v1/nodes -f route.yaml -o json`,
		Args: func(cmd *cobra.Command, args []string) error { return notAsked(cobra.RangeArgs(1, 2)(cmd, args)) },
		RunE: func(cmd *cobra.Command, args []string) error {
			served, err := o.run(cmd.Context(), cmd.OutOrStdout(), args)
			if err == nil && !served {
				return &ExitError{Code: exitNo} // the result is already printed
			}
			return notAsked(err)
		},
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return notAsked(err) })
	fs := cmd.Flags()
	o.Add(fs)
	fs.StringVar(&o.user, "as", "", "user of the request; needed where users are distributed by weight")
	fs.StringArrayVarP(&o.headers, "header", "H", nil, "header of the request, as 'Name: value'; may be repeated")
	fs.StringVarP(&o.file, "filename", "f", "", "manifest of the APIRoute, used instead of the one on the server")
	o.output.Add(fs)
	return cmd
}

// run prints the result and reports whether the request would be served.
func (o *routeOptions) run(ctx context.Context, out io.Writer, args []string) (served bool, err error) {
	if err := o.output.Check(); err != nil {
		return false, err
	}
	q, gv, err := o.request(args)
	if err != nil {
		return false, err
	}
	answer, err := o.resolve(ctx, q, gv)
	if err != nil {
		return false, err
	}
	served = answer.Refused == "" && slices.ContainsFunc(answer.Destinations, func(d routeDestination) bool { return d.served() })
	if !o.output.Is("text") {
		return served, o.output.Print(out, answer)
	}
	return served, answer.print(out)
}

// request parses the arguments in the same way as the front door parses a request.
func (o *routeOptions) request(args []string) (*routing.Request, string, error) {
	method, target := http.MethodGet, args[len(args)-1]
	if len(args) == 2 {
		method = strings.ToUpper(args[0])
	}
	r, err := http.NewRequest(method, target, nil)
	if err != nil {
		return nil, "", err
	}
	for _, h := range o.headers {
		name, value, ok := strings.Cut(h, ":")
		if !ok {
			return nil, "", fmt.Errorf("--header: %q is not of the form 'Name: value'", h)
		}
		r.Header.Add(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	info, err := request.NewResolver().Info(r)
	if err != nil {
		return nil, "", err
	}
	if !info.IsResourceRequest || info.APIGroup == "" {
		return nil, "", fmt.Errorf("%s is no path of a resource below /apis/<group>/<version>/: nothing else is routed", target)
	}
	q := routing.NewRequest(info, o.user, r.Header)
	return &q, info.APIVersion + "." + info.APIGroup, nil
}

// resolve determines the destinations of the request.
func (o *routeOptions) resolve(ctx context.Context, q *routing.Request, name string) (*routeAnswer, error) {
	config, err := o.Config()
	if err != nil {
		return nil, err
	}
	config.QPS = -1 // only a few objects
	registrations, err := toolclient.New(config)
	if err != nil {
		return nil, err
	}
	service, err := registrations.APIServices().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("there is no APIService %s: requests for it are answered with 404", name)
	}
	if err != nil {
		return nil, fmt.Errorf("get the APIService: %w", err)
	}
	answer := &routeAnswer{APIService: name, Destinations: []routeDestination{}}
	if service.Spec.Service == nil {
		answer.Destinations = append(answer.Destinations, routeDestination{Service: "Local", Version: service.Spec.Version, Available: string(metav1.ConditionTrue)})
		return answer, nil
	}
	if adoption.Adopted(service) {
		if answer.Gateway, err = throughGateway(service); err != nil {
			return nil, fmt.Errorf("APIService %s: %w", name, err)
		}
	}
	object, err := o.apiRoute(ctx, name)
	if err != nil {
		return nil, err
	}
	if object == nil {
		answer.Destinations = append(answer.Destinations, ownDestination(service))
		return answer, nil
	}
	answer.APIRoute = name
	var failed error
	compiled, err := routing.Compile(object, o.namespaces(ctx, &failed))
	if err != nil {
		return nil, fmt.Errorf("the APIRoute has no effect: %w", err)
	}
	choices := compiled.Choose(q, nil)
	if failed != nil {
		return nil, fmt.Errorf("get the namespace: %w", failed)
	}
	for _, c := range choices {
		if o.user == "" && q.Reads() && isWeighted(compiled, c.Rule) {
			return nil, fmt.Errorf("rule %s distributes users by weight: say whose request it is, with --as", c.Rule)
		}
		d := describe(object, compiled, service, c)
		if c.Shared != nil && len(choices) == 1 && (q.Verb == "get" || q.Verb == "list" || q.Verb == "watch" && c.Shared.Watches) {
			d.SharedReads, d.watch = ruleOf(object, c.Rule).SharedReads, q.Verb == "watch"
		}
		if c.Mirror != nil && len(choices) == 1 && q.MayMirror() {
			d.Mirror = &routeMirror{describeBackend(object, compiled, service, c.Mirror.Backend), c.Mirror.Percent}
		}
		if rule := ruleOf(object, c.Rule); rule != nil && rule.Rollback != nil && len(choices) == 1 {
			d.Rollback = rollbackOf(object, rule)
		}
		answer.Destinations = append(answer.Destinations, d)
	}
	stored := slices.ContainsFunc(choices, func(c *routing.Choice) bool { return c.Backend == compiled.CustomResources() })
	switch {
	case len(choices) == 1 && !q.Reads() && choices[0].ReadOnly:
		answer.Refused = "503: the objects can be read only while they are being copied to another backend"
	case stored && (q.Verb == "list" || q.Verb == "watch"):
	case len(choices) > 1 && (q.Verb == "watch" || !q.Reads()):
		answer.Refused = "400: the rules select several backends by namespace or name, and the request is for any: name the namespace or the object"
	case len(choices) == 1 && !q.Reads() && compiled.Version(choices[0].Backend) != compiled.GroupVersion:
		answer.Refused = "405: a backend of another version gets reads only"
	}
	return answer, nil
}

// throughGateway replaces the Service of an APIService with the original one, and the condition with the gateway's
// verdict about it. It returns the gateway, or "" if requests do not pass through one.
func throughGateway(service *apiregistrationv1.APIService) (gateway string, err error) {
	original, err := adoption.OriginalOf(service)
	if err != nil {
		return "", err
	}
	front := adoption.ServiceOf(service.Spec.Service)
	if front == original.Service { // the gateway only monitors it
		return "", nil
	}
	service.Spec.Service = original.Service.Reference()
	verdict, known := adoption.Condition(service, adoption.BackendAvailable)
	verdict.Type, service.Status.Conditions = apiregistrationv1.Available, nil
	if known {
		service.Status.Conditions = []apiregistrationv1.APIServiceCondition{verdict}
	}
	return front.String(), nil
}

// apiRoute returns the APIRoute to apply, or nil.
func (o *routeOptions) apiRoute(ctx context.Context, name string) (*v1alpha1.APIRoute, error) {
	if o.file != "" {
		text, err := os.ReadFile(o.file)
		if err != nil {
			return nil, err
		}
		object := &v1alpha1.APIRoute{}
		if err := yaml.UnmarshalStrict(text, object); err != nil {
			return nil, fmt.Errorf("read %s: %w", o.file, err)
		}
		if object.Name != name {
			return nil, fmt.Errorf("%s has the APIRoute %s, and the request is for %s", o.file, object.Name, name)
		}
		return object, nil
	}
	config, err := o.Config()
	if err != nil {
		return nil, err
	}
	client, err := routingclient.New(config)
	if err != nil {
		return nil, err
	}
	object, err := client.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get the APIRoute: %w", err)
	}
	return object, nil
}

// namespaces returns a function that reads the labels of namespaces, for rules that select namespaces by labels.
func (o *routeOptions) namespaces(ctx context.Context, failed *error) routing.Namespaces {
	return func(name string) (labels.Set, bool) {
		config, err := o.Config()
		if err != nil {
			*failed = err
			return nil, false
		}
		client, err := toolclient.New(config)
		if err != nil {
			*failed = err
			return nil, false
		}
		namespace, err := client.Namespaces().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			if !apierrors.IsNotFound(err) {
				*failed = errors.Join(*failed, err)
			}
			return nil, false
		}
		return namespace.Labels, true
	}
}

func isWeighted(r *routing.Route, rule string) bool {
	return slices.ContainsFunc(r.Rules(), func(s routing.Rule) bool { return s.Name == rule && len(s.Backends) > 1 })
}

func describe(object *v1alpha1.APIRoute, r *routing.Route, service *apiregistrationv1.APIService, c *routing.Choice) routeDestination {
	d := describeBackend(object, r, service, c.Backend)
	d.Rule = c.Rule
	if c.Fallback >= 0 && c.Fallback != c.Backend {
		fallback := describeBackend(object, r, service, c.Fallback)
		d.Fallback = &fallback
	}
	return d
}

// ruleOf returns the rule with the given name, or nil.
func ruleOf(object *v1alpha1.APIRoute, name string) *v1alpha1.APIRouteRule {
	at := slices.IndexFunc(object.Spec.Rules, func(r v1alpha1.APIRouteRule) bool { return r.Name == name })
	if at < 0 {
		return nil
	}
	return &object.Spec.Rules[at]
}

func rollbackOf(object *v1alpha1.APIRoute, rule *v1alpha1.APIRouteRule) *routeRollback {
	b := &routeRollback{Rollback: *rule.Rollback, Backend: rule.BackendRefs[0].Name}
	for i := range object.Status.Rules {
		if s := &object.Status.Rules[i]; s.Name == rule.Name {
			if c := routing.RollbackOf(object, s); c != nil {
				b.RolledBack, b.Message = s.RolledBack, c.Message
			}
		}
	}
	return b
}

func describeBackend(object *v1alpha1.APIRoute, r *routing.Route, service *apiregistrationv1.APIService, at int) routeDestination {
	b := &r.Backends[at]
	d := routeDestination{Backend: b.Name, Service: addressOf(service.Spec.Service), Version: r.Version(at).Version, Available: string(metav1.ConditionUnknown)}
	if b.CustomResources != nil {
		d.Service = "custom resources"
	}
	if b.Service != nil {
		d.Service = addressOf(&apiregistrationv1.ServiceReference{Namespace: b.Service.Namespace, Name: b.Service.Name, Port: b.Service.Port})
	}
	for _, s := range object.Status.Backends {
		if s.Name != b.Name {
			continue
		}
		if c := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionAvailable); c != nil {
			d.Available, d.Reason, d.Message = string(c.Status), c.Reason, c.Message
		}
	}
	return d
}

func ownDestination(service *apiregistrationv1.APIService) routeDestination {
	d := routeDestination{Service: addressOf(service.Spec.Service), Version: service.Spec.Version, Available: string(metav1.ConditionUnknown)}
	for _, c := range service.Status.Conditions {
		if c.Type == apiregistrationv1.Available {
			d.Available, d.Reason, d.Message = string(c.Status), c.Reason, c.Message
		}
	}
	return d
}

func addressOf(s *apiregistrationv1.ServiceReference) string {
	port := int32(443)
	if s.Port != nil {
		port = *s.Port
	}
	return fmt.Sprintf("%s/%s:%d", s.Namespace, s.Name, port)
}

func (a *routeAnswer) print(out io.Writer) error {
	var b strings.Builder
	if a.APIRoute == "" {
		fmt.Fprintf(&b, "no APIRoute %s: the APIService decides\n", a.APIService)
	} else {
		fmt.Fprintf(&b, "APIRoute %s\n", a.APIRoute)
	}
	if a.Gateway != "" {
		fmt.Fprintf(&b, "gateway   %s\n", a.Gateway)
	}
	if a.Refused != "" {
		fmt.Fprintf(&b, "refused with %s\n", a.Refused)
	} else if len(a.Destinations) > 1 {
		fmt.Fprintf(&b, "merged of %d backends, each for its objects\n", len(a.Destinations))
	}
	for i := range a.Destinations {
		d := &a.Destinations[i]
		if a.APIRoute != "" {
			fmt.Fprintf(&b, "rule      %s\n", cmp.Or(d.Rule, "none: the first backend"))
		}
		fmt.Fprintf(&b, "backend   %s\n", d)
		if d.Fallback != nil {
			fmt.Fprintf(&b, "fallback  %s\n", d.Fallback)
		}
		if d.SharedReads != nil {
			fmt.Fprintf(&b, "shared    %s\n", describeSharedReads(d.SharedReads, d.watch))
		}
		if d.Mirror != nil {
			fmt.Fprintf(&b, "mirror    %s; %d %% of the reads are sent there too and compared\n", &d.Mirror.routeDestination, d.Mirror.Percent)
		}
		if d.Rollback != nil {
			fmt.Fprintf(&b, "rollback  %s\n", d.Rollback)
		}
	}
	_, err := io.WriteString(out, b.String())
	return err
}

func describeSharedReads(s *v1alpha1.SharedReads, watch bool) string {
	if watch {
		return "the events of one watch of the backend for all users"
	}
	text := "a response to an equal request of the same user"
	if s.Callers == v1alpha1.CallersAll {
		text = "a response to an equal request of any user"
	}
	text += ", up to " + s.MaxAge.Duration.String() + " old"
	if s.StaleIfError != nil {
		text += ", " + (s.MaxAge.Duration + s.StaleIfError.Duration).String() + " while the server fails"
	}
	return text
}

func (b *routeRollback) String() string {
	if len(b.RolledBack) > 0 {
		return "in effect: " + b.Message
	}
	requests, interval := routing.DefaultMinRequests, routing.DefaultRollbackInterval
	if b.MinRequests != nil {
		requests = *b.MinRequests
	}
	if b.Interval != nil {
		interval = b.Interval.Duration
	}
	return fmt.Sprintf("to %s, when %d %% of at least %d requests within %s fail", b.Backend, b.ErrorPercent, requests, interval)
}

func (d *routeDestination) String() string {
	text := d.Service + ", version " + d.Version
	if d.Backend != "" {
		text = d.Backend + " (" + text + ")"
	}
	switch d.Available {
	case string(metav1.ConditionTrue):
		return text + ": available"
	case string(metav1.ConditionFalse):
		return text + ": not available (" + d.Reason + "): " + d.Message
	}
	return text + ": not known whether it is available"
}
