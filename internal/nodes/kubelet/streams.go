package kubelet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericrest "k8s.io/apiserver/pkg/registry/generic/rest"
	translation "k8s.io/apiserver/pkg/util/proxy"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"portico.dev/internal/coreapi/registry"
	"portico.dev/internal/filters"
	"portico.dev/internal/proxy"
	"portico.dev/internal/respond"
)

// websocketFeature is declared by kubelets that support websockets for all streaming protocols (KEP-4006).
const websocketFeature = "ExtendWebSocketsToKubelet"

// Log implements registry.Connector.
func (c *Connector) Log(ctx context.Context, from registry.Objects, name string, o *corev1.PodLogOptions) (runtime.Object, error) {
	if errs := validateLogOptions(o); len(errs) > 0 {
		return nil, apierrors.NewInvalid(schema.GroupKind{Kind: "PodLogOptions"}, name, errs)
	}
	pod, err := from.Pod(ctx, name)
	if err != nil {
		return nil, err
	}
	container, err := containerOf(pod, o.Container)
	if err != nil {
		return nil, err
	}
	if pod.Spec.NodeName == "" { // no content, as in kube-apiserver
		warning.AddWarning(ctx, "", fmt.Sprintf("pod %s has no logs yet: it is assigned to no node, which a scheduler does; kubectl describe pod %s may say why", name, name))
		return &logStream{}, nil
	}
	at, err := c.locate(ctx, from, pod.Spec.NodeName)
	if err != nil {
		return nil, err
	}
	return &logStream{
		connector: c, at: at, pod: name, insecure: o.InsecureSkipTLSVerifyBackend, follow: o.Follow,
		path: "/containerLogs/" + pod.Namespace + "/" + pod.Name + "/" + container, query: logQuery(o).Encode(),
	}, nil
}

func logQuery(o *corev1.PodLogOptions) url.Values {
	q := url.Values{}
	for name, set := range map[string]bool{"follow": o.Follow, "previous": o.Previous, "timestamps": o.Timestamps} {
		if set {
			q.Set(name, "true")
		}
	}
	for name, n := range map[string]*int64{"sinceSeconds": o.SinceSeconds, "tailLines": o.TailLines, "limitBytes": o.LimitBytes} {
		if n != nil {
			q.Set(name, strconv.FormatInt(*n, 10))
		}
	}
	if o.SinceTime != nil {
		q.Set("sinceTime", o.SinceTime.Format(time.RFC3339))
	}
	return q
}

// validateLogOptions applies the rules of kube-apiserver. A stream cannot be selected, because
// PodLogsQuerySplitStreams is alpha and off.
func validateLogOptions(o *corev1.PodLogOptions) field.ErrorList {
	var errs field.ErrorList
	const positive = "must be greater than 0"
	if o.TailLines != nil && *o.TailLines < 0 {
		errs = append(errs, field.Invalid(field.NewPath("tailLines"), *o.TailLines, "must be greater than or equal to 0"))
	}
	if o.LimitBytes != nil && *o.LimitBytes < 1 {
		errs = append(errs, field.Invalid(field.NewPath("limitBytes"), *o.LimitBytes, positive))
	}
	switch {
	case o.SinceSeconds != nil && o.SinceTime != nil:
		errs = append(errs, field.Forbidden(field.NewPath(""), "at most one of `sinceTime` or `sinceSeconds` may be specified"))
	case o.SinceSeconds != nil && *o.SinceSeconds < 1:
		errs = append(errs, field.Invalid(field.NewPath("sinceSeconds"), *o.SinceSeconds, positive))
	}
	if o.Stream != nil {
		errs = append(errs, field.Forbidden(field.NewPath("stream"), "may not be specified"))
	}
	return errs
}

// containerOf returns the container that a request selects.
func containerOf(pod *corev1.Pod, name string) (string, error) {
	var names []string
	for i := range pod.Spec.InitContainers {
		names = append(names, pod.Spec.InitContainers[i].Name)
	}
	for i := range pod.Spec.Containers {
		names = append(names, pod.Spec.Containers[i].Name)
	}
	for i := range pod.Spec.EphemeralContainers {
		names = append(names, pod.Spec.EphemeralContainers[i].Name)
	}
	switch {
	case name != "" && !slices.Contains(names, name):
		return "", apierrors.NewBadRequest(fmt.Sprintf("container %s is not valid for pod %s", name, pod.Name))
	case name != "":
		return name, nil
	case len(pod.Spec.Containers) == 1:
		return pod.Spec.Containers[0].Name, nil
	case len(pod.Spec.Containers) == 0:
		return "", apierrors.NewBadRequest(fmt.Sprintf("a container name must be specified for pod %s", pod.Name))
	}
	return "", apierrors.NewBadRequest(fmt.Sprintf("a container name must be specified for pod %s, choose one of: %s", pod.Name, names))
}

// logStream is a log that has not been requested yet.
type logStream struct {
	connector        *Connector // nil if the log is empty
	at               *kubelet
	pod, path, query string
	insecure, follow bool
}

// GetObjectKind implements runtime.Object.
func (l *logStream) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements runtime.Object. It returns the same stream.
func (l *logStream) DeepCopyObject() runtime.Object { return l }

// InputStream implements rest.ResourceStreamer.
func (l *logStream) InputStream(ctx context.Context, _, _ string) (io.ReadCloser, bool, string, error) {
	if l.connector == nil {
		return nil, false, "", nil
	}
	t, release, err := l.connector.target(l.at, l.insecure, true)
	if err != nil {
		return nil, false, "", err
	}
	r := (&http.Request{
		Method: http.MethodGet, URL: &url.URL{Scheme: "https", Host: t.Host, Path: l.path, RawQuery: l.query}, Host: t.Host,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{"User-Agent": {""}},
	}).WithContext(ctx)
	resp, err := l.connector.config.Proxy().RoundTrip(r, t)
	if err == nil {
		err = genericrest.NewGenericHttpResponseChecker(schema.GroupResource{Resource: "pods/log"}, l.pod).Check(resp)
		if err != nil {
			_ = resp.Body.Close() // the first error is the one to report
		}
	}
	if err != nil {
		release()
		return nil, false, "", err
	}
	return &logBody{resp.Body, ctx, release}, l.follow, "text/plain", nil
}

// logBody is the body of a log. If it fails, the response to the client is aborted, because a partial log must not
// look complete.
type logBody struct {
	io.ReadCloser
	ctx     context.Context
	release func()
}

func (b *logBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	// The client is still connected and the server is not shutting down.
	if err != nil && !errors.Is(err, io.EOF) && b.ctx.Err() == nil {
		registry.BreakOff(b.ctx)
	}
	return n, err
}

func (b *logBody) Close() error {
	defer b.release()
	return b.ReadCloser.Close()
}

// Exec implements registry.Connector.
func (c *Connector) Exec(ctx context.Context, from registry.Objects, name string, o *corev1.PodExecOptions) (http.Handler, error) {
	q := streamQuery(o.Stdin, o.Stdout, o.Stderr, o.TTY)
	for _, word := range o.Command {
		q.Add("command", word)
	}
	return c.console(ctx, from, "exec", name, o.Container, q, translation.Options{Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr, Tty: o.TTY})
}

// Attach implements registry.Connector.
func (c *Connector) Attach(ctx context.Context, from registry.Objects, name string, o *corev1.PodAttachOptions) (http.Handler, error) {
	return c.console(ctx, from, "attach", name, o.Container, streamQuery(o.Stdin, o.Stdout, o.Stderr, o.TTY),
		translation.Options{Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr, Tty: o.TTY})
}

func streamQuery(stdin, stdout, stderr, tty bool) url.Values {
	q := url.Values{}
	for name, set := range map[string]bool{corev1.ExecStdinParam: stdin, corev1.ExecStdoutParam: stdout, corev1.ExecStderrParam: stderr, corev1.ExecTTYParam: tty} {
		if set {
			q.Set(name, "1")
		}
	}
	return q
}

func (c *Connector) console(ctx context.Context, from registry.Objects, verb, name, container string, q url.Values, o translation.Options) (http.Handler, error) {
	pod, err := from.Pod(ctx, name)
	if err != nil {
		return nil, err
	}
	if container, err = containerOf(pod, container); err != nil {
		return nil, err
	}
	at, err := c.kubeletOf(ctx, from, pod)
	if err != nil {
		return nil, err
	}
	path := "/" + verb + "/" + pod.Namespace + "/" + pod.Name + "/" + container
	return c.upgrade(at, path, q, func(w http.ResponseWriter, r *http.Request, t *proxy.Target) bool {
		if at.takesWebsockets() || !wsstream.IsWebSocketRequestWithStreamCloseProtocol(r) {
			return false
		}
		c.translate(w, r, t, o)
		return true
	}), nil
}

// PortForward implements registry.Connector.
func (c *Connector) PortForward(ctx context.Context, from registry.Objects, name string, o *corev1.PodPortForwardOptions) (http.Handler, error) {
	pod, err := from.Pod(ctx, name)
	if err != nil {
		return nil, err
	}
	at, err := c.kubeletOf(ctx, from, pod)
	if err != nil {
		return nil, err
	}
	q := url.Values{}
	if len(o.Ports) > 0 {
		var ports []string
		for _, p := range o.Ports {
			ports = append(ports, strconv.Itoa(int(p)))
		}
		q.Set(corev1.PortHeader, strings.Join(ports, ","))
	}
	return c.upgrade(at, "/portForward/"+pod.Namespace+"/"+pod.Name, q, func(w http.ResponseWriter, r *http.Request, t *proxy.Target) bool {
		if at.takesWebsockets() || !wsstream.IsWebSocketRequestWithTunnelingProtocol(r) {
			return false
		}
		// The messages of the client's websocket carry the kubelet connection's SPDY frames.
		translation.NewTunnelingHandler(c.relay(t)).ServeHTTP(&clientWriter{ResponseWriter: w}, r)
		return true
	}), nil
}

func (k *kubelet) takesWebsockets() bool { return slices.Contains(k.features, websocketFeature) }

func (c *Connector) kubeletOf(ctx context.Context, from registry.Objects, pod *corev1.Pod) (*kubelet, error) {
	if pod.Spec.NodeName == "" {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("pod %s does not have a host assigned", pod.Name))
	}
	return c.locate(ctx, from, pod.Spec.NodeName)
}

// upgrade handles an upgrade request with special. If special returns false, it relays the connection byte for byte.
func (c *Connector) upgrade(at *kubelet, path string, q url.Values, special func(http.ResponseWriter, *http.Request, *proxy.Target) bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !httpstream.IsUpgradeRequest(r) {
			respond.Error(w, r, apierrors.NewBadRequest("Upgrade request required"))
			return
		}
		t, release, err := c.target(at, false, true)
		if err != nil {
			respond.Error(w, r, err)
			return
		}
		defer release()
		t.Path, t.RawQuery = path, q.Encode()
		if !special(w, r, t) {
			c.relay(t).ServeHTTP(w, r)
		}
	})
}

func (c *Connector) relay(t *proxy.Target) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.config.Proxy().ServeTarget(w, filters.RequestOf(r), t)
	})
}
